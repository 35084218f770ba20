//! Connection URLs, as PostgreSQL's own clients read and write them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use super::Endpoint;
use super::error::{EndpointError, invalid};
use super::settings::{Host, Password, TlsMode, TlsSettings};
use crate::acting::detected::DetectedServer;
use crate::pooler::pooling::Pooling;

/// The characters that a part of a URL may contain unescaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Parameters of other programs that use the same URL. They change nothing about the connection.
const IGNORED: &[&str] = &["connection_limit", "pool_timeout", "schema", "supa", "workaround"];
impl Endpoint {
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
            password: url.password().map(|text| decoded("password", text).map(Password::new)).transpose()?,
            database: decoded("database", database)?,
            tls: TlsSettings::default(),
            options: None,
            application_name: None,
            connect_timeout: Duration::from_secs(10),
            trusts_any_role: false,
            role: None,
            detected: DetectedServer::default(),
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
                "password" => endpoint.password = Some(Password::new(value)),
                "dbname" => endpoint.database = value.into_owned(),
                "application_name" => endpoint.application_name = Some(value.into_owned()),
                "options" => endpoint.options = Some(value.into_owned()),
                "connect_timeout" => {
                    let seconds: u64 = value
                        .parse()
                        .map_err(|_| invalid("connect_timeout", format!("`{value}` is not a number of seconds")))?;
                    endpoint.connect_timeout = Duration::from_secs(seconds.clamp(2, 300));
                }
                "pgbouncer" if value == "true" => endpoint.detected.set_pooling(Pooling::Transaction),
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

    /// Checks that no text has a zero byte: PostgreSQL's protocol ends its texts with one, so it
    /// would cut them.
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

    /// Returns a URL of the same server for `role` and `database`, without a password.
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
    pub fn description(&self) -> String {
        match &self.host {
            Host::Socket(folder) => format!("{}", folder.join(format!(".s.PGSQL.{}", self.port)).display()),
            Host::Tcp(host) => format!("{host}:{}", self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Self::parse(text)
    }
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
    let (address, parameters) = rest.split_at(end);
    match address.split_once('/') {
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
        fn escaped_parts_are_read_unchanged(user in "[^\\x00]{1,20}", password in "[^\\x00]{1,20}", database in "[^\\x00]{1,20}") {
            let escaped = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
            let url = format!("postgres://{}:{}@db.example:6543/{}", escaped(&user), escaped(&password), escaped(&database));
            let endpoint = Endpoint::parse(&url).unwrap();
            prop_assert_eq!(endpoint.user(), &user);
            prop_assert_eq!(endpoint.password().map(Password::expose), Some(&*password));
            prop_assert_eq!(endpoint.database(), &database);
            prop_assert_eq!(endpoint.description(), "db.example:6543");
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
    fn an_error_names_the_wrong_part_and_no_secret() {
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
