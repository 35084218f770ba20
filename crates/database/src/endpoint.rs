//! The address and login of a PostgreSQL server.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use crate::acting::Acting;
use crate::pooler::Pooling;

/// The characters that a part of a URL may contain unescaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Parameters of other programs that share the URL with us and change nothing about the connection.
const IGNORED: &[&str] = &["connection_limit", "pool_timeout", "schema", "supa", "workaround"];
/// The known parameters, for the error message.
const KNOWN: &str = "sslmode, sslrootcert, sslcert, sslkey, channel_binding, host, port, user, password, dbname, \
                     application_name, connect_timeout, options";

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
    acting: Acting,
    /// The way to the same database past a connection pooler.
    direct: Option<Box<Endpoint>>,
}

/// The way to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// The folder that holds the server's socket.
    Socket(PathBuf),
    /// A host name or an IP address.
    Tcp(String),
}

/// A password that does not show itself in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Takes the password's text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password's text, for the connection and for URLs that the person asked for.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The protection of the connection: PostgreSQL's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never encrypted.
    Disable,
    /// Encrypted when the server can, without looking at its certificate.
    #[default]
    Prefer,
    /// Encrypted. The certificate is checked only when `sslrootcert` is given, as other clients do.
    Require,
    /// Encrypted, and the certificate was issued by an authority we trust.
    VerifyCa,
    /// Encrypted, the certificate was issued by an authority we trust, and names the host.
    VerifyFull,
}

/// TLS to an external server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The protection of the connection.
    pub mode: TlsMode,
    /// The authorities to trust, a PEM file; without one, those of the system.
    pub root_certificates: Option<PathBuf>,
    /// Our own certificate chain and its key, PEM files, for servers that ask for one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Refuse a server whose password exchange is not bound to the TLS connection.
    pub require_channel_binding: bool,
}

