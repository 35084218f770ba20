//! Opens connections whose sessions act as a role.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portico_base::random;
use tokio::time::Instant;

use super::connection::WireConnection;
use super::function_traits::FunctionTraits;
use super::mode::SessionMode;
use super::origin::SessionOrigin;
use super::prepared_statements::PreparedStatements;
use super::statement_texts::StatementTexts;
use crate::endpoint::Endpoint;
use crate::error::{DatabaseError, explain_rejected_role};
use crate::quote;
use crate::temporary;
use crate::tls::Tls;
use crate::wire::protocol::authentication::{BackendKey, authenticate};
use crate::wire::protocol::batch::{Batch, Statement};
use crate::wire::protocol::connect;
use crate::wire::protocol::error::WireError;
use crate::wire::protocol::message_channel::MessageChannel;

/// The pause between two attempts, while a restarting server refuses connections.
const RETRY_PAUSE: Duration = Duration::from_millis(25);

/// Selects the settings that a login as the role would apply, those for every database before those
/// for this one.
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
    /// The endpoint with the login role, which is the role itself on a server that trusts it.
    endpoint: Endpoint,
    tls: Tls,
    role: String,
    /// The applicable settings that a login as the role would apply, as the last connection has
    /// found them.
    role_settings: Mutex<Arc<[(String, String)]>>,
    /// The maximum number of prepared statements of a connection.
    max_statements: usize,
    texts: Arc<StatementTexts>,
    /// Only statements of the program run, which leave nothing in the session.
    runs_fixed_statements: bool,
}

impl Connector {
    /// Returns a connector for a role. A connection keeps up to `max_statements` prepared
    /// statements.
    pub fn new(endpoint: &Endpoint, role: &str, max_statements: usize) -> Result<Self, DatabaseError> {
        let (endpoint, role) = (endpoint.for_part(role), endpoint.role_for(role));
        Ok(Self {
            tls: Tls::new(endpoint.tls(), endpoint.host())?,
            endpoint,
            role,
            role_settings: Mutex::new(Arc::from([])),
            max_statements,
            texts: Arc::new(StatementTexts::new(u64::from_ne_bytes(random::bytes()))),
            runs_fixed_statements: false,
        })
    }

