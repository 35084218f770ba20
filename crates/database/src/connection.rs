//! One connection: opened, and driven in the background.

use std::error::Error as _;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, NoTls};

use crate::endpoint::Endpoint;
use crate::error::{DatabaseError, is_unavailable};
use crate::pooler::cleaning::END_IF_VALUES_ARE_KEPT;
use crate::pooler::emulation::SessionEmulation;
use crate::quote;
use crate::temporary;
use crate::tls::Tls;

/// A server that restarts refuses connections for a moment: wait this long between two attempts.
const PAUSE: Duration = Duration::from_millis(25);

/// Opens one connection of its own, outside any pool, as the endpoint's role; the connection closes
/// when the client is dropped. A server that is starting or restarting is waited for, up to the
/// endpoint's connect timeout.
///
/// # Errors
/// [`DatabaseError::Unreachable`] when nothing answers in time; [`DatabaseError::Postgres`] when
/// the server rejects the connection.
pub async fn connect(endpoint: &Endpoint) -> Result<Client, DatabaseError> {
    let tls = Tls::new(endpoint.tls(), endpoint.host())?;
    let preamble = format!("{END_IF_VALUES_ARE_KEPT}; {}", local_role(endpoint));
    Ok(open(endpoint, &endpoint.to_config(), &tls, &preamble).await?.0)
}

/// Returns the statement by which a transaction takes on the endpoint's role where the session does
/// not begin as it. Empty where the login role is the role.
pub(crate) fn local_role(endpoint: &Endpoint) -> String {
    match endpoint.role() == endpoint.user() {
        true => String::new(),
        false => format!("set local role {}", quote::identifier(endpoint.role())),
    }
}

/// The settings of an administrator's session, which take precedence over those that the owner of
/// the database can make: names resolve in PostgreSQL's catalog only, and literals have one
/// meaning.
const GUARD: &str = "-c search_path=pg_catalog,pg_temp -c standard_conforming_strings=on \
                     -c default_transaction_read_only=off -c transform_null_equals=off -c quote_all_identifiers=off";

/// Like [`GUARD`], but for one transaction.
const LOCAL_GUARD: &str = "set local search_path = pg_catalog, pg_temp; set local standard_conforming_strings = on; \
                           set local transform_null_equals = off; set local quote_all_identifiers = off";

/// Switches triggers and event triggers off in a superuser's session, since those of a project
/// would run with its rights. Other sessions may not do that, and need not.
const NO_TRIGGERS: &str = "select pg_catalog.set_config('session_replication_role', 'replica', false)
                             from pg_catalog.pg_roles where rolname = session_user and rolsuper";

/// Like [`connect`], but for statements of our own that may run with a superuser's rights:
/// independent of everything that a role of the project can set, create, own or rename, as long as
/// they name only the catalog and objects of the login role.
pub(crate) async fn connect_guarded(endpoint: &Endpoint) -> Result<Client, DatabaseError> {
    let tls = Tls::new(endpoint.tls(), endpoint.host())?;
    let mut config = endpoint.to_config();
    config.options(guarded_options(endpoint));
    let (client, _driver) = open(endpoint, &config, &tls, &guarded_preamble(endpoint)).await?;
    if !endpoint.is_pooled() {
        client.batch_execute(NO_TRIGGERS).await?;
    }
    Ok(client)
}

/// Returns the statements by which a transaction gets the settings of a guarded session.
pub(crate) fn guarded_preamble(endpoint: &Endpoint) -> String {
    let no_triggers = NO_TRIGGERS.replace("'replica', false", "'replica', true");
    format!("{LOCAL_GUARD}; {no_triggers}; {}", local_role(endpoint))
}

/// Returns the options of a guarded session. Ours come last, so that they take precedence.
pub(crate) fn guarded_options(endpoint: &Endpoint) -> String {
    let role = match endpoint.role() == endpoint.user() {
        true => "none",
        false => endpoint.role(),
    };
    let given = endpoint.options().unwrap_or_default();
    format!("{given} {GUARD} -c role={role}").trim_start().to_owned()
}

/// Like [`connect`], but with a configuration that may differ from the endpoint's in options; also
/// the task that drives it. Behind a pooler each transaction begins with the statements of
/// `preamble`, and the options are not sent.
pub(crate) async fn open(
    endpoint: &Endpoint,
    config: &Config,
    tls: &Tls,
    preamble: &str,
) -> Result<(Client, JoinHandle<()>), DatabaseError> {
    let patience = endpoint.connect_timeout();
    let start = SessionStart { endpoint, config, tls, preamble };
    // One attempt may hang by itself, in a server that accepts and says nothing.
    match tokio::time::timeout(patience + Duration::from_secs(1), dial_patiently(&start, patience, is_temporary)).await
    {
        Ok(Ok(connected)) => Ok(connected),
        Ok(Err(error)) => Err(rejection(endpoint, error)),
        Err(_) => {
            let source = format!("no answer within {} seconds", patience.as_secs()).into();
            Err(DatabaseError::Unreachable { server: endpoint.description(), source })
        }
    }
}

/// Returns the error of a connection: a server that is not available, or one that rejects it.
pub(crate) fn rejection(endpoint: &Endpoint, error: tokio_postgres::Error) -> DatabaseError {
    if error.code().is_none() || is_unavailable(&error) {
        DatabaseError::Unreachable { server: endpoint.description(), source: error.into() }
    } else {
        DatabaseError::Postgres(error)
    }
}

/// The beginning of a session.
pub(crate) struct SessionStart<'a> {
    pub endpoint: &'a Endpoint,
    /// The driver's settings; they apply where the connection leads to the server itself.
    pub config: &'a Config,
    pub tls: &'a Tls,
    /// The statements that each transaction begins with behind a pooler.
    pub preamble: &'a str,
}

/// Calls [`dial`] again while the failure is temporary, until `patience` is used up.
pub(crate) async fn dial_patiently(
    start: &SessionStart<'_>,
    patience: Duration,
    is_temporary: fn(&tokio_postgres::Error) -> bool,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let deadline = Instant::now() + patience;
    loop {
        match dial(start).await {
            Err(error) if is_temporary(&error) && Instant::now() + PAUSE < deadline => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Opens a connection and spawns the task that drives it.
async fn dial(start: &SessionStart<'_>) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let SessionStart { endpoint, config, tls, preamble } = *start;
    if endpoint.is_pooled() {
        let stream = SessionEmulation::start(endpoint.clone(), tls.clone(), preamble.to_owned());
        let mut config = Config::new();
        config.user(endpoint.user()).ssl_mode(SslMode::Disable);
        let (client, connection) = config.connect_raw(stream, NoTls).await?;
        return Ok((client, drive(connection)));
    }
    let (client, connection) = config.connect(tls.clone()).await?;
    Ok((client, drive(connection)))
}

fn drive<S, T>(connection: Connection<S, T>) -> JoinHandle<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %error, "a database connection ended");
        }
    })
}

/// Returns true if a failure to connect is temporary, see [`temporary`]. A missing database is not.
pub(crate) fn is_temporary(error: &tokio_postgres::Error) -> bool {
    if let Some(code) = error.code() {
        return temporary::is_restart(code.code());
    }
    let kind = error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    error.is_closed() || kind.is_some_and(temporary::is_lost_connection)
}