/// A connection URL that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL at all, or of another scheme.
    #[error("not a PostgreSQL URL ({0}): it looks like postgresql://user:password@host:5432/database")]
    NotAUrl(String),
    /// A part of the URL has no meaning.
    #[error("the PostgreSQL URL has an invalid {part}: {problem}")]
    Invalid {
        /// The name of the part.
        part: &'static str,
        /// The reason.
        problem: String,
    },
    /// A parameter we do not know. Ignoring it could weaken what the person asked for.
    #[error("the PostgreSQL URL has the unknown parameter `{0}`; understood are {KNOWN}")]
    UnknownParameter(String),
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
            acting: Acting::default(),
            direct: None,
        }
    }

    /// Reads a connection URL, `postgresql://user:password@host:port/database?sslmode=...`, as
    /// PostgreSQL's own clients do.
    ///
    /// # Errors
    /// [`EndpointError`] when it is not one, or asks for something we do not understand. The text
    /// never repeats a secret.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        // A socket folder as host: the URL parser would reject the escaped slashes of
        // `%2Frun%2Fpostgresql`. And it would take a database named `.` for a place in a tree.
        let (text, database) = without_database(text);
        let (text, escaped_socket) = without_escaped_socket(&text);
        let url = Url::parse(&text).map_err(|error| EndpointError::NotAUrl(error.to_string()))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(EndpointError::NotAUrl(format!("the scheme is `{}`", url.scheme())));
        }
        let mut endpoint = Self {
            host: match (escaped_socket, url.host_str()) {
                (Some(folder), _) => Host::Socket(folder.into()),
                (None, None | Some("")) => Host::Tcp("localhost".into()),
                (None, Some(host)) => Host::Tcp(decoded("host", host.trim_start_matches('[').trim_end_matches(']'))?),
            },
            port: url.port().unwrap_or(5432),
            user: decoded("user", url.username())?,
            password: url.password().map(|text| decoded("password", text).map(Password)).transpose()?,
            database: decoded("database", database)?,
            tls: TlsSettings::default(),
            options: None,
            application_name: None,
            connect_timeout: Duration::from_secs(10),
            trusts_any_role: false,
            role: None,
            acting: Acting::default(),
            direct: None,
        };
        let (mut certificate, mut key) = (None, None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "sslmode" => endpoint.tls.mode = value.parse()?,
                "ssl" if value == "true" => endpoint.tls.mode = TlsMode::VerifyFull,
                "sslrootcert" if value == "system" => endpoint.tls.root_certificates = None,
                "sslrootcert" => endpoint.tls.root_certificates = Some(PathBuf::from(&*value)),
                "sslcert" => certificate = Some(PathBuf::from(&*value)),
                "sslkey" => key = Some(PathBuf::from(&*value)),
                "channel_binding" => {
                    endpoint.tls.require_channel_binding = match &*value {
                        "require" => true,
                        "prefer" | "disable" => false,
                        other => {
                            return Err(invalid(
                                "channel_binding",
                                format!("`{other}` is not require, prefer or disable"),
                            ));
                        }
                    }
                }
                "host" if value.starts_with('/') => endpoint.host = Host::Socket(PathBuf::from(&*value)),
                "host" => endpoint.host = Host::Tcp(value.into_owned()),
                "port" => {
                    endpoint.port =
                        value.parse().map_err(|_| invalid("port", format!("`{value}` is not a port number")))?;
                }
                "user" => endpoint.user = value.into_owned(),
                "password" => endpoint.password = Some(Password(value.into_owned())),
                "dbname" => endpoint.database = value.into_owned(),
                "application_name" => endpoint.application_name = Some(value.into_owned()),
                "options" => endpoint.options = Some(value.into_owned()),
                "connect_timeout" => {
                    let seconds: u64 = value
                        .parse()
                        .map_err(|_| invalid("connect_timeout", format!("`{value}` is not a number of seconds")))?;
                    endpoint.connect_timeout = Duration::from_secs(seconds.clamp(2, 300));
                }
                "pgbouncer" if value == "true" => endpoint.acting.set_pooling(Pooling::Transaction),
                "pgbouncer" => {}
                ignored if IGNORED.contains(&ignored) => {}
                _ => return Err(EndpointError::UnknownParameter(name.into_owned())),
            }
        }
        if endpoint.user.is_empty() {
            return Err(invalid("user", "it names no user".into()));
        }
        if endpoint.database.is_empty() {
            endpoint.database = endpoint.user.clone();
        }
        endpoint.tls.client_certificate = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(invalid("client certificate", "sslcert and sslkey belong together".into())),
        };
        if matches!(endpoint.host, Host::Socket(_)) {
            endpoint.tls.mode = TlsMode::Disable;
        }
        endpoint.refuse_zero_bytes()?;
        Ok(endpoint)
    }

    /// Returns this endpoint with another database.
    #[must_use]
    pub fn with_database(&self, database: impl Into<String>) -> Self {
        let database = database.into();
        let direct = self.direct.as_ref().map(|direct| Box::new(direct.with_database(database.clone())));
        Self { database, acting: self.acting.afresh(), direct, ..self.clone() }
    }

    /// The same server, another login role; the password goes, since it was the other role's,
    /// unless one is given.
    #[must_use]
    pub fn with_user(&self, user: impl Into<String>, password: Option<Password>) -> Self {
        Self { user: user.into(), password, role: None, acting: Acting::default(), direct: None, ..self.clone() }
    }

    /// The same server, with login roles of our own, whose names and passwords follow from
    /// `secret`. The bootstrap creates them; from then on SQL of the project runs in their sessions
    /// and not in those of the login role, if the server admits them. The embedded cluster needs
    /// none.
    #[must_use]
    pub fn with_login_secret(&self, secret: &[u8]) -> Self {
        let acting = Acting::with_secret(secret);
        if let Some(pooling) = self.acting.known_pooling() {
            acting.set_pooling(pooling);
        }
        let direct = self.direct.as_ref().map(|direct| Box::new(direct.with_login_secret(secret)));
        Self { acting, direct, ..self.clone() }
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

    /// Returns whether an endpoint past the connection pooler was given.
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
        let admitted = self.acting.is_admitted(part).then(|| self.with_own_login(part));
        admitted.flatten().unwrap_or_else(|| self.clone())
    }

    /// Returns the endpoint of our own login for a part, whether or not the server admits it. A
    /// login role that has the part itself needs no other.
    pub(crate) fn with_own_login(&self, part: &str) -> Option<Self> {
        let (user, password) = self.acting.logins()?.of(part)?;
        let role = self.role_for(part);
        (role != self.user).then(|| Self { user, password: Some(password), role: Some(role), ..self.clone() })
    }

    /// Returns the role that plays a part on this server, as far as that is known.
    pub(crate) fn role_for(&self, part: &str) -> String {
        self.acting.names().map_or_else(|| part.to_owned(), |names| names.of(part).to_owned())
    }

    /// The role that sessions act as from their beginning.
    pub(crate) fn role(&self) -> &str {
        self.role.as_deref().unwrap_or(&self.user)
    }

    /// Returns whether connections lead to a connection pooler, as far as that is known.
    pub(crate) fn is_pooled(&self) -> bool {
        self.acting.known_pooling().is_some_and(|pooling| pooling != Pooling::None)
    }

    /// Returns whether a connection can receive notifications (`listen`), as far as that is known.
    pub(crate) fn receives_notifications(&self) -> bool {
        self.direct().acting.known_pooling() != Some(Pooling::Transaction)
    }

    /// Returns the properties of the server that were detected.
    pub(crate) fn acting(&self) -> &Acting {
        &self.acting
    }

    /// The same, under a name that `pg_stat_activity` shows.
    #[must_use]
    pub fn with_application_name(&self, name: impl Into<String>) -> Self {
        Self { application_name: Some(name.into()), ..self.clone() }
    }

    /// The way to the server.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, also part of a socket's file name.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The login role.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The login role's password.
    pub fn password(&self) -> Option<&Password> {
        self.password.as_ref()
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Returns the protection of the connection.
    pub fn tls(&self) -> &TlsSettings {
        &self.tls
    }

    /// Returns whether the server lets the system user of this process be any role without a
    /// password: the socket of our own cluster.
    pub fn trusts_any_role(&self) -> bool {
        self.trusts_any_role
    }

    /// Returns the time to wait for a server that does not accept connections yet or just now.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    /// The `options` of the session's start.
    pub(crate) fn options(&self) -> Option<&str> {
        self.options.as_deref()
    }

    /// The `options` of the session's start, with the role that `reset role` is to return to.
    fn options_with_role(&self) -> Option<Cow<'_, str>> {
        match (&self.role, self.options.as_deref()) {
            (None, given) => given.map(Cow::Borrowed),
            (Some(role), given) => Some(Cow::Owned(format!("{} -c role={role}", given.unwrap_or_default()))),
        }
    }

    /// The name that `pg_stat_activity` shows.
    pub(crate) fn application_name(&self) -> Option<&str> {
        self.application_name.as_deref()
    }

    /// A URL of the same server for `role` and `database`, without a password.
    pub fn url_for(&self, role: &str, database: &str) -> String {
        let escaped = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        let host = match &self.host {
            Host::Socket(folder) => escaped(&folder.to_string_lossy()),
            Host::Tcp(host) if host.contains(':') => format!("[{host}]"),
            Host::Tcp(host) => escaped(host),
        };
        let mut url = format!("postgresql://{}@{host}:{}/{}", escaped(role), self.port, escaped(database));
        if let Host::Tcp(_) = self.host
            && self.tls.mode != TlsMode::default()
        {
            url.push_str("?sslmode=");
            url.push_str(self.tls.mode.as_str());
        }
        url
    }

    /// Returns the address of the server, for messages: no user, no secret.
    pub fn place(&self) -> String {
        match &self.host {
            Host::Socket(folder) => format!("{}", folder.join(format!(".s.PGSQL.{}", self.port)).display()),
            Host::Tcp(host) => format!("{host}:{}", self.port),
        }
    }

    /// Returns the driver's configuration for this endpoint.
    pub(crate) fn to_config(&self) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.user(&self.user).dbname(&self.database).port(self.port).connect_timeout(self.connect_timeout);
        match &self.host {
            Host::Socket(folder) => config.host_path(folder),
            Host::Tcp(host) => config.host(host),
        };
        if let Some(Password(password)) = &self.password {
            config.password(password);
        }
        if let Some(options) = self.options_with_role() {
            config.options(&*options);
        }
        config.application_name(self.application_name.as_deref().unwrap_or("portico"));
        config.ssl_mode(match self.tls.mode {
            TlsMode::Disable => tokio_postgres::config::SslMode::Disable,
            TlsMode::Prefer => tokio_postgres::config::SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => tokio_postgres::config::SslMode::Require,
        });
        if self.tls.require_channel_binding {
            config.channel_binding(tokio_postgres::config::ChannelBinding::Require);
        }
        // A peer that disappeared without closing the connection is noticed after a minute, not
        // after hours.
        config
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(60));
        config
    }

    /// PostgreSQL's protocol ends its texts with a zero byte, so a zero byte inside one would cut
    /// it.
    fn refuse_zero_bytes(&self) -> Result<(), EndpointError> {
        let password = self.password.as_ref().map(Password::expose);
        let texts = [
            Some(&*self.user),
            Some(&*self.database),
            password,
            self.options.as_deref(),
            self.application_name.as_deref(),
        ];
        match texts.into_iter().flatten().any(|text| text.contains('\0')) {
            true => Err(invalid("text", "it contains a zero byte".into())),
            false => Ok(()),
        }
    }
}

