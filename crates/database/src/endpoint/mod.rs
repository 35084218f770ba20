//! The address and login of a PostgreSQL server.

mod driver;
pub(crate) mod error;
pub(crate) mod settings;
mod url;

use std::path::PathBuf;
use std::time::Duration;

pub use error::EndpointError;
pub use settings::{Host, Password, TlsMode, TlsSettings};

use crate::acting::detected::DetectedServer;
use crate::pooler::pooling::Pooling;

/// The address and login of a PostgreSQL server: by socket or TCP, with or without TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: Host,
    port: u16,
    user: String,
    password: Option<Password>,
    database: String,
    tls: TlsSettings,
    options: Option<String>,
    application_name: Option<String>,
    connect_timeout: Duration,
    trusts_any_role: bool,
    /// The role to act as from the session's beginning, where the login role is another.
    role: Option<String>,
    detected: DetectedServer,
    /// The way to the same database past a connection pooler.
    direct: Option<Box<Endpoint>>,
}

impl Endpoint {
    /// Returns the endpoint of a server whose socket lies in `folder`, and which lets the system
    /// user of this process be any role: the one that our own cluster's map of users names.
    pub fn socket(folder: impl Into<PathBuf>, port: u16, user: impl Into<String>, database: impl Into<String>) -> Self {
        Self {
            host: Host::Socket(folder.into()),
            port,
            user: user.into(),
            password: None,
            database: database.into(),
            tls: TlsSettings { mode: TlsMode::Disable, ..TlsSettings::default() },
            options: None,
            application_name: None,
            connect_timeout: Duration::from_secs(5),
            trusts_any_role: true,
            role: None,
            detected: DetectedServer::default(),
            direct: None,
        }
    }

    /// Returns this endpoint with another database.
    #[must_use]
    pub fn with_database(&self, database: impl Into<String>) -> Self {
        let database = database.into();
        let direct = self.direct.as_ref().map(|direct| Box::new(direct.with_database(database.clone())));
        Self { database, detected: self.detected.afresh(), direct, ..self.clone() }
    }

    /// Returns the same server with another login role. The password is dropped, since it was the
    /// other role's, unless one is given.
    #[must_use]
    pub fn with_user(&self, user: impl Into<String>, password: Option<Password>) -> Self {
        Self {
            user: user.into(),
            password,
            role: None,
            detected: DetectedServer::default(),
            direct: None,
            ..self.clone()
        }
    }

    /// Returns the same server with login roles of our own, whose names and passwords follow from
    /// `secret`. The bootstrap creates them; from then on SQL of the project runs in their sessions
    /// and not in those of the login role, if the server admits them. The embedded cluster needs
    /// none.
    #[must_use]
    pub fn with_login_secret(&self, secret: &[u8]) -> Self {
        let detected = DetectedServer::with_secret(secret);
        if let Some(pooling) = self.detected.known_pooling() {
            detected.set_pooling(pooling);
        }
        let direct = self.direct.as_ref().map(|direct| Box::new(direct.with_login_secret(secret)));
        Self { detected, direct, ..self.clone() }
    }

    /// Returns this endpoint with another one that leads to the same database past the connection
    /// pooler that this one leads to. Migrations, administration and notifications use it.
    #[must_use]
    pub fn with_direct(&self, direct: Self) -> Self {
        Self { direct: Some(Box::new(direct)), ..self.clone() }
    }

    /// Returns the endpoint past the connection pooler, or this one if no other was given.
    pub(crate) fn direct(&self) -> &Self {
        self.direct.as_deref().unwrap_or(self)
    }

    /// Returns true if an endpoint past the connection pooler was given.
    pub(crate) fn has_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Returns the endpoint whose sessions act as the role that plays `part`, without the login
    /// role's rights where that is possible: on the embedded cluster, and where the server admits
    /// the logins of our own. Elsewhere it is this endpoint, and [`role`](Self::role) of it is not
    /// the part's.
    pub(crate) fn for_part(&self, part: &str) -> Self {
        if self.trusts_any_role {
            return self.with_user(part, None);
        }
        let admitted = self.detected.is_admitted(part).then(|| self.with_own_login(part));
        admitted.flatten().unwrap_or_else(|| self.clone())
    }

    /// Returns the endpoint of our own login for a part, whether or not the server admits it. A
    /// login role that has the part itself needs no other.
    pub(crate) fn with_own_login(&self, part: &str) -> Option<Self> {
        let (user, password) = self.detected.logins()?.of(part)?;
        let role = self.role_for(part);
        (role != self.user).then(|| Self { user, password: Some(password), role: Some(role), ..self.clone() })
    }

    /// Returns the role that plays a part on this server, as far as that is known.
    pub(crate) fn role_for(&self, part: &str) -> String {
        self.detected.names().map_or_else(|| part.to_owned(), |names| names.of(part).to_owned())
    }

    /// Returns the role that sessions act as from their beginning.
    pub(crate) fn role(&self) -> &str {
        self.role.as_deref().unwrap_or(&self.user)
    }

    /// Returns true if connections lead to a connection pooler, as far as that is known.
    pub(crate) fn is_pooled(&self) -> bool {
        self.detected.known_pooling().is_some_and(|pooling| pooling != Pooling::None)
    }

    /// Returns true if a connection can receive notifications (`listen`), as far as that is known.
    pub(crate) fn receives_notifications(&self) -> bool {
        self.direct().detected.known_pooling() != Some(Pooling::Transaction)
    }

    /// Returns the properties of the server that were detected.
    pub(crate) fn detected(&self) -> &DetectedServer {
        &self.detected
    }

    /// Returns the same endpoint under a name that `pg_stat_activity` shows.
    #[must_use]
    pub fn with_application_name(&self, name: impl Into<String>) -> Self {
        Self { application_name: Some(name.into()), ..self.clone() }
    }

    /// Returns the server's host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the port, also part of a socket's file name.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the login role.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the login role's password.
    pub fn password(&self) -> Option<&Password> {
        self.password.as_ref()
    }

    /// Returns the database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the protection of the connection.
    pub fn tls(&self) -> &TlsSettings {
        &self.tls
    }

    /// Returns true if the server lets the system user of this process be any role without a
    /// password: the socket of our own cluster.
    pub fn trusts_any_role(&self) -> bool {
        self.trusts_any_role
    }

    /// Returns the time to wait for a server that does not accept connections yet or just now.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// Returns the `options` of the session's start.
    pub(crate) fn options(&self) -> Option<&str> {
        self.options.as_deref()
    }

    /// Returns the name that `pg_stat_activity` shows.
    pub(crate) fn application_name(&self) -> Option<&str> {
        self.application_name.as_deref()
    }
}
