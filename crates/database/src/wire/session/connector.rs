//! A new connection, up to where it acts as the role.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::connection::{SessionMode, WireConnection};
use super::prepared_statements::{PreparedStatements, StatementTexts};
use super::reset::{FunctionTraits, SessionOrigin};
use crate::endpoint::{Endpoint, Host, TlsMode};
use crate::error::DatabaseError;
use crate::tls::Tls;
use crate::wire::pool::WirePoolSettings;
use crate::wire::protocol::authentication::{BackendKey, authenticate};
use crate::wire::protocol::batch::{Batch, Statement};
use crate::wire::protocol::error::{PostgresError, WireError};
use crate::wire::protocol::message_channel::MessageChannel;
use crate::wire::protocol::server_stream::ServerStream;

/// A server that restarts refuses connections for a moment: wait this long between two attempts.
const PAUSE: Duration = Duration::from_millis(25);

/// The settings that come with a login as the role, those for every database before those for this one.
const ROLE_SETTINGS: &str = "
    select pg_catalog.split_part(entry, '=', 1), pg_catalog.substr(entry, pg_catalog.strpos(entry, '=') + 1)
      from pg_catalog.pg_db_role_setting as setting
           join pg_catalog.pg_roles as role on role.oid = setting.setrole
           cross join lateral pg_catalog.unnest(setting.setconfig) as entry
     where role.rolname = $1::text
       and setting.setdatabase in (0, (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()))
     order by setting.setdatabase";

/// Opens connections that act as one role.
#[derive(Debug)]
pub(crate) struct Connector {
    /// With the login role: the role itself where the server trusts us.
    endpoint: Endpoint,
    tls: Tls,
    role: String,
    /// The settings that a login as the role would have brought, as far as they apply, since a connection found
    /// them.
    role_settings: Mutex<Arc<[(String, String)]>>,
    /// How many statements a connection keeps, and their texts.
    statements: usize,
    texts: Arc<StatementTexts>,
}

