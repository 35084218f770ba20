//! The rows of PostgreSQL's catalog, as the statements of `sql/` return them.

use std::collections::HashMap;

use tokio_postgres::{Error, Row};

use super::model::{QualifiedName, Representation};
use super::relationships::ComputedRelationship;
use super::views::{ColumnId, ViewColumns, shown_columns};

/// `sql/relations.sql`
pub(crate) struct RelationRow {
    pub oid: u32,
    pub row_type: u32,
    pub name: QualifiedName,
    pub kind: String,
    pub comment: Option<String>,
    pub writable: i32,
    pub repeats_keys: bool,
}

/// `sql/columns.sql`
pub(crate) struct ColumnRow {
    pub relation: u32,
    pub number: i16,
    pub name: String,
    pub comment: Option<String>,
    pub not_null: bool,
    pub type_id: u32,
    pub type_modifier: i32,
    pub nominal_type: String,
    pub default: Option<String>,
    /// A generated column or an identity: a default of its type does not apply.
    pub is_made: bool,
}

/// `sql/types.sql`
pub(crate) struct TypeRow {
    pub oid: u32,
    pub name: QualifiedName,
    pub kind: TypeKind,
    /// For a domain, the type that it is over.
    pub base: u32,
    pub modifier: i32,
    pub not_null: bool,
    pub default: Option<String>,
    pub is_system: bool,
    pub formatted: String,
    pub labels: Vec<String>,
}

/// The kinds of types that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TypeKind {
    Domain,
    Row,
    Other,
}

/// `sql/keys.sql`
pub(crate) struct KeyRow {
    pub kind: KeyKind,
    pub name: String,
    pub table: u32,
    pub referenced_table: u32,
    pub columns: Vec<i16>,
    pub referenced_columns: Vec<i16>,
}

/// The kind of a constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Primary,
    Unique,
    Foreign,
}

/// `sql/routines.sql`
pub(crate) struct RoutineRow {
    pub oid: u32,
    pub name: QualifiedName,
    pub comment: Option<String>,
    /// The names of all arguments, in and out; empty texts, or an empty list, for arguments without
    /// a name.
    pub names: Vec<String>,
    /// The modes of all arguments; empty if all are `i`.
    pub modes: Vec<String>,
    pub types: Vec<String>,
    pub inputs: i16,
    pub defaults: i16,
    pub volatility: String,
    pub variadic: bool,
    pub settings: Vec<String>,
    pub returns_set: bool,
    pub returned_type: u32,
}

/// `sql/representations.sql`
pub(crate) struct RepresentationRow {
    pub source: u32,
    pub target: u32,
    pub function: QualifiedName,
    pub from_domain: bool,
    pub is_json: bool,
}

/// `sql/media_handlers.sql`
pub(crate) struct MediaHandlerRow {
    pub function: QualifiedName,
    pub is_function: bool,
    pub media_type: String,
    pub relation: Option<QualifiedName>,
}

/// All rows that were read.
pub(crate) struct SchemaCatalog {
    pub relations: Vec<RelationRow>,
    pub columns: Vec<ColumnRow>,
    pub types: HashMap<u32, TypeRow>,
    pub keys: Vec<KeyRow>,
    /// The columns that each view shows.
    pub views: ViewColumns,
    pub routines: Vec<RoutineRow>,
    pub computed: Vec<ComputedRelationship>,
    pub representations: Vec<RepresentationRow>,
    pub media_handlers: Vec<MediaHandlerRow>,
    pub schema_comments: HashMap<String, String>,
}

fn name(row: &Row, at: usize) -> Result<QualifiedName, Error> {
    Ok(QualifiedName { schema: row.try_get(at)?, name: row.try_get(at + 1)? })
}

impl RelationRow {
    pub fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            oid: row.try_get(0)?,
            row_type: row.try_get(1)?,
            name: name(row, 2)?,
            kind: row.try_get(4)?,
            comment: row.try_get(5)?,
            writable: row.try_get(6)?,
            repeats_keys: row.try_get(7)?,
        })
    }
}

impl ColumnRow {
    pub fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            relation: row.try_get(0)?,
            number: row.try_get(1)?,
            name: row.try_get(2)?,
            comment: row.try_get(3)?,
            not_null: row.try_get(4)?,
            type_id: row.try_get(5)?,
            type_modifier: row.try_get(6)?,
            nominal_type: row.try_get(7)?,
            default: row.try_get(8)?,
            is_made: row.try_get(9)?,
        })
    }
}

