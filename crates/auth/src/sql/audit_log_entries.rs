//! `auth.audit_log_entries`.

use serde_json::Value;
use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use super::Run;
use super::users::contains;

/// The condition of a list: a scope (`$1`) and a pattern (`$2`; null for all entries).
macro_rules! listed {
    () => {
        " from auth.audit_log_entries as entries
         where $2::text is null
            or case $1::text
                 when 'author' then entries.payload ->> 'actor_username' ilike $2
                                    or entries.payload ->> 'actor_name' ilike $2
                 when 'action' then entries.payload ->> 'action' ilike $2
                 else entries.payload ->> 'log_type' ilike $2
               end"
    };
}

statements! {
    const INSERT = "
        insert into auth.audit_log_entries (instance_id, id, payload, created_at, ip_address)
        values ('00000000-0000-0000-0000-000000000000', $1, $2, $3, $4)";
    const COUNT = concat!("select count(*)", listed!());
    const LIST = concat!(
        "select entries.id, entries.payload, entries.created_at, entries.ip_address",
        listed!(),
        " order by entries.created_at desc nulls last, entries.id limit $3 offset $4"
    );
}

/// Adds an entry. `ip` is empty where the address of the client is not recorded.
pub async fn insert(run: &impl Run, payload: &Value, ip: &str, now: OffsetDateTime) -> Result<(), Error> {
    let id: Uuid = portico_base::random::uuid();
    run.rows(INSERT, &[&id, payload, &now, &ip]).await.map(drop)
}

/// The part of entries that a filter looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditEntryScope {
    /// The address, number or name of the actor.
    Author,
    /// The action.
    Action,
    /// The type of the action.
    LogType,
}

/// A condition for entries.
#[derive(Debug, Clone, Copy)]
pub struct AuditEntryFilter<'a> {
    /// The part of the entry.
    pub scope: AuditEntryScope,
    /// A text that it contains, in any case.
    pub text: &'a str,
}

/// A row of the table.
#[derive(Debug)]
pub struct AuditEntry {
    /// Primary key.
    pub id: Uuid,
    /// The event.
    pub payload: Option<Value>,
    /// The time of the event.
    pub created_at: Option<OffsetDateTime>,
    /// The address of the client; empty where it is not recorded.
    pub ip_address: String,
}

/// Returns the number of entries that fit the filter, and a part of them, the newest first.
pub async fn list(
    run: &impl Run,
    filter: Option<AuditEntryFilter<'_>>,
    limit: i64,
    offset: i64,
) -> Result<(i64, Vec<AuditEntry>), Error> {
    let scope = filter.map(|filter| match filter.scope {
        AuditEntryScope::Author => "author",
        AuditEntryScope::Action => "action",
        AuditEntryScope::LogType => "type",
    });
    let pattern = filter.map(|filter| contains(filter.text));
    let total = run.rows(COUNT, &[&scope, &pattern]).await?[0].get(0);
    let rows = run.rows(LIST, &[&scope, &pattern, &limit, &offset]).await?;
    let entry =
        |row: &tokio_postgres::Row| AuditEntry { id: row.get(0), payload: row.get(1), created_at: row.get(2), ip_address: row.get(3) };
    Ok((total, rows.iter().map(entry).collect()))
}
