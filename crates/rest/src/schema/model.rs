//! The schema cache as types. It is immutable: a reload makes a new one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;

/// A name and the schema it is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct QualifiedName {
    /// The schema.
    pub schema: String,
    /// The name in it.
    pub name: String,
}

/// Schema name → object name → what is known of it: looked up by two `&str` without an allocation.
pub type ByName<T> = HashMap<String, HashMap<String, T>>;

/// Everything that requests are planned against.
#[derive(Debug, Default)]
pub struct SchemaCache {
    /// Tables, views, materialized views, foreign and partitioned tables of the exposed schemas.
    pub relations: ByName<Arc<Relation>>,
    /// By origin; in the stable order of the contract's error texts (7.3).
    pub relationships: ByName<Vec<Arc<Relationship>>>,
    /// Overloads by name, those with fewer parameters first.
    pub routines: ByName<Vec<Arc<Routine>>>,
    /// A cast from one of PostgreSQL's own types to another runs nothing but PostgreSQL's own functions: nobody has made such a cast, and
    /// requests find its types before all others of their names.
    pub plain_casts: bool,
    /// Casts of domains, by the domain's formatted name (19.3).
    pub representations: HashMap<String, Representation>,
    /// Custom media type handlers (10.5).
    pub media_handlers: Vec<MediaHandler>,
    /// Names that `Prefer: timezone` may have.
    pub time_zones: Arc<HashSet<String>>,
    /// Comments of the exposed schemas that have one.
    pub schema_comments: HashMap<String, String>,
}

impl SchemaCache {
    /// A relation of a schema.
    pub fn relation(&self, schema: &str, name: &str) -> Option<&Arc<Relation>> {
        self.relations.get(schema)?.get(name)
    }

    /// The relationships that start at a relation.
    pub fn relationships_of(&self, schema: &str, origin: &str) -> &[Arc<Relationship>] {
        self.relationships.get(schema).and_then(|names| names.get(origin)).map_or(&[], Vec::as_slice)
    }

    /// What is known, by name: schemas with their relations and functions.
    pub fn outline(&self) -> serde_json::Value {
        fn names<T>(known: Option<&HashMap<String, T>>) -> std::collections::BTreeSet<&String> {
            known.map(|known| known.keys().collect()).unwrap_or_default()
        }
        let schemas: std::collections::BTreeSet<_> = self.relations.keys().chain(self.routines.keys()).collect();
        let outline = schemas.into_iter().map(|schema| {
            let relations = names(self.relations.get(schema));
            let functions = names(self.routines.get(schema));
            (schema.clone(), serde_json::json!({ "relations": relations, "functions": functions }))
        });
        serde_json::Value::Object(outline.collect())
    }

    /// The overloads of a function.
    pub fn routines_named(&self, schema: &str, name: &str) -> &[Arc<Routine>] {
        self.routines.get(schema).and_then(|names| names.get(name)).map_or(&[], Vec::as_slice)
    }
}

/// What kind of relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationKind {
    /// `create table`
    Table,
    /// `create table … partition by`
    PartitionedTable,
    /// `create view`
    View,
    /// `create materialized view`
    MaterializedView,
    /// `create foreign table`
    ForeignTable,
}

/// A table, or what can be read like one.
#[derive(Debug, Clone)]
pub struct Relation {
    /// Its name.
    pub name: QualifiedName,
    /// Its comment.
    pub comment: Option<String>,
    /// Its kind.
    pub kind: RelationKind,
    /// Rows can be put in.
    pub insertable: bool,
    /// Rows can be changed.
    pub updatable: bool,
    /// Rows can be taken out.
    pub deletable: bool,
    /// Reading its columns may run functions of the database's owner: in the definition of the view or of views below it, in policies of
    /// its own or of what it reads, in casts to JSON. Such a function may set something for its session, or say something of the answer
    /// (`response.headers`). Functions of PostgreSQL's own and `auth.uid()` and its like do neither; a view that calls `set_config` itself
    /// counts. What is not among [`columns`](Self::columns) may be a function of the row in any case.
    pub runs_functions: bool,
    /// The same of writing its rows, for which triggers, rules, defaults and checks count too, its own or those of rows that are written
    /// with them.
    pub runs_functions_on_write: bool,
    /// To reading or writing its rows it matters in which transaction that happens, though nothing of the owner's runs: a view, policy,
    /// default or check calls `current_setting`, or a view or policy `nextval` and the like, which must fail where a request only reads.
    pub sees_transaction: bool,
    /// Several of its rows may have the same key, though the key is one of the tables below it: a view that joins or groups, a materialized
    /// view without a unique index.
    pub repeats_keys: bool,
    /// Primary key columns, sorted by name; of a view those of its base table, when it shows them all.
    pub primary_key: Vec<String>,
    /// By name, in the table's order.
    pub columns: IndexMap<String, Column>,
}

impl Relation {
    /// Whether it is a view or a materialized view.
    pub fn is_view(&self) -> bool {
        matches!(self.kind, RelationKind::View | RelationKind::MaterializedView)
    }
}

/// A column.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its comment.
    pub comment: Option<String>,
    /// It may hold NULL.
    pub nullable: bool,
    /// The type behind all domains over catalog types, as `format_type` says it without modifiers: `integer`, `character varying`.
    pub base_type: String,
    /// The declared type, with modifiers: `character varying(10)`, `public.price`. Can be put into SQL as it is.
    pub nominal_type: String,
    /// The most characters it holds.
    pub max_length: Option<i32>,
    /// The SQL expression of its default; `nextval(…)` for GENERATED BY DEFAULT identities, the domain's default if it has none itself;
    /// none for generated columns. Trusted SQL of the database's own catalog.
    pub default: Option<String>,
    /// Labels, when the type is an enum.
    pub enum_labels: Vec<String>,
    /// The formatted name of its domain when a [`Representation`] may apply.
    pub domain: Option<String>,
}

