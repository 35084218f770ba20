//! Login roles of our own on an external server, in whose sessions SQL of the project runs.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::limitation::Limitation;
use super::{quote_identifier, quote_literal, step};
use crate::acting::{Logins, Names};
use crate::connection;
use crate::endpoint::{Endpoint, Host};
use crate::error::DatabaseError;

/// Tries every login and notes which ones the server admits. Returns the reason of the first refusal.
///
/// # Errors
/// When the server cannot be reached.
pub(super) async fn probe(endpoint: &Endpoint) -> Result<Option<DatabaseError>, DatabaseError> {
    let acting = endpoint.acting();
    if acting.logins().is_none() {
        return Ok(None);
    }
    // `for_part` knows the login only of an admitted part
    acting.set_admitted(Logins::PARTS.map(|(part, _)| part).to_vec());
    let mut admitted = Vec::new();
    let mut refusal = None;
    for (part, _) in Logins::PARTS {
        match connection::connect(&endpoint.for_part(part)).await {
            Ok(_) => admitted.push(part),
            Err(error) if error.is_unavailable() && error.sqlstate().is_none() => {
                acting.set_admitted(Vec::new());
                return Err(error);
            }
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    acting.set_admitted(admitted);
    Ok(refusal)
}

/// Creates the login roles in the caller's transaction, with the rights to connect and to act in their parts. An
/// earlier password is replaced.
pub(super) async fn create(client: &Client, endpoint: &Endpoint, names: &Names) -> Result<(), DatabaseError> {
    let Some(logins) = endpoint.acting().logins() else { return Ok(()) };
    for (part, _) in Logins::PARTS {
        let Some((login, password)) = logins.of(part) else { continue };
        let verifier = postgres_protocol::password::scram_sha_256(password.expose().as_bytes());
        let (name, role) = (quote_literal(&login), quote_literal(names.of(part)));
        let text = format!(
            "select pg_temp.ensure_role({name}, 'login noinherit', '', '{{}}');
             select pg_temp.attempt({what}, {password}, '');
             select pg_temp.ensure_member({name}, {role}, 'inherit false, set true');
             -- Who drops the database has to end these sessions
             select pg_temp.ensure_member(session_user, {name}, 'inherit true, set true') where not pg_temp.is_superuser();
             select pg_temp.attempt({what}, {connect}, '')",
            what = quote_literal(&format!("login {login}")),
            password = quote_literal(&format!("alter role {login} login password {}", quote_literal(&verifier))),
            connect = quote_literal(&format!(
                "grant connect, temporary on database {} to {login}",
                quote_identifier(endpoint.database())
            )),
        );
        client.batch_execute(&text).await.map_err(step("login roles"))?;
    }
    Ok(())
}

/// Returns what an operator should know when the server refuses a login.
pub(super) fn limitation(endpoint: &Endpoint, refusal: &DatabaseError) -> Limitation {
    let logins = endpoint.acting().logins();
    let roles: Vec<String> =
        Logins::PARTS.iter().filter_map(|(part, _)| logins?.of(part)).map(|(login, _)| login).collect();
    let roles = roles.join(",");
    let database = quote_identifier(endpoint.database());
    let rule = match endpoint.host() {
        Host::Socket(_) => format!("local {database} {roles} scram-sha-256"),
        Host::Tcp(_) => format!("host {database} {roles} samenet scram-sha-256"),
    };
    let remedy = match refusal.sqlstate() {
        Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION) | None => format!(
            "-- in pg_hba.conf, above the other lines (`samenet`: or the address of this machine):\n--   {rule}\n\
             select pg_reload_conf();"
        ),
        _ => String::new(),
    };
    Limitation {
        what: "sessions without the login's rights".into(),
        why: refusal.to_string(),
        effect: format!(
            "SQL of the project runs in sessions of the login role {}, and can return to its rights with `reset role`",
            quote_identifier(endpoint.user())
        ),
        remedy,
    }
}
