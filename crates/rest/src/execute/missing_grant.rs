//! The hint that a refusal for want of a privilege carries: the GRANT that is missing (contract 16.3).
//!
//! PostgreSQL names the relation without its schema, and it need not be the one of the request: a view
//! reads others with its owner's privileges, and functions, triggers and policies read any. So the
//! catalog is searched for the relation of that name that lacks a grant, and for the role that lacks
//! it. The search runs after the refusal, as the server's own login, and reads privileges only.

use std::time::Duration;

use portico_database::sqlstate::INSUFFICIENT_PRIVILEGE;
use portico_database::wire::{Batch, Row, Statement};

use crate::array::text_array;
use crate::error::PostgresErrorResponse;
use crate::execute::RequestContext;
use crate::handler::ApiRequest;
use crate::plan::WriteAction;
use crate::query::SelectItem;
use crate::request::preferences::{Resolution, ReturnPreference};
use crate::request::resource::{RequestAction, Resource};
use crate::statement_builder::Sql;

const LACKING: &str = include_str!("missing_grant.sql");

/// The longest time that a refusal waits for a connection for its hint. Where all are in use, it is
/// answered without one.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The kinds of relations, as PostgreSQL's refusals name them.
const KINDS: [&str; 4] = ["table ", "view ", "materialized view ", "foreign table "];

/// Adds the hint to a `permission denied for table x` that has none. Where the catalog has several
/// relations that could be meant, there is no hint.
pub(crate) async fn add_hint(doing: &RequestContext<'_>, refusal: &mut PostgresErrorResponse) {
    if refusal.code != INSUFFICIENT_PRIVILEGE.code() || refusal.hint.is_some() {
        return;
    }
    let denied = refusal.message.strip_prefix("permission denied for ");
    let Some(name) = denied.and_then(|denied| KINDS.iter().find_map(|kind| denied.strip_prefix(kind))) else { return };
    let asked = doing.asked;
    let needed = needed(asked);
    let (role, relations) = (asked.identity.role.as_bytes(), text_array(relations(asked)));
    let params = [
        Some(role),
        Some(name.as_bytes()),
        Some(doing.schema.as_bytes()),
        Some(relations.as_bytes()),
        Some(needed.as_bytes()),
    ];
    let batch = Batch::new().statement(Statement::named(LACKING, &params));
    let Ok(Ok(mut lease)) = tokio::time::timeout(LONGEST_WAIT, doing.lease()).await else { return };
    match lease.run(&batch).await {
        Ok(found) => refusal.hint = hint(found.rows(0), name, &needed),
        Err(error) => tracing::debug!(%error, "The catalog does not say which grant is missing"),
    }
}

/// Returns the hint for the only relation that was found.
fn hint(found: &[Row], name: &str, needed: &str) -> Option<String> {
    let [row] = found else { return None };
    let (schema, role, lacking) = (row.text(0)?, row.text(1)?, row.text(3)?);
    let privileges = match row.text(2)? {
        "t" => needed,
        // The statement is not known; most that change rows read them, too
        _ if lacking.starts_with("SELECT") => "SELECT",
        _ if lacking.contains(", ") => return None,
        _ => lacking,
    };
    let mut grant = Sql::new();
    grant.raw(privileges).raw(" ON ");
    identifier(&mut grant, schema);
    grant.raw(".");
    identifier(&mut grant, name);
    grant.raw(" TO ");
    identifier(&mut grant, role);
    Some(format!("Grant the required privileges to the current role with: GRANT {};", grant.text()))
}

/// Returns the names of the relations of a request: what it reads or writes, then what it embeds.
fn relations<'a>(asked: &'a ApiRequest<'_>) -> Vec<&'a str> {
    fn embedded<'a>(items: &'a [SelectItem], names: &mut Vec<&'a str>) {
        for item in items {
            if let SelectItem::Relation(relation) = item {
                names.push(&relation.name);
                embedded(&relation.select, names);
            }
        }
    }
    let mut names = vec![match &asked.resource {
        Resource::Relation(name) => name.as_str(),
        // No relation has this name
        Resource::Function(_) | Resource::Root => "",
    }];
    embedded(&asked.query.select, &mut names);
    names
}

/// Returns the privileges that a request needs on what it reads or writes.
fn needed(asked: &ApiRequest<'_>) -> String {
    let (preferences, query) = (&asked.preferences, &asked.query);
    let changes = match asked.action {
        RequestAction::Write(WriteAction::Insert) if preferences.resolution == Some(Resolution::MergeDuplicates) => {
            "INSERT, UPDATE"
        }
        RequestAction::Write(WriteAction::Insert) => "INSERT",
        RequestAction::Write(WriteAction::Put) => "INSERT, UPDATE",
        RequestAction::Write(WriteAction::Update) => "UPDATE",
        RequestAction::Write(WriteAction::Delete) => "DELETE",
        RequestAction::Read { .. } | RequestAction::Call | RequestAction::Options => return "SELECT".into(),
    };
    // Rows that are returned or compared are read, too
    let reads = preferences.returned.is_some_and(|returned| returned != ReturnPreference::Minimal)
        || preferences.resolution.is_some()
        || asked.action == RequestAction::Write(WriteAction::Put)
        || !query.filters.is_empty()
        || !query.logic.is_empty();
    if reads { format!("SELECT, {changes}") } else { changes.into() }
}

/// Appends a name, quoted only where it has to be, as people write it.
fn identifier(grant: &mut Sql, name: &str) {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain {
        grant.raw(name);
    } else {
        grant.name(name);
    }
}
