//! Whether a statement may run functions of the database's owner, or without them be another in another transaction.
//!
//! Functions may set something for the session that the next request must not see, or say something of the answer. Nothing is known of them but
//! that they are there: whoever can not tell says that they are.

use super::filter::Condition;
use super::tree::{Column, Embed, Level, OrderBy, Output, ReadPlan, Source};
use super::write::{Answer, Assigned, Change, WritePlan};
use crate::schema::{self, QualifiedName, Relation, RelationshipKind, SchemaCache};

impl ReadPlan {
    /// Whether reading these rows may run such functions. The function of [`Source::Call`] itself is not meant.
    pub fn runs_functions(&self, cache: &SchemaCache) -> bool {
        level_runs(cache, &self.root)
    }

    /// See [`Relation::sees_transaction`]: that of any relation which is read here.
    pub fn sees_transaction(&self, cache: &SchemaCache) -> bool {
        level_sees(cache, &self.root)
    }
}

impl WritePlan {
    /// Whether this write, and reading what it returns, may run such functions.
    pub fn runs_functions(&self, cache: &SchemaCache) -> bool {
        let relation = Some(self.relation.as_ref());
        let assigns = |columns: &[Assigned]| columns.iter().any(|column| column.from_json.is_some());
        let changing = match &self.change {
            Change::Insert { columns, only, .. } => {
                assigns(columns) || only.iter().any(|key| key.from_text.is_some() || key.column.from_json.is_some())
            }
            Change::Update { columns, conditions, .. } => assigns(columns) || conditions_run(relation, conditions),
            Change::Delete { conditions } => conditions_run(relation, conditions),
            Change::Nothing => false,
        };
        let answering = match &self.answer {
            Answer::Count => false,
            Answer::Location(returned) => returned.columns.iter().any(|name| is_unknown(relation, name)),
            Answer::Rows(read) => read.runs_functions(cache),
        };
        self.relation.runs_functions_on_write || changing || answering
    }

    /// See [`Relation::sees_transaction`]: that of any relation which is written or read here.
    pub fn sees_transaction(&self, cache: &SchemaCache) -> bool {
        let answering = matches!(&self.answer, Answer::Rows(read) if read.sees_transaction(cache));
        self.relation.sees_transaction || answering
    }
}

fn level_sees(cache: &SchemaCache, level: &Level) -> bool {
    let source = level.relation.as_deref().is_none_or(|relation| relation.sees_transaction);
    let below = |embed: &Embed| {
        let junction = match &embed.relationship.kind {
            RelationshipKind::ManyToMany(junction) => {
                let QualifiedName { schema, name } = &junction.relation;
                cache.relation(schema, name).is_none_or(|relation| relation.sees_transaction)
            }
            _ => false,
        };
        junction || level_sees(cache, &embed.level)
    };
    source || level.embeds.iter().any(below)
}

fn level_runs(cache: &SchemaCache, level: &Level) -> bool {
    let relation = level.relation.as_deref();
    let source = match &level.source {
        Source::Relation(_) | Source::Written => relation.is_none_or(|relation| relation.runs_functions),
        // The columns of an unnamed row can be nothing else
        Source::Call => false,
        Source::Computed(_) => true,
    };
    let columns = level.columns.iter().any(|output| match output {
        Output::Star => false,
        Output::CountRows { cast, key: _ } => cast.as_deref().is_some_and(|target| !is_plain_cast(cache, target)),
        Output::Column { column, representation, cast, aggregate, aggregate_cast: _, key: _ } => {
            let cast_runs = |target: &str| {
                !is_plain_cast(cache, target) || !(is_json(column) || is_of_own_type(relation, &column.name))
            };
            representation.is_some()
                || aggregate.is_some()
                || is_unknown(relation, &column.name)
                || cast.as_deref().is_some_and(cast_runs)
        }
    });
    let orders = level.order.iter().any(|order| match &order.by {
        OrderBy::Column(column) => is_unknown(relation, &column.name),
        OrderBy::Embed(..) => false,
    });
    let embeds = level.embeds.iter().any(|embed| {
        let below = embed.level.relation.as_deref();
        let junction = match &embed.relationship.kind {
            RelationshipKind::ManyToMany(junction) => runs(cache, &junction.relation),
            RelationshipKind::Computed { .. } => true,
            _ => false,
        };
        junction
            || embed.ordered_by.iter().any(|column| is_unknown(below, &column.name))
            || level_runs(cache, &embed.level)
    });
    source || columns || orders || embeds || conditions_run(relation, &level.conditions)
}

fn runs(cache: &SchemaCache, name: &QualifiedName) -> bool {
    cache.relation(&name.schema, &name.name).is_none_or(|relation| relation.runs_functions)
}

fn conditions_run(relation: Option<&Relation>, conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| match condition {
        Condition::Filter { column, from_text, .. } => from_text.is_some() || is_unknown(relation, &column.name),
        Condition::Exists { .. } => false,
        Condition::Group { parts, .. } => conditions_run(relation, parts),
    })
}

