//! `portico.link_sessions`: the sessions that began to link an identity.

use time::OffsetDateTime;
use tokio_postgres::Error;

use super::{Run, Tx};
use crate::model::ids::{FlowStateId, SessionId};

statements! {
    const INSERT = "insert into portico.link_sessions (flow_id, session_id, created_at) values ($1, $2, $3)";
    const OF_FLOW = "select session_id from portico.link_sessions where flow_id = $1";
    const DELETE_OLD = "
        delete from portico.link_sessions
         where flow_id in (select old.flow_id
                             from portico.link_sessions as old
                            where old.created_at < $1
                            limit 500
                              for update skip locked)";
}

/// Records the session that began a flow. `None`: the access token belonged to no session.
pub async fn insert(
    tx: &Tx,
    flow: FlowStateId,
    session: Option<SessionId>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tx.execute(INSERT, &[&flow, &session, &now]).await.map(drop)
}

/// Returns the session that began a flow, as [`insert`] recorded it. `None`: nothing is recorded.
pub async fn of_flow(run: &impl Run, flow: FlowStateId) -> Result<Option<Option<SessionId>>, Error> {
    Ok(run.rows(OF_FLOW, &[&flow]).await?.first().map(|row| row.get(0)))
}

/// Deletes the sessions of flows that began before `before`. Returns their number.
pub async fn delete_old(tx: &Tx, before: OffsetDateTime) -> Result<u64, Error> {
    tx.execute(DELETE_OLD, &[&before]).await
}
