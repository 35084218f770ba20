//! The hint that a refusal for want of a privilege carries: the GRANT that is missing (contract 16.3).

use portico_database::sqlstate::INSUFFICIENT_PRIVILEGE;

use crate::error::PostgresRefusal;
use crate::handler::Asked;
use crate::plan::WriteAction;
use crate::preferences::Return;
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
    let privileges = match asked.action {
        Action::Write(action) if is_target => match action {
            WriteAction::Insert if asked.preferences.resolution.is_none() => "INSERT",
            WriteAction::Insert | WriteAction::Put => "INSERT, UPDATE",
            WriteAction::Update => "UPDATE",
            WriteAction::Delete => "DELETE",
        },
        _ => "SELECT",
    };
    // Rows that are returned or compared are read, too
    let reads = is_target
        && matches!(asked.action, Action::Write(_))
        && (asked.preferences.returned.is_some_and(|returned| returned != Return::Minimal)
            || !asked.query.filters.is_empty());
    let select = if reads { "SELECT, " } else { "" };
    let mut grant = Sql::new();
    grant.raw(select).raw(privileges).raw(" ON ");
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