    /// Returns a connector for sessions in which only statements of the program run. They begin
    /// with `settings`. `None` where the role itself cannot log in: the session of another login
    /// role would have more rights, for which it has to be guarded.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn for_fixed_statements(
        endpoint: &Endpoint,
        role: &str,
        settings: &[(&str, &str)],
    ) -> Result<Option<Self>, DatabaseError> {
        let connector = Self::new(endpoint, role, 1)?;
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let can_log_in = connector.endpoint.user() == connector.role;
        Ok(can_log_in.then(|| Self {
            role_settings: Mutex::new(settings.collect()),
            runs_fixed_statements: true,
            ..connector
        }))
    }

    /// Returns true if only statements of the program run in the sessions.
    pub fn runs_fixed_statements(&self) -> bool {
        self.runs_fixed_statements
    }

    /// Returns true if connections lead to a connection pooler.
    pub fn is_pooled(&self) -> bool {
        self.endpoint.is_pooled()
    }

    /// Returns the shared texts of prepared statements.
    pub fn texts(&self) -> &StatementTexts {
        &self.texts
    }

    /// Opens a connection. Retries up to the endpoint's connect timeout while the server is
    /// starting or restarting, or while the database is being recreated.
    ///
    /// `prepared`: the session stays ours between two batches, and starts with the settings of the
    /// role.
    pub async fn connect(&self, prepared: bool) -> Result<WireConnection, WireError> {
        let timeout = self.endpoint.connect_timeout();
        let deadline = Instant::now() + timeout;
        let attempts = async {
            loop {
                match self.attempt(prepared).await {
                    Err(error) if is_temporary(&error) && Instant::now() + RETRY_PAUSE < deadline => {
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    outcome => return outcome,
                }
            }
        };
        // A single attempt may hang, with a server that accepts and does not respond
        match tokio::time::timeout(timeout + Duration::from_secs(1), attempts).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(WireError::Lost(error))) => Err(self.unreachable(error.into())),
            Ok(Err(WireError::Postgres(error))) if WireError::Postgres(error.clone()).is_unavailable() => {
                Err(self.unreachable(error))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.unreachable(format!("no answer within {} seconds", timeout.as_secs()).into())),
        }
    }

    fn unreachable(&self, source: Box<dyn std::error::Error + Send + Sync>) -> WireError {
        WireError::Unreachable { server: self.endpoint.description(), source }
    }

    async fn attempt(&self, prepared: bool) -> Result<WireConnection, WireError> {
        if self.is_pooled() {
            return self.attempt_pooled().await;
        }
        let mut settings = self.role_settings();
        loop {
            let connection = self.open(if prepared { &settings } else { &[] }).await?;
            if self.endpoint.user() == self.role {
                return Ok(self.begin_session(connection, SessionOrigin::of_login_role(&self.role)));
            }
            let mut connection = connection;
            let (origin, found) = self.inspect_role(&mut connection, &settings).await?;
            if !prepared || *found == *settings {
                let assumed = connection.execute(&origin.assume_role).await;
                assumed.map_err(|error| self.explain_rejected_role(error))?;
                return Ok(self.begin_session(connection, origin));
            }
            // A session reset returns to the settings at the start of the session, so these have to
            // be among them
            connection.terminate();
            settings = found;
            *self.role_settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&settings);
        }
    }

    /// Opens a connection behind a pooler. Each of its transactions assumes the role and its
    /// settings.
    async fn attempt_pooled(&self) -> Result<WireConnection, WireError> {
        let mut connection = self.open(&[]).await?;
        if self.endpoint.user() == self.role {
            return Ok(self.begin_session(connection, SessionOrigin::of_login_role(&self.role)));
        }
        let (origin, settings) = self.inspect_role(&mut connection, &self.role_settings()).await?;
        let assume_role = origin.assume_role.replacen("set ", "set local ", 1);
        Ok(self.begin_session(connection, SessionOrigin { assume_role, settings, ..origin }))
    }

    fn role_settings(&self) -> Arc<[(String, String)]> {
        Arc::clone(&self.role_settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn begin_session(&self, mut connection: WireConnection, origin: SessionOrigin) -> WireConnection {
        connection.begin_session(origin);
        connection
    }

    /// Opens a session that starts with settings.
    async fn open(&self, settings: &[(String, String)]) -> Result<WireConnection, WireError> {
        let mut channel = MessageChannel::new(connect::open_stream(&self.endpoint, &self.tls).await?);
        let key = authenticate(&mut channel, &self.endpoint, settings).await?;
        let first_name = u64::from_ne_bytes(random::bytes());
        let statements = PreparedStatements::new(self.max_statements, self.texts.clone(), first_name);
        Ok(WireConnection::new(channel, key, statements))
    }

    /// Determines how to assume the role, and which settings a login as the role would apply.
    /// `initial` are the settings at the start of this session.
    async fn inspect_role(
        &self,
        connection: &mut WireConnection,
        initial: &Arc<[(String, String)]>,
    ) -> Result<(SessionOrigin, Arc<[(String, String)]>), WireError> {
        let mode = SessionMode {
            prepared: false,
            pooled: self.is_pooled(),
            runs_project_code: false,
            traits: FunctionTraits::UNKNOWN,
        };
        let role = Some(self.role.as_bytes());
        let is_superuser = "select rolsuper, session_user from pg_catalog.pg_roles where rolname = current_user";
        let params = [role];
        let batch = Batch::new()
            .statement(Statement::unnamed(is_superuser, &[]))
            .statement(Statement::unnamed(ROLE_SETTINGS, &params));
        let (results, _) = connection.run(&batch, mode).await?;
        let is_superuser = results.row(0).and_then(|row| row.text(0)) == Some("t");
        let login = results.row(0).and_then(|row| row.text(1)).unwrap_or_default().to_owned();
        let mut settings = Vec::new();
        for setting in results.rows(1) {
            if matches!(setting.bytes(0), Some(b"role" | b"session_authorization")) {
                continue;
            }
            let text = |column| setting.text(column).unwrap_or_default().to_owned();
            let found = (text(0), text(1));
            if initial.contains(&found) {
                settings.push(found);
                continue;
            }
            // A setting that is rejected here would prevent the session from being opened
            let params = [setting.bytes(0), setting.bytes(1)];
            let set = "select pg_catalog.set_config($1, $2, true)";
            match connection.run(&Batch::new().statement(Statement::unnamed(set, &params)), mode).await {
                // PostgreSQL ignores inapplicable settings at a login, and so does this
                Err(WireError::Postgres(error)) if !error.is_fatal() => {
                    tracing::debug!(error = %error, role = self.role, setting = setting.text(0), "a setting of the role does not apply");
                }
                outcome => {
                    outcome?;
                    settings.push(found);
                }
            }
        }
        let quoted = quote::identifier(&self.role);
        let origin = match is_superuser {
            true => SessionOrigin {
                role: "none".into(),
                session_user: self.role.clone(),
                assume_role: format!("set session authorization {quoted}"),
                ..SessionOrigin::default()
            },
            false => SessionOrigin {
                role: self.role.clone(),
                session_user: login,
                assume_role: format!("set role {quoted}"),
                ..SessionOrigin::default()
            },
        };
        Ok((origin, settings.into()))
    }

    /// Adds the remedy to the error of a login that may not act as the role.
    fn explain_rejected_role(&self, error: WireError) -> WireError {
        match error.sqlstate() {
            Some("42501" | "22023") => {
                WireError::Refused(explain_rejected_role(self.endpoint.user(), &self.role, &error))
            }
            _ => error,
        }
    }

    /// Sends a cancel request for a session, over a connection of its own.
    pub async fn cancel(&self, key: BackendKey) -> Result<(), WireError> {
        connect::cancel(&self.endpoint, &self.tls, key).await
    }
}

/// Returns true if a failure to connect is temporary for a pool, see [`temporary`].
fn is_temporary(error: &WireError) -> bool {
    match error {
        WireError::Postgres(error) => temporary::is_restart(&error.code) || temporary::is_recreation(&error.code),
        WireError::Lost(error) => temporary::is_lost_connection(error.kind()),
        _ => false,
    }
}