impl TypeRow {
    pub fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            oid: row.try_get(0)?,
            name: name(row, 1)?,
            kind: match row.try_get(3)? {
                "d" => TypeKind::Domain,
                "c" => TypeKind::Row,
                _ => TypeKind::Other,
            },
            base: row.try_get(4)?,
            modifier: row.try_get(5)?,
            not_null: row.try_get(6)?,
            default: row.try_get(7)?,
            is_system: row.try_get(8)?,
            formatted: row.try_get(9)?,
            labels: row.try_get::<_, Option<_>>(10)?.unwrap_or_default(),
        })
    }
}

impl KeyRow {
    pub fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            kind: match row.try_get(0)? {
                "p" => KeyKind::Primary,
                "u" => KeyKind::Unique,
                _ => KeyKind::Foreign,
            },
            name: row.try_get(1)?,
            table: row.try_get(2)?,
            referenced_table: row.try_get(3)?,
            columns: row.try_get::<_, Option<_>>(4)?.unwrap_or_default(),
            referenced_columns: row.try_get::<_, Option<_>>(5)?.unwrap_or_default(),
        })
    }
}

impl RoutineRow {
    pub fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            name: name(row, 0)?,
            comment: row.try_get(2)?,
            names: row.try_get::<_, Option<_>>(3)?.unwrap_or_default(),
            modes: row.try_get::<_, Option<_>>(4)?.unwrap_or_default(),
            types: row.try_get(5)?,
            inputs: row.try_get(6)?,
            defaults: row.try_get(7)?,
            volatility: row.try_get(8)?,
            variadic: row.try_get(9)?,
            settings: row.try_get::<_, Option<_>>(10)?.unwrap_or_default(),
            returns_set: row.try_get(11)?,
            returned_type: row.try_get(12)?,
            oid: row.try_get(13)?,
        })
    }
}

impl RepresentationRow {
    pub fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            source: row.try_get(0)?,
            target: row.try_get(1)?,
            function: name(row, 2)?,
            from_domain: row.try_get(4)?,
            is_json: row.try_get(5)?,
        })
    }

    /// Returns the oid of the domain.
    pub fn domain(&self) -> u32 {
        if self.from_domain { self.source } else { self.target }
    }

    /// Stores the function.
    pub fn enter(self, representation: &mut Representation) {
        let function = match (self.from_domain, self.is_json) {
            (true, _) => &mut representation.to_json,
            (false, true) => &mut representation.from_json,
            (false, false) => &mut representation.from_text,
        };
        *function = Some(self.function);
    }
}

impl MediaHandlerRow {
    pub fn read(row: &Row) -> Result<Self, Error> {
        let is_function = row.try_get(2)?;
        let relation: Option<String> = row.try_get(4)?;
        Ok(Self {
            function: name(row, 0)?,
            is_function,
            media_type: row.try_get(3)?,
            // For a function, the argument type does not matter
            relation: if is_function || relation.is_none() { None } else { Some(name(row, 4)?) },
        })
    }
}

/// Returns the domains of a type, the outermost first; none if the type is no domain.
pub(crate) fn domains(type_id: u32, types: &HashMap<u32, TypeRow>) -> impl Iterator<Item = &TypeRow> {
    let domain = |id: u32| types.get(&id).filter(|row| row.kind == TypeKind::Domain);
    // PostgreSQL lets no domain be over itself; the limit only guards against an endless loop
    std::iter::successors(domain(type_id), move |outer| domain(outer.base)).take(64)
}

/// Reads a row of `sql/computed.sql`.
pub(crate) fn computed(row: &Row) -> Result<ComputedRelationship, Error> {
    Ok(ComputedRelationship {
        function: name(row, 0)?,
        origin: name(row, 2)?,
        target: name(row, 4)?,
        to_one: row.try_get(6)?,
    })
}

/// Reads a row of `sql/views.sql`.
pub(crate) fn view(row: &Row) -> Result<(u32, Vec<(i16, ColumnId)>), Error> {
    Ok((row.try_get(0)?, shown_columns(row.try_get(1)?)))
}

/// Reads a row of `sql/schemas.sql`.
pub(crate) fn schema_comment(row: &Row) -> Result<(String, String), Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
