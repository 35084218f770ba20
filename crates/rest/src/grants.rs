//! The hint that a refusal for want of a privilege carries: the GRANT that is missing (contract 16.3).

use portico_database::sqlstate::INSUFFICIENT_PRIVILEGE;

use crate::error::PostgresRefusal;
use crate::handler::Asked;
use crate::plan::WriteAction;
use crate::preferences::{Resolution, Return};
use crate::resource::{Action, Resource};
use crate::schema::{QualifiedName, SchemaCache};
use crate::sql::Sql;

/// Adds the hint to a `permission denied for table x` that has none.
pub(crate) fn add_hint(refusal: &mut PostgresRefusal, cache: &SchemaCache, schema: &str, asked: &Asked<'_>) {
    if refusal.code != INSUFFICIENT_PRIVILEGE.code() || refusal.hint.is_some() {
        return;
    }
    let denied = ["table ", "view ", "materialized view ", "foreign table "]
        .iter()
        .find_map(|kind| refusal.message.strip_prefix("permission denied for ")?.strip_prefix(kind));
    let Some(relation) = denied.and_then(|name| cache.relation(schema, name)) else { return };
    let is_target = matches!(&asked.resource, Resource::Relation(name) if *name == relation.name.name);
    let (preferences, query) = (&asked.preferences, &asked.query);
    let changes = match asked.action {
        Action::Write(action) if is_target => match action {
            WriteAction::Insert if preferences.resolution == Some(Resolution::MergeDuplicates) => "INSERT, UPDATE",
            WriteAction::Insert => "INSERT",
            WriteAction::Put => "INSERT, UPDATE",
            WriteAction::Update => "UPDATE",
            WriteAction::Delete => "DELETE",
        },
        _ => "",
    };
    // Rows that are returned or compared are read, too
    let reads = changes.is_empty()
        || preferences.returned.is_some_and(|returned| returned != Return::Minimal)
        || preferences.resolution.is_some()
        || asked.action == Action::Write(WriteAction::Put)
        || !query.filters.is_empty()
        || !query.logic.is_empty();
    let select = match (reads, changes) {
        (true, "") => "SELECT",
        (true, _) => "SELECT, ",
        (false, _) => "",
    };
    let mut grant = Sql::new();
    grant.raw(select).raw(changes).raw(" ON ");
    plain(&mut grant, &relation.name);
    grant.raw(" TO ");
    identifier(&mut grant, &asked.identity.role);
    refusal.hint = Some(format!("Grant the required privileges to the current role with: GRANT {};", grant.text()));
}

fn plain(grant: &mut Sql, name: &QualifiedName) {
    identifier(grant, &name.schema);
    grant.raw(".");
    identifier(grant, &name.name);
}

/// Quoted only where it has to be, as people write it.
fn identifier(grant: &mut Sql, name: &str) {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain {
        grant.raw(name);
    } else {
        grant.name(name);
    }
}
