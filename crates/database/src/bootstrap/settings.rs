//! The settings of the bootstrap that depend on the project.

use std::fmt;
use std::time::Duration;

use crate::endpoint::Password;

/// The settings of a project's database. The rest of the bootstrap is the same for every project.
#[derive(Clone)]
pub struct BootstrapSettings {
    /// Grant tables, sequences and functions that `postgres` creates in `public` to the API roles
    /// automatically: `[api] auto_expose_new_tables`.
    pub auto_expose_new_tables: bool,
    /// Switch row security on for every new table in `public`. `false` leaves the database as it
    /// is.
    pub secure_new_tables: bool,
    /// `app.settings.jwt_secret` of the database, which SQL of old projects reads to sign tokens.
    /// Every role can read it: only development gives it.
    pub jwt_secret: Option<Password>,
    /// `app.settings.jwt_exp` of the database: how long access tokens are valid.
    pub jwt_expiry: Duration,
    /// Passwords of login roles, sent to the server as SCRAM verifiers only.
    pub role_passwords: Vec<(String, Password)>,
}

impl Default for BootstrapSettings {
    fn default() -> Self {
        Self {
            auto_expose_new_tables: true,
            secure_new_tables: false,
            jwt_secret: None,
            jwt_expiry: Duration::from_secs(3600),
            role_passwords: Vec::new(),
        }
    }
}

impl fmt::Debug for BootstrapSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapSettings")
            .field("auto_expose_new_tables", &self.auto_expose_new_tables)
            .field("secure_new_tables", &self.secure_new_tables)
            .field("jwt_expiry", &self.jwt_expiry)
            .field("role_passwords", &self.role_passwords.iter().map(|(role, _)| role).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl BootstrapSettings {
    /// Returns the settings as bytes: equal settings give equal bytes, and different ones different
    /// bytes.
    pub(super) fn identity(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut part = |text: Option<&str>| match text {
            None => bytes.push(0),
            Some(text) => {
                bytes.push(1);
                bytes.extend((text.len() as u64).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
        };
        part(Some(if self.auto_expose_new_tables { "expose" } else { "keep" }));
        part(Some(if self.secure_new_tables { "secure" } else { "open" }));
        part(self.jwt_secret.as_ref().map(Password::expose));
        part(Some(&self.jwt_expiry.as_secs().to_string()));
        for (role, password) in &self.role_passwords {
            part(Some(role));
            part(Some(password.expose()));
        }
        bytes
    }
}
