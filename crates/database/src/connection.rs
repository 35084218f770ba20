//! One connection: opened, and driven in the background.

use std::error::Error as _;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

use crate::endpoint::Endpoint;
use crate::error::{DatabaseError, is_unavailable};
use crate::tls::Tls;

/// A server that restarts refuses connections for a moment: wait this long between two attempts.
const PAUSE: Duration = Duration::from_millis(25);

/// Opens one connection of its own, outside any pool, as the endpoint's role; the connection closes when the client is
/// dropped. A server that is starting or restarting is waited for, up to the endpoint's connect timeout.
///
/// # Errors
/// [`DatabaseError::Unreachable`] when nothing answers in time; [`DatabaseError::Postgres`] when the server refuses us.
pub async fn connect(endpoint: &Endpoint) -> Result<Client, DatabaseError> {
    let tls = Tls::new(endpoint.tls(), endpoint.host())?;
    Ok(open(endpoint, &endpoint.to_config(), &tls).await?.0)
}

/// The settings of an administrator's session, which take precedence over those that the owner of the
/// database can make: names resolve in PostgreSQL's catalog only, and literals have one meaning.
const GUARD: &str = "-c search_path=pg_catalog,pg_temp -c standard_conforming_strings=on \
                     -c default_transaction_read_only=off -c transform_null_equals=off -c quote_all_identifiers=off";

/// Switches triggers and event triggers off in a superuser's session, since those of a project would run
/// with its rights. Other sessions may not do that, and need not.
const NO_TRIGGERS: &str = "select pg_catalog.set_config('session_replication_role', 'replica', false)
                             from pg_catalog.pg_roles where rolname = session_user and rolsuper";

/// As [`connect`], for statements of our own that may run with a superuser's rights: independent of
/// everything that a role of the project can set, create, own or rename, as long as they name only the
/// catalog and objects of the login role.
pub(crate) async fn connect_guarded(endpoint: &Endpoint) -> Result<Client, DatabaseError> {
    let tls = Tls::new(endpoint.tls(), endpoint.host())?;
    let mut config = endpoint.to_config();
    config.options(guarded_options(endpoint));
    let (client, _driver) = open(endpoint, &config, &tls).await?;
    client.batch_execute(NO_TRIGGERS).await?;
    Ok(client)
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

/// As [`connect`], with a configuration that may differ from the endpoint's in options; also the task that drives it.
pub(crate) async fn open(
    endpoint: &Endpoint,
    config: &Config,
    tls: &Tls,
) -> Result<(Client, JoinHandle<()>), DatabaseError> {
    let patience = endpoint.connect_timeout();
    // One attempt may hang by itself, in a server that accepts and says nothing.
    match tokio::time::timeout(patience + Duration::from_secs(1), dial_patiently(config, tls, patience, is_passing))
        .await
    {
        Ok(Ok(connected)) => Ok(connected),
        Ok(Err(error)) => Err(refusal(endpoint, error)),
        Err(_) => {
            let source = format!("no answer within {} seconds", patience.as_secs()).into();
            Err(DatabaseError::Unreachable { place: endpoint.place(), source })
        }
    }
}

/// Tells a server that is not there from one that does not want us.
pub(crate) fn refusal(endpoint: &Endpoint, error: tokio_postgres::Error) -> DatabaseError {
    if error.code().is_none() || is_unavailable(&error) {
        DatabaseError::Unreachable { place: endpoint.place(), source: error.into() }
    } else {
        DatabaseError::Postgres(error)
    }
}

/// As [`dial`], again and again while the failure is a `passing` one, until `patience` is used up.
pub(crate) async fn dial_patiently(
    config: &Config,
    tls: &Tls,
    patience: Duration,
    passing: fn(&tokio_postgres::Error) -> bool,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let deadline = Instant::now() + patience;
    loop {
        match dial(config, tls).await {
            Err(error) if passing(&error) && Instant::now() + PAUSE < deadline => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}

/// Opens a connection and spawns the task that drives it.
async fn dial(config: &Config, tls: &Tls) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let (client, connection) = config.connect(tls.clone()).await?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a database connection ended");
        }
    });
    Ok((client, driver))
}

/// Refused, reset or told to come back: over in a moment when the server is restarting. A name that does not resolve or a
/// certificate that does not fit does not mend by waiting.
pub(crate) fn is_passing(error: &tokio_postgres::Error) -> bool {
    if let Some(code) = error.code() {
        return [SqlState::CANNOT_CONNECT_NOW, SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN].contains(code);
    }
    let kind = error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    let passing = [
        ErrorKind::BrokenPipe,
        ErrorKind::ConnectionAborted,
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::NotFound,
        ErrorKind::UnexpectedEof,
    ];
    error.is_closed() || kind.is_some_and(|kind| passing.contains(&kind))
}
