//! Role profiles: what the connections of a pool begin with.

use crate::pooler::cleaning::END_IF_VALUES_ARE_KEPT;

use super::PoolSettings;

/// The role and the search path of one kind of work. Each service that acts as a role of its own
/// has a profile; a pool serves one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleProfile {
    /// The role to act as; `None`: the endpoint's login role.
    pub(super) role: Option<&'static str>,
    search_path: &'static str,
}

impl RoleProfile {
    /// The login role, which owns our schema `portico`.
    pub(crate) const LOGIN: Self = Self { role: None, search_path: LOGIN_PATH };

    /// Returns the profile of `role`, whose names resolve in `search_path`. Both stand in
    /// statements as they are.
    #[must_use]
    pub const fn acting_as(role: &'static str, search_path: &'static str) -> Self {
        Self { role: Some(role), search_path }
    }

    /// Returns the number of connections at most.
    pub(super) fn connections(&self, settings: &PoolSettings) -> usize {
        let connections = if self.role.is_some() { settings.role_connections } else { settings.login_connections };
        connections.max(1)
    }

    /// Returns the statements that begin a new connection, in one round trip. Nothing here comes
    /// from a request.
    pub(super) fn set_up(&self, settings: &PoolSettings) -> String {
        let guard = if self.role.is_none() { GUARD_LOGIN } else { "" };
        format!("{guard} {}", self.settings("set", settings))
    }

    /// Like [`set_up`](Self::set_up), but for one transaction: behind a pooler each one begins with
    /// them.
    pub(super) fn preamble(&self, settings: &PoolSettings) -> String {
        let guard = match self.role {
            None => GUARD_LOGIN.replace("'replica', false", "'replica', true"),
            Some(_) => format!("{END_IF_VALUES_ARE_KEPT};"),
        };
        format!("{guard} {}", self.settings("set local", settings))
    }

    fn settings(&self, set: &str, settings: &PoolSettings) -> String {
        format!(
            "{set} search_path = {}; {set} statement_timeout = {}; {set} lock_timeout = {}; \
             {set} idle_in_transaction_session_timeout = {}; {set} timezone = 'UTC';",
            self.search_path,
            settings.statement_timeout.as_millis(),
            settings.lock_timeout.as_millis(),
            settings.idle_in_transaction_timeout.as_millis(),
        )
    }
}

/// The search path of the login role, without any schema that a project can create objects in.
const LOGIN_PATH: &str = "pg_catalog, portico, pg_temp";

/// Prepares a session of a login role that is a superuser: it fires no triggers,
/// and it requires that schema `portico` belongs to a superuser, since the owner of a database can
/// drop it and prepare another one under its name.
const GUARD_LOGIN: &str = "
    do $$
    declare superuser boolean;
    begin
      select rolsuper into superuser from pg_catalog.pg_roles where rolname = session_user;
      if not superuser then return; end if;
      perform pg_catalog.set_config('session_replication_role', 'replica', false);
      if exists (select from pg_catalog.pg_namespace as schema join pg_catalog.pg_roles as owner on owner.oid = schema.nspowner
                  where schema.nspname = 'portico' and not owner.rolsuper) then
        raise exception 'schema portico belongs to a role that is no superuser' using errcode = '42501';
      end if;
    end $$;";