impl Connector {
    pub fn new(endpoint: &Endpoint, role: &str, settings: &WirePoolSettings) -> Result<Self, DatabaseError> {
        let (endpoint, role) = (endpoint.for_part(role), endpoint.role_for(role));
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| DatabaseError::Refused(format!("no randomness: {error}")))?;
        Ok(Self {
            tls: Tls::new(endpoint.tls(), endpoint.host())?,
            endpoint,
            role,
            role_settings: Mutex::new(Arc::from([])),
            statements: settings.statements_per_connection,
            texts: Arc::new(StatementTexts::new(u64::from_ne_bytes(seed))),
        })
    }

    /// The texts of statements that connections know.
    pub fn texts(&self) -> &StatementTexts {
        &self.texts
    }

    /// Opens a connection. A server that is starting or restarting, and a database that is being made anew, are waited for, up
    /// to the endpoint's connect timeout.
    ///
    /// `keeps`: the session stays ours between two batches, and begins with the role's settings.
    pub async fn dial(&self, keeps: bool) -> Result<WireConnection, WireError> {
        let patience = self.endpoint.connect_timeout();
        let deadline = Instant::now() + patience;
        let attempts = async {
            loop {
                match self.attempt(keeps).await {
                    Err(error) if is_passing(&error) && Instant::now() + PAUSE < deadline => {
                        tokio::time::sleep(PAUSE).await;
                    }
                    outcome => return outcome,
                }
            }
        };
        // One attempt may hang by itself, in a server that accepts and says nothing.
        match tokio::time::timeout(patience + Duration::from_secs(1), attempts).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(WireError::Lost(error))) => Err(self.unreachable(error.into())),
            Ok(Err(WireError::Postgres(error))) if WireError::Postgres(error.clone()).is_unavailable() => {
                Err(self.unreachable(error))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.unreachable(format!("no answer within {} seconds", patience.as_secs()).into())),
        }
    }

    fn unreachable(&self, source: Box<dyn std::error::Error + Send + Sync>) -> WireError {
        WireError::Unreachable { place: self.endpoint.place(), source }
    }

    async fn attempt(&self, keeps: bool) -> Result<WireConnection, WireError> {
        let mut settings = self.role_settings();
        loop {
            let connection = self.open(if keeps { &settings } else { &[] }).await?;
            if self.endpoint.user() == self.role {
                return Ok(self.begin_session(connection, SessionOrigin::of_login_role(&self.role)));
            }
            let mut connection = connection;
            let (origin, found) = self.inspect_role(&mut connection, &settings).await?;
            if !keeps || *found == *settings {
                let taken = connection.execute(&origin.take_role).await;
                taken.map_err(|error| self.explain_refused_role(error))?;
                return Ok(self.begin_session(connection, origin));
            }
            // A session goes back to the settings that it is opened with, so it has to be opened with these
            connection.terminate();
            settings = found;
            *self.role_settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&settings);
        }
    }

    fn role_settings(&self) -> Arc<[(String, String)]> {
        Arc::clone(&self.role_settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin_session(&self, mut connection: WireConnection, origin: SessionOrigin) -> WireConnection {
        connection.begin_session(origin);
        connection
    }

    /// Opens a session with settings.
    async fn open(&self, settings: &[(String, String)]) -> Result<WireConnection, WireError> {
        let mut channel = MessageChannel::new(self.open_stream().await?);
        let key = authenticate(&mut channel, &self.endpoint, settings).await?;
        let mut first_name = [0; 8];
        getrandom::fill(&mut first_name)
            .map_err(|error| WireError::Refused(format!("no randomness for a connection to the database: {error}")))?;
        let statements = PreparedStatements::new(self.statements, self.texts.clone(), u64::from_ne_bytes(first_name));
        Ok(WireConnection::new(channel, key, statements))
    }

    /// Connects, with TLS as the endpoint wants it.
    async fn open_stream(&self) -> Result<ServerStream, WireError> {
        let stream = ServerStream::connect(&self.endpoint).await.map_err(WireError::Lost)?;
        let (mut stream, host) = match (stream, self.endpoint.host()) {
            (ServerStream::Tcp(stream), Host::Tcp(host)) => (stream, host),
            (stream, _) => return Ok(stream),
        };
        let mode = self.endpoint.tls().mode;
        if mode == TlsMode::Disable {
            return Ok(ServerStream::Tcp(stream));
        }
        let mut request = bytes::BytesMut::new();
        frontend::ssl_request(&mut request);
        stream.write_all(&request).await.map_err(WireError::Lost)?;
        // Exactly one byte: whatever someone put behind it, unencrypted, must not count as said under encryption.
        match stream.read_u8().await.map_err(WireError::Lost)? {
            b'S' => {}
            b'N' if mode == TlsMode::Prefer => return Ok(ServerStream::Tcp(stream)),
            b'N' => {
                let text =
                    format!("the database at {} does not speak TLS, and sslmode demands it", self.endpoint.place());
                return Err(WireError::Refused(text));
            }
            _ => return Err(WireError::Protocol("an answer to the request for TLS that is none")),
        }
        let refused = |error: &dyn std::fmt::Display| {
            WireError::Refused(format!("TLS with the database at {} failed: {error}", self.endpoint.place()))
        };
        let mut tls = self.tls.clone();
        let connector =
            MakeTlsConnect::<TcpStream>::make_tls_connect(&mut tls, host).map_err(|error| refused(&error))?;
        match connector.connect(stream).await {
            Ok(stream) => Ok(ServerStream::Tls(stream)),
            Err(error) if error.kind() == ErrorKind::InvalidData || error.kind() == ErrorKind::Other => {
                Err(refused(&error))
            }
            Err(error) => Err(WireError::Lost(error)),
        }
    }

    /// Finds out how to act as the role, and which settings a login as the role would have brought, beyond those
    /// that the session was `opened` with.
    async fn inspect_role(
        &self,
        connection: &mut WireConnection,
        opened: &Arc<[(String, String)]>,
    ) -> Result<(SessionOrigin, Arc<[(String, String)]>), WireError> {
        let way = SessionMode { prepared: false, traits: FunctionTraits::UNKNOWN };
        let role = Some(self.role.as_bytes());
        let is_superuser = "select rolsuper, session_user from pg_catalog.pg_roles where rolname = current_user";
        let params = [role];
        let batch = Batch::new()
            .statement(Statement::unnamed(is_superuser, &[]))
            .statement(Statement::unnamed(ROLE_SETTINGS, &params));
        let (answers, _) = connection.run(&batch, way).await?;
        let is_superuser = answers.row(0).and_then(|row| row.text(0)) == Some("t");
        let login = answers.row(0).and_then(|row| row.text(1)).unwrap_or_default().to_owned();
        let mut settings = Vec::new();
        for setting in answers.rows(1) {
            if matches!(setting.bytes(0), Some(b"role" | b"session_authorization")) {
                continue;
            }
            let text = |column| setting.text(column).unwrap_or_default().to_owned();
            let found = (text(0), text(1));
            if opened.contains(&found) {
                settings.push(found);
                continue;
            }
            // Refused here, it would keep the session from being opened
            let params = [setting.bytes(0), setting.bytes(1)];
            let set = "select pg_catalog.set_config($1, $2, true)";
            match connection.run(&Batch::new().statement(Statement::unnamed(set, &params)), way).await {
                // At a login PostgreSQL passes over what does not apply, and so do we.
                Err(WireError::Postgres(error)) if !error.is_fatal() => {
                    tracing::debug!(%error, role = self.role, setting = setting.text(0), "a role's setting does not apply");
                }
                outcome => {
                    outcome?;
                    settings.push(found);
                }
            }
        }
        let quoted = format!("\"{}\"", self.role.replace('"', "\"\""));
        let origin = match is_superuser {
            true => SessionOrigin {
                role: "none".into(),
                session_user: self.role.clone(),
                take_role: format!("set session authorization {quoted}"),
            },
            false => {
                SessionOrigin { role: self.role.clone(), session_user: login, take_role: format!("set role {quoted}") }
            }
        };
        Ok((origin, settings.into()))
    }

    /// A login that may not act as the role is a mistake of the set-up, and has a remedy.
    fn explain_refused_role(&self, error: WireError) -> WireError {
        match error.sqlstate() {
            Some("42501" | "22023") => WireError::Refused(format!(
                "the login role `{0}` of the database may not act as `{1}` ({error}): as a superuser, run `grant {1} to \"{0}\"`",
                self.endpoint.user(),
                self.role
            )),
            _ => error,
        }
    }

    /// Has the server end what the session is doing, over a connection of its own.
    pub async fn cancel(&self, key: BackendKey) -> Result<(), WireError> {
        let mut stream = self.open_stream().await?;
        let mut request = bytes::BytesMut::new();
        frontend::cancel_request(key.process, key.secret, &mut request);
        stream.write_all(&request).await.map_err(WireError::Lost)?;
        stream.flush().await.map_err(WireError::Lost)?;
        // The server hangs up when it has passed the request on.
        let _ = stream.read_u8().await;
        Ok(())
    }
}

/// Refused, reset or told to come back: over in a moment when the server is restarting. A name that does not resolve or a
/// certificate that does not fit does not mend by waiting.
fn is_passing(error: &WireError) -> bool {
    match error {
        WireError::Postgres(error) => is_passing_answer(error),
        WireError::Lost(error) => is_passing_failure(error),
        _ => false,
    }
}

/// Starting, shutting down, or (the last) a database that is just being made anew.
fn is_passing_answer(error: &PostgresError) -> bool {
    ["57P03", "57P01", "57P02", "3D000"].contains(&&*error.code)
}

fn is_passing_failure(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::NotFound
            | ErrorKind::UnexpectedEof
    )
}
