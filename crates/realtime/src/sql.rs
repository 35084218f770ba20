//! The beginning of every transaction: the role and the settings that it runs under.

use portico_database::wire::Param;

/// The role of the service, for which row-level security does not apply.
pub(crate) const SERVICE_ROLE: &str = "service_role";
/// The time that one statement may take.
pub(crate) const STATEMENT_TIMEOUT: &str = "5s";

/// Sets two settings for the transaction, from pairs of names and values.
pub(crate) const SET_2: &str = "select pg_catalog.set_config($1, $2, true), pg_catalog.set_config($3, $4, true)";
/// Sets eight settings for the transaction, from pairs of names and values.
pub(crate) const SET_8: &str = "select \
    pg_catalog.set_config($1, $2, true), pg_catalog.set_config($3, $4, true), pg_catalog.set_config($5, $6, true), \
    pg_catalog.set_config($7, $8, true), pg_catalog.set_config($9, $10, true), pg_catalog.set_config($11, $12, true), \
    pg_catalog.set_config($13, $14, true), pg_catalog.set_config($15, $16, true)";

/// Returns the values of [`SET_2`] for a transaction of the service.
pub(crate) fn service_settings() -> [Param<'static>; 4] {
    ["role", SERVICE_ROLE, "statement_timeout", STATEMENT_TIMEOUT].map(|text| Some(text.as_bytes()))
}
