//! Bringing the database to where the project wants it: roles and schemas, then migrations, then seeds.

use std::time::Duration;

use portico_database::{BootstrapSettings, Database, DatabaseError, Password};
use portico_tokens::development;

use crate::wiring::keys::Keys;

/// Login roles whose password is the published one in development.
const DEVELOPMENT_LOGINS: [&str; 7] = [
    "postgres",
    "supabase_admin",
    "authenticator",
    "supabase_auth_admin",
    "supabase_storage_admin",
    "supabase_replication_admin",
    "supabase_read_only_user",
];

/// What the database of a development server is told.
#[must_use]
pub fn development_bootstrap(keys: &Keys, jwt_expiry: Duration, auto_expose_new_tables: bool) -> BootstrapSettings {
    let login = |role: &str| (role.to_owned(), Password::new(development::DATABASE_PASSWORD));
    BootstrapSettings {
        auto_expose_new_tables,
        jwt_secret: Some(Password::new(keys.jwt_secret.expose())),
        jwt_expiry,
        role_passwords: DEVELOPMENT_LOGINS.into_iter().map(login).collect(),
        ..BootstrapSettings::default()
    }
}

/// Everything that a server finds in its database on the first start.
///
/// # Errors
/// When the database refuses it.
pub async fn bootstrap_for_tests(database: &Database) -> Result<(), DatabaseError> {
    database.bootstrap(&BootstrapSettings::default()).await
}