impl Column {
    /// Whether its values are of one of PostgreSQL's own types, or of a domain over one. The names of others have a schema.
    pub fn is_of_own_type(&self) -> bool {
        !self.base_type.contains('.')
    }
}

/// How two relations belong together, seen from one of them.
#[derive(Debug, Clone)]
pub struct Relationship {
    /// Where it starts.
    pub origin: QualifiedName,
    /// Where it leads.
    pub target: QualifiedName,
    /// The target is a view: foreign key and column names do not name it (7.3).
    pub target_is_view: bool,
    /// Origin and target are the same relation.
    pub is_self: bool,
    /// Over what.
    pub kind: RelationshipKind,
}

/// What a relationship goes over.
#[derive(Debug, Clone)]
pub enum RelationshipKind {
    /// A foreign key of the origin.
    ManyToOne {
        /// Its name.
        constraint: String,
        /// Origin column and target column, in key order.
        columns: Vec<(String, String)>,
    },
    /// A foreign key of the target.
    OneToMany {
        /// Its name.
        constraint: String,
        /// Origin column and target column, in key order.
        columns: Vec<(String, String)>,
    },
    /// A foreign key of either side that is unique.
    OneToOne {
        /// Its name.
        constraint: String,
        /// Origin column and target column, in key order.
        columns: Vec<(String, String)>,
        /// The foreign key belongs to the target.
        is_parent: bool,
    },
    /// Two foreign keys of a third relation.
    ManyToMany(Junction),
    /// A function of the origin's row.
    Computed {
        /// The function; its name is the embed's name.
        function: QualifiedName,
        /// It yields at most one row.
        to_one: bool,
    },
}

/// The relation in the middle of a many-to-many relationship.
#[derive(Debug, Clone)]
pub struct Junction {
    /// Its name.
    pub relation: QualifiedName,
    /// The foreign key towards the origin.
    pub origin_constraint: String,
    /// The foreign key towards the target.
    pub target_constraint: String,
    /// Origin column and junction column.
    pub origin_columns: Vec<(String, String)>,
    /// Junction column and target column.
    pub target_columns: Vec<(String, String)>,
}

impl Relationship {
    /// Whether it leads to at most one row.
    pub fn is_to_one(&self) -> bool {
        matches!(
            self.kind,
            RelationshipKind::ManyToOne { .. }
                | RelationshipKind::OneToOne { .. }
                | RelationshipKind::Computed { to_one: true, .. }
        )
    }
}

/// A function that can be called.
#[derive(Debug, Clone)]
pub struct Routine {
    /// Its identity in the database; 0 in a cache that was made without one.
    pub oid: u32,
    /// Its name.
    pub name: QualifiedName,
    /// Its comment.
    pub comment: Option<String>,
    /// What it takes.
    pub parameters: Vec<Parameter>,
    /// What it yields.
    pub returns: ReturnType,
    /// What it may do.
    pub volatility: Volatility,
    /// Its last parameter is VARIADIC.
    pub variadic: bool,
    /// `default_transaction_isolation` of its own settings.
    pub isolation: Option<String>,
    /// Its own settings (`SET … TO …`), name and value; which of them hold for the whole transaction is configuration (13.6).
    pub settings: Vec<(String, String)>,
}

/// One argument of a function.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its type as SQL.
    pub sql_type: String,
    /// Its type without a length: `character varying`, `bit varying` for `character(n)`, `bit(n)`.
    pub unbounded_type: String,
    /// It has no default.
    pub required: bool,
    /// It takes any number of values.
    pub variadic: bool,
}

/// What a function yields.
#[derive(Debug, Clone)]
pub struct ReturnType {
    /// The type's own name: a relation's row type has the relation's.
    pub name: QualifiedName,
    /// SETOF or TABLE.
    pub set: bool,
    /// A row: a row type, a domain over one, OUT, INOUT or TABLE arguments, `record`.
    pub composite: bool,
    /// `record` without OUT, INOUT or TABLE arguments: a row whose columns nobody knows before the call.
    pub anonymous: bool,
    /// `void`.
    pub void: bool,
    /// The row type is a relation's, whose name this is: then embeds are possible.
    pub relation: Option<QualifiedName>,
}

/// What a function may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Volatility {
    /// Anything.
    Volatile,
    /// Read.
    Stable,
    /// Compute.
    Immutable,
}

/// The functions behind a domain's implicit casts (19.3).
#[derive(Debug, Clone, Default)]
pub struct Representation {
    /// domain → json: how values go out.
    pub to_json: Option<QualifiedName>,
    /// json → domain: how values of a body come in.
    pub from_json: Option<QualifiedName>,
    /// text → domain: how values of filters come in.
    pub from_text: Option<QualifiedName>,
}

/// A function or aggregate that makes bodies of a media type (10.5).
#[derive(Debug, Clone)]
pub struct MediaHandler {
    /// The media type, or `*/*`, in lower case.
    pub media_type: String,
    /// The aggregate.
    pub function: QualifiedName,
    /// The relation whose rows it takes; `None`: any row (`anyelement`).
    pub relation: Option<QualifiedName>,
    /// It is no aggregate: it answers when it is itself called.
    pub is_function: bool,
}