impl TlsMode {
    /// Returns the value of `sslmode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

impl FromStr for TlsMode {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Ok(match text {
            "disable" => Self::Disable,
            // `allow` starts in the clear and encrypts when asked to; to encrypt when possible is
            // no weaker.
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            other => {
                let problem = format!("`{other}` is not disable, allow, prefer, require, verify-ca or verify-full");
                return Err(invalid("sslmode", problem));
            }
        })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text)
    }
}

impl From<&Path> for Host {
    fn from(folder: &Path) -> Self {
        Self::Socket(folder.to_owned())
    }
}

fn invalid(part: &'static str, problem: String) -> EndpointError {
    EndpointError::Invalid { part, problem }
}

fn decoded(part: &'static str, text: &str) -> Result<String, EndpointError> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| invalid(part, "it is not UTF-8".into()))?;
    Ok(text.into_owned())
}

/// Takes the path, which is the database's name, out of the URL.
fn without_database(text: &str) -> (String, &str) {
    let start = text.find("://").map_or(text.len(), |scheme| scheme + 3);
    let (before, rest) = text.split_at(start);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let (place, parameters) = rest.split_at(end);
    match place.split_once('/') {
        Some((authority, path)) => (format!("{before}{authority}/{parameters}"), path),
        None => (text.to_owned(), ""),
    }
}

