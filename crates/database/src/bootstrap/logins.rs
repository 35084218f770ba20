//! Login roles of our own on an external server, in whose sessions SQL of the project runs.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::limitation::Limitation;
use super::step::step;
use crate::acting::logins::Logins;
use crate::acting::names::{API, AUTH, Names};
use crate::connection;
use crate::endpoint::{Endpoint, Host};
use crate::error::DatabaseError;
use crate::quote;

/// A part for which the server does not admit our login, and its reason.
pub(super) struct RejectedLogin {
    part: &'static str,
    error: DatabaseError,
}

/// Tries every login and notes which ones the server admits. Returns the rejections.
///
/// # Errors
/// When the server cannot be reached.
pub(super) async fn probe(endpoint: &Endpoint) -> Result<Vec<RejectedLogin>, DatabaseError> {
    let (mut admitted, mut rejections) = (Vec::new(), Vec::new());
    for (part, _) in Logins::PARTS {
        let Some(login) = endpoint.with_own_login(part) else { continue };
        match try_login(&login).await {
            Ok(()) => admitted.push(part),
            // A pooler has such an error for logins that it does not know
            Err(error) if endpoint.is_pooled() && error.sqlstate().is_some_and(is_rejection) => {
                rejections.push(RejectedLogin { part, error });
            }
            // A server without a free connection says nothing about the login
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => rejections.push(RejectedLogin { part, error }),
        }
    }
    endpoint.detected().set_admitted(admitted);
    Ok(rejections)
}

/// Runs a statement, since a pooler may admit a client before it logs in to the server.
async fn try_login(login: &Endpoint) -> Result<(), DatabaseError> {
    let client = connection::connect(login).await?;
    Ok(client.batch_execute("select 1").await?)
}

/// Returns true if a pooler refuses a login with this code: PgBouncer reports unknown users as a
/// violation of the protocol.
fn is_rejection(code: &SqlState) -> bool {
    [SqlState::PROTOCOL_VIOLATION, SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION]
        .contains(code)
}

/// Creates the login roles in the caller's transaction, with the rights to connect and to act in
/// their parts. An earlier password is replaced. `is_pooled`: they are used through a connection
/// pooler.
pub(super) async fn create(
    client: &Client,
    endpoint: &Endpoint,
    names: &Names,
    is_pooled: bool,
) -> Result<(), DatabaseError> {
    let Some(logins) = endpoint.detected().logins() else { return Ok(()) };
    for (part, _) in Logins::PARTS {
        let Some((login, password)) = logins.of(part) else { continue };
        if names.of(part) == endpoint.user() {
            continue;
        }
        let verifier = postgres_protocol::password::scram_sha_256(password.expose().as_bytes());
        let (name, role) = (quote::literal(&login), quote::literal(names.of(part)));
        let text = format!(
            "select pg_temp.ensure_role({name}, 'login noinherit', '', '{{}}');
             select pg_temp.attempt({what}, {password}, '');
             -- An owner that is a superuser, as an earlier version left it, stays out of reach of a
             -- login of its own
             select pg_temp.ensure_member({name}, {role}, 'inherit false, set true')
               from pg_roles where rolname = {role} and not rolsuper;
             -- The role that drops the database has to end these sessions
             select pg_temp.ensure_member(session_user, {name}, 'inherit true, set true') where not pg_temp.is_superuser();
             select pg_temp.attempt({what}, {connect}, '');
             select pg_temp.attempt({what}, {acts}, '') where {is_pooled}",
            what = quote::literal(&format!("login {login}")),
            password = quote::literal(&format!("alter role {login} login password {}", quote::literal(&verifier))),
            // Where sessions do not begin with our settings, `reset role` returns to what the
            // server knows of the login
            acts = quote::literal(&format!("alter role {login} set role = {}", quote::identifier(names.of(part)))),
            connect = quote::literal(&format!(
                "grant connect, temporary on database {} to {login}",
                quote::identifier(endpoint.database())
            )),
        );
        client.batch_execute(&text).await.map_err(step("login roles"))?;
    }
    Ok(())
}

/// Returns what an operator should know when the server refuses logins.
pub(super) fn limitation(endpoint: &Endpoint, rejections: &[RejectedLogin]) -> Option<Limitation> {
    let (first, logins) = (rejections.first()?, endpoint.detected().logins()?);
    let joined = |texts: Vec<String>, between: &str| texts.join(between);
    let roles = rejections.iter().filter_map(|rejection| logins.of(rejection.part)).map(|(login, _)| login).collect();
    let (database, roles) = (quote::identifier(endpoint.database()), joined(roles, ","));
    let rule = match endpoint.host() {
        Host::Socket(_) => format!("local {database} {roles} scram-sha-256"),
        Host::Tcp(_) => format!("host {database} {roles} samenet scram-sha-256"),
    };
    let sessions = rejections.iter().map(|rejection| match rejection.part {
        API => "requests of the data API".to_owned(),
        AUTH => "the account service".to_owned(),
        _ => "migrations".to_owned(),
    });
    let remedy = match first.error.sqlstate() {
        Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => format!(
            "-- in pg_hba.conf, above the other lines (`samenet`: or the address of this machine):\n--   {rule}\n\
             select pg_reload_conf();"
        ),
        _ if endpoint.is_pooled() => {
            format!(
                "-- let the connection pooler admit the logins {roles} with their passwords (PgBouncer: `auth_query`)"
            )
        }
        _ => String::new(),
    };
    Some(Limitation {
        what: "sessions without the login's rights".into(),
        why: first.error.to_string(),
        effect: format!(
            "{} run in sessions of the login role {}, and the project's SQL can return to its rights with `reset role`",
            joined(sessions.collect(), ", "),
            quote::identifier(endpoint.user())
        ),
        remedy,
    })
}