/// Types of PostgreSQL's own, by the names that a cast calls them by. Its own functions make their values of those of its other types.
const OWN_TYPES: [&str; 54] = [
    "_bool",
    "_date",
    "_float8",
    "_int4",
    "_int8",
    "_json",
    "_jsonb",
    "_numeric",
    "_text",
    "_timestamptz",
    "_uuid",
    "_varchar",
    "bigint",
    "bit",
    "bit varying",
    "bool",
    "boolean",
    "bpchar",
    "bytea",
    "char",
    "character",
    "character varying",
    "cidr",
    "date",
    "decimal",
    "double precision",
    "float",
    "float4",
    "float8",
    "inet",
    "int",
    "int2",
    "int4",
    "int8",
    "integer",
    "interval",
    "json",
    "jsonb",
    "money",
    "name",
    "numeric",
    "real",
    "smallint",
    "text",
    "time",
    "time with time zone",
    "time without time zone",
    "timestamp",
    "timestamp with time zone",
    "timestamp without time zone",
    "timestamptz",
    "timetz",
    "uuid",
    "varchar",
];

/// Whether a cast to this runs nothing of the owner's, if it is of a value of PostgreSQL's own types.
fn is_plain_cast(cache: &SchemaCache, target: &str) -> bool {
    cache.plain_casts && OWN_TYPES.binary_search(&target.to_ascii_lowercase().as_str()).is_ok()
}

/// Whether a way into JSON leads to the value.
fn is_json(column: &Column) -> bool {
    !column.json_path.is_empty()
}

fn is_of_own_type(relation: Option<&Relation>, column: &str) -> bool {
    relation.and_then(|relation| relation.columns.get(column)).is_some_and(schema::Column::is_of_own_type)
}

/// A name that is no column may be a function of the row.
fn is_unknown(relation: Option<&Relation>, column: &str) -> bool {
    relation.is_some_and(|relation| !relation.columns.contains_key(column))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plan::{Context, PlanSettings, Root};
    use crate::query::{self, Target};
    use crate::schema::testing::cinema;

    /// Whether a read of this runs functions, when only this relation's reads do.
    fn runs(loud: &str, path: &str) -> bool {
        runs_in(cinema(), loud, path)
    }

    fn runs_in(mut cache: SchemaCache, loud: &str, path: &str) -> bool {
        for (name, relation) in cache.relations.get_mut("public").unwrap() {
            Arc::make_mut(relation).runs_functions = name == loud;
        }
        let (name, text) = path.split_once('?').unwrap_or((path, ""));
        let settings = PlanSettings { aggregates: true, ..PlanSettings::default() };
        let context = Context { cache: &cache, schema: "public", settings: &settings };
        let query = query::parse(text, Target::Relation).unwrap();
        let relation = cache.relation("public", name).unwrap();
        ReadPlan::new(&context, Root::Relation(relation), &query).unwrap().runs_functions(&cache)
    }

    #[test]
    fn plain_columns_of_plain_relations_run_nothing() {
        for path in [
            "films",
            "films?select=id,title,meta->a->>b&year=gt.2000&or=(id.eq.1,not.and(id.eq.2,title.like.a*))&order=meta->a",
            "films?select=*,directors!inner(*),actors!roles(first_name)&order=directors(last_name)&directors=not.is.null",
        ] {
            assert!(!runs("", path), "{path}");
        }
    }

    #[test]
    fn casts_between_types_of_postgresql_s_own_run_nothing() {
        assert!(OWN_TYPES.is_sorted());
        for path in [
            "films?select=id::text,year::INT8,rating::double precision,tags::text,meta::text,meta->a->>b::int,count()::text",
            "films?select=id::timestamp with time zone,mood->x::text",
            // A domain over text
            "articles?select=sku::text,directors:price->>x::numeric",
        ] {
            assert!(!runs("", path), "{path}");
            assert!(runs_in(SchemaCache { plain_casts: false, ..cinema() }, "", path), "{path}");
        }
        for path in [
            "films?select=mood::text",
            "films?select=id::mood",
            "films?select=id::price",
            "films?select=id::regclass",
            "films?select=id::timestamp  with time zone",
            "films?select=id::pg_class",
            "films?select=full_title::text",
            "films?select=id,directors(full_name::text)",
            "films?select=year.sum()::text",
            "films?select=year::int8.sum()",
            "films?select=count()::mood",
            "events?select=place::text",
            "paints?select=color::text",
        ] {
            assert!(runs("", path), "{path}");
        }
    }

    #[test]
    fn what_is_no_column_an_aggregate_and_a_computed_relationship_run_functions() {
        for path in [
            "films?select=id,full_title",
            "films?full_title=eq.a",
            "films?or=(id.eq.1,and(full_title.eq.a,id.eq.2))",
            "films?order=full_title",
            "films?select=year.sum()",
            "films?select=id,directors(id,full_name)",
            "films?select=id,directors(id)&order=directors(full_name)",
            "films?select=id,directors(id)&directors.full_name=eq.a",
            "paints?select=id,color",
            "paints?color=eq.red",
            "designers?select=name,video_games(name)",
        ] {
            assert!(runs("", path), "{path}");
        }
    }

    #[test]
    fn every_relation_that_is_read_counts() {
        for (loud, path) in [
            ("films", "films"),
            ("directors", "films?select=id,directors(id)"),
            ("directors", "films?select=id,...directors(last_name)"),
            ("roles", "films?select=id,actors!roles(id)"),
            ("actors", "films?select=id,directors(films(actors!roles()))"),
        ] {
            assert!(runs(loud, path), "{loud} in {path}");
        }
        assert!(!runs("roles", "films?select=id,directors(id)"));
    }
}
