//! `GET /admin/audit`: the entries of the audit log.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::Auth;
use crate::admin::administrator::Administrator;
use crate::admin::page::{ListPage, PageHeaders};
use crate::error::{AuthError, ContractError};
use crate::http::extract::Query;
use crate::model::Timestamp;
use crate::sql::audit_log_entries::{self, AuditEntryFilter, AuditEntryScope};

/// `GET /admin/audit`
pub(crate) async fn list(
    State(auth): State<Auth>,
    _: Administrator,
    page: ListPage,
    query: Query,
) -> Result<(PageHeaders, Json<Vec<Value>>), AuthError> {
    let filter = query.get("query").map(parse_filter).transpose()?;
    let client = auth.database().client().await?;
    let (total, entries) = audit_log_entries::list(&client, filter, page.limit(), page.offset()).await?;
    drop(client);
    let shown = entries
        .into_iter()
        .map(|entry| {
            json!({
                "id": entry.id,
                "payload": entry.payload,
                "created_at": entry.created_at.map(Timestamp),
                "ip_address": entry.ip_address,
            })
        })
        .collect();
    Ok((page.headers(total), Json(shown)))
}

/// Parses `<scope>:<text>`.
fn parse_filter(text: &str) -> Result<AuditEntryFilter<'_>, AuthError> {
    let (name, text) = text.split_once(':').map_or((text, None), |(name, text)| (name, Some(text)));
    let scope = match name {
        "author" => Some(AuditEntryScope::Author),
        "action" => Some(AuditEntryScope::Action),
        "type" => Some(AuditEntryScope::LogType),
        _ => None,
    };
    match (scope, text) {
        (Some(scope), Some(text)) => Ok(AuditEntryFilter { scope, text }),
        _ => Err(ContractError::InvalidQueryScope { scope: name.chars().take(64).collect() }.into()),
    }
}