/// Takes a socket folder out of the host's place: `postgresql://me@%2Frun%2Fpostgresql:5433/app`.
fn without_escaped_socket(text: &str) -> (String, Option<String>) {
    let split = || {
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (folder, port) = match host.rsplit_once(':') {
            Some((folder, port)) => (folder, format!(":{port}")),
            None => (host, String::new()),
        };
        if !folder.get(..3)?.eq_ignore_ascii_case("%2f") {
            return None;
        }
        let folder = percent_decode_str(folder).decode_utf8().ok()?.into_owned();
        Some((format!("{scheme}://{login}@localhost{port}{tail}"), folder))
    };
    match split() {
        Some((text, folder)) => (text, Some(folder)),
        None => (text.to_owned(), None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_does_harm(text: String) {
            let _ = Endpoint::parse(&text);
            let _ = Endpoint::parse(&format!("postgresql://{text}"));
        }

        #[test]
        fn what_is_escaped_comes_back(user in "[^\\x00]{1,20}", password in "[^\\x00]{1,20}", database in "[^\\x00]{1,20}") {
            let escaped = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
            let url = format!("postgres://{}:{}@db.example:6543/{}", escaped(&user), escaped(&password), escaped(&database));
            let endpoint = Endpoint::parse(&url).unwrap();
            prop_assert_eq!(endpoint.user(), &user);
            prop_assert_eq!(endpoint.password().map(Password::expose), Some(&*password));
            prop_assert_eq!(endpoint.database(), &database);
            prop_assert_eq!(endpoint.place(), "db.example:6543");
            let again = Endpoint::parse(&endpoint.url_for(&user, &database)).unwrap();
            prop_assert_eq!((again.user(), again.database(), again.password()), (&*user, &*database, None));
        }
    }

    #[test]
    fn defaults_are_postgresql_s() {
        let endpoint = Endpoint::parse("postgres://me@localhost").unwrap();
        assert_eq!((endpoint.port(), endpoint.database()), (5432, "me"));
        assert_eq!(endpoint.tls().mode, TlsMode::Prefer);
        assert!(!endpoint.trusts_any_role());
        let endpoint = Endpoint::parse("postgres://me@localhost/..?connect_timeout=3").unwrap();
        assert_eq!(endpoint.database(), "..");
        let endpoint = Endpoint::parse("postgresql://me@[::1]:1/d?sslmode=verify-full").unwrap();
        assert_eq!(endpoint.host(), &Host::Tcp("::1".into()));
        assert_eq!(endpoint.url_for("you", "d"), "postgresql://you@[::1]:1/d?sslmode=verify-full");
    }

    #[test]
    fn a_socket_is_named_in_the_hosts_place_or_as_a_parameter() {
        for url in [
            "postgresql://me@%2Frun%2Fpostgresql:5433/app",
            "postgresql:///app?host=/run/postgresql&port=5433&user=me",
            "postgresql://me@%2frun%2fpostgresql:5433/app?sslmode=verify-full",
        ] {
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!(endpoint.host(), &Host::Socket("/run/postgresql".into()), "{url}");
            assert_eq!((endpoint.port(), endpoint.user(), endpoint.database()), (5433, "me", "app"), "{url}");
            assert_eq!(endpoint.tls().mode, TlsMode::Disable, "{url}");
            assert_eq!(Endpoint::parse(&endpoint.url_for("me", "app")).unwrap().host(), endpoint.host(), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_secrets_are_not() {
        for (url, part) in [
            ("mysql://me:hidden@host/app", "mysql"),
            ("host=localhost user=me password=hidden", "not a PostgreSQL URL"),
            ("postgresql://me:hidden@host/app?sslmode=maybe", "`maybe`"),
            ("postgresql://me:hidden@host/app?ssl_mode=require", "`ssl_mode`"),
            ("postgresql://me:hidden@host/app?sslcert=a", "belong together"),
            ("postgresql://me:hidden@host:99999/app", "port"),
            ("postgresql://:hidden@host/app", "no user"),
            ("postgresql://me:hidden%00@host/app", "zero byte"),
            ("postgresql://me:hidden%ff@host/app", "password"),
        ] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
            assert!(!error.contains("hidden"), "{url}: {error}");
        }
        let endpoint = Endpoint::parse("postgresql://me:hidden@host/app").unwrap();
        assert!(!format!("{endpoint:?} {}", endpoint.url_for("me", "app")).contains("hidden"));
    }
}
