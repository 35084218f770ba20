//! The hint of an error for a missing privilege: the GRANT that is missing.
//!
//! PostgreSQL names the relation without its schema, and it need not be the relation of the
//! request: a view reads others with its owner's privileges, and functions, triggers and policies
//! read any, those with `security definer` with their owner's privileges. So the catalog is
//! searched for the relation of that name that lacks a grant, and for the role that lacks it. The
//! search runs after the error, as the server's own login, and reads privileges only.

use std::time::Duration;

use portico_database::quote::text_array;
use portico_database::sqlstate::INSUFFICIENT_PRIVILEGE;
use portico_database::wire::{Batch, Row, Statement};

use super::RequestContext;
use super::call_stack::called_functions;
use crate::error::PostgresErrorResponse;
use crate::query::SelectItem;
use crate::request::preferences::{Resolution, ReturnPreference};
use crate::request::resource::{RequestAction, Resource};
use crate::request::{ApiRequest, WriteAction};
use crate::statement_builder::Sql;

const MISSING_GRANT: &str = include_str!("missing_grant.sql");

/// The time limit of an error's wait for the connection that its hint needs. If all are in use, it
/// has no hint.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The kinds of relations, as PostgreSQL's messages name them.
const KINDS: [&str; 4] = ["table ", "view ", "materialized view ", "foreign table "];

/// Adds the hint to a `permission denied for table x` that has none. It has none where several
/// relations of the catalog could be meant.
pub(crate) async fn with_hint(
    context: &RequestContext<'_>,
    error: Box<PostgresErrorResponse>,
) -> Box<PostgresErrorResponse> {
    if error.code != INSUFFICIENT_PRIVILEGE.code() || error.hint.is_some() {
        return error;
    }
    let hint = hint(context, &error.message, error.context.as_deref().unwrap_or_default()).await;
    Box::new(PostgresErrorResponse { hint, ..*error })
}

async fn hint(context: &RequestContext<'_>, message: &str, call_stack: &str) -> Option<String> {
    let denied = message.strip_prefix("permission denied for ")?;
    let name = KINDS.iter().find_map(|kind| denied.strip_prefix(kind))?;
    let request = context.request;
    let needed = needed_privileges(request);
    let (role, relations) = (request.head.role.name.as_bytes(), text_array(relation_names(request)));
    let functions = called_functions(call_stack);
    let schemas = text_array(functions.iter().map(|function| function.schema.as_str()));
    let names = text_array(functions.iter().map(|function| function.name.as_str()));
    let params = [
        Some(role),
        Some(name.as_bytes()),
        Some(request.head.schema.as_bytes()),
        Some(relations.as_bytes()),
        Some(needed.as_bytes()),
        Some(schemas.as_bytes()),
        Some(names.as_bytes()),
    ];
    let batch = Batch::new().statement(Statement::named(MISSING_GRANT, &params));
    let Ok(Ok(mut connection)) = tokio::time::timeout(LONGEST_WAIT, context.checkout()).await else { return None };
    match connection.run(&batch).await {
        Ok(found) => grant_hint(found.rows(0), name, &needed),
        Err(error) => {
            tracing::debug!(error = %error, "the missing grant could not be looked up");
            None
        }
    }
}

/// Returns the hint for the only relation that was found.
fn grant_hint(found: &[Row], name: &str, needed: &str) -> Option<String> {
    let [row] = found else { return None };
    let (schema, role, lacking) = (row.text(0)?, row.text(1)?, row.text(3)?);
    let privileges = match row.text(2)? {
        "t" => needed,
        // The statement is not known. Most statements that change rows also read them
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

/// Returns the names of the relations of a request: first the one that it reads or writes, then the
/// embeds.
fn relation_names<'a>(request: &'a ApiRequest<'_>) -> Vec<&'a str> {
    fn embedded<'a>(items: &'a [SelectItem], names: &mut Vec<&'a str>) {
        for item in items {
            if let SelectItem::Relation(relation) = item {
                names.push(&relation.name);
                embedded(&relation.select, names);
            }
        }
    }
    let mut names = vec![match &request.head.resource {
        Resource::Relation(name) => name.as_str(),
        // No relation has this name
        Resource::Function(_) | Resource::Root => "",
    }];
    embedded(&request.query.select, &mut names);
    names
}

/// Returns the privileges that a request needs on the relation that it reads or writes.
fn needed_privileges(request: &ApiRequest<'_>) -> String {
    let (preferences, query) = (&request.preferences, &request.query);
    let changes = match request.head.action {
        RequestAction::Write(WriteAction::Insert) if preferences.resolution == Some(Resolution::MergeDuplicates) => {
            "INSERT, UPDATE"
        }
        RequestAction::Write(WriteAction::Insert) => "INSERT",
        RequestAction::Write(WriteAction::Put) => "INSERT, UPDATE",
        RequestAction::Write(WriteAction::Update) => "UPDATE",
        RequestAction::Write(WriteAction::Delete) => "DELETE",
        RequestAction::Read { .. } | RequestAction::Call | RequestAction::Options => return "SELECT".into(),
    };
    // Rows that are returned or compared are also read
    let reads = preferences.returned.is_some_and(|returned| returned != ReturnPreference::Minimal)
        || preferences.resolution.is_some()
        || request.head.action == RequestAction::Write(WriteAction::Put)
        || !query.filters.is_empty()
        || !query.logic.is_empty();
    if reads { format!("SELECT, {changes}") } else { changes.into() }
}

/// Appends a name, quoted only where SQL requires it.
fn identifier(grant: &mut Sql, name: &str) {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain {
        grant.raw(name);
    } else {
        grant.name(name);
    }
}
