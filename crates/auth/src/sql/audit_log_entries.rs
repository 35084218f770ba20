//! `auth.audit_log_entries`.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use super::Run;

statements! {
    const INSERT = "
        insert into auth.audit_log_entries (instance_id, id, payload, created_at, ip_address)
        values ('00000000-0000-0000-0000-000000000000', $1, $2, $3, $4)";
}

/// Adds an entry. `ip` is empty where the address of the client is not recorded.
pub async fn insert(run: &impl Run, payload: &Value, ip: &str, now: OffsetDateTime) -> Result<(), Error> {
    let id: Uuid = portico_base::random::uuid();
    run.rows(INSERT, &[&id, payload, &now, &ip]).await.map(drop)
}
