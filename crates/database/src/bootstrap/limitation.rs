//! Rights that the login role lacks, and the SQL by which an administrator of the server gives
//! them.

use tokio_postgres::Client;

use super::step::step;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::quote;

/// Something that the bootstrap could not set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limitation {
    /// The object or the right.
    pub what: String,
    /// PostgreSQL's reason.
    pub why: String,
    /// The features that do not work until then.
    pub effect: String,
    /// Statements for a role that may run them; empty where there are none.
    pub remedy: String,
}

const TABLE: &str = "
    create table if not exists portico.limitations (
      what text primary key,
      why text not null,
      effect text not null,
      remedy text not null
    )";

/// Takes the notes of a transaction that is about to end.
pub(super) async fn noted(client: &Client) -> Result<Vec<Limitation>, DatabaseError> {
    let rows =
        client.query("select what, why, effect, remedy from pg_temp.portico_limitation order by what", &[]).await?;
    let limitation = |row: &tokio_postgres::Row| Limitation {
        what: row.get(0),
        why: row.get(1),
        effect: row.get(2),
        remedy: row.get(3),
    };
    Ok(rows.iter().map(limitation).collect())
}

/// Keeps what is missing, so that the next start tries again.
pub(super) async fn keep(client: &Client, limitations: &[Limitation]) -> Result<(), DatabaseError> {
    client.batch_execute(TABLE).await.map_err(step("limitations"))?;
    client.execute("delete from portico.limitations", &[]).await?;
    for Limitation { what, why, effect, remedy } in limitations {
        client
            .execute(
                "insert into portico.limitations (what, why, effect, remedy) values ($1, $2, $3, $4) on conflict do nothing",
                &[what, why, effect, remedy],
            )
            .await?;
    }
    Ok(())
}

/// Returns true if the last bootstrap set up everything. A database of an earlier version has no
/// list.
pub(super) async fn none(client: &Client) -> Result<bool, DatabaseError> {
    let has_table = "select pg_catalog.to_regclass('portico.limitations') is not null";
    if !client.query_one(has_table, &[]).await?.get::<_, bool>(0) {
        return Ok(false);
    }
    let is_empty = "select not exists (select from portico.limitations)";
    Ok(client.query_one(is_empty, &[]).await?.get(0))
}

/// Checks what no step can do without, before any of them has begun.
pub(super) async fn check_login(client: &Client, endpoint: &Endpoint) -> Result<(), DatabaseError> {
    let row = client
        .query_one(
            "select r.rolsuper, r.rolcreaterole, pg_has_role(r.oid, d.datdba, 'usage'), current_setting('server_version_num')::int
               from pg_roles as r, pg_database as d where r.rolname = session_user and d.datname = current_database()",
            &[],
        )
        .await?;
    let (is_superuser, creates_roles, owns, version): (bool, bool, bool, i32) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    let mut remedies = Vec::new();
    if version < 150_000 {
        return Err(DatabaseError::Refused(format!(
            "the database at {} is PostgreSQL {}: Portico needs version 15 or newer",
            endpoint.description(),
            version / 10_000
        )));
    }
    let login = quote::identifier(endpoint.user());
    if !is_superuser && !creates_roles {
        remedies.push(format!("alter role {login} createrole;"));
    }
    if !is_superuser && !owns {
        remedies.push(format!("alter database {} owner to {login};", quote::identifier(endpoint.database())));
    }
    match remedies.is_empty() {
        true => Ok(()),
        false => Err(DatabaseError::Refused(format!(
            "the login role {login} may not set up the database; an administrator of the server has to run: {}",
            remedies.join(" ")
        ))),
    }
}
