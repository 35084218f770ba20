//! Builds the schema cache from the rows of the catalog. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;

use super::catalog::{ColumnRow, KeyKind, KeyRow, RelationRow, SchemaCatalog, TypeRow, domains};
use super::model::{ByName, Column, MediaHandler, QualifiedName, Relation, RelationKind, Representation, SchemaCache};
use super::relationships::{ExposedKey, ForeignKey, MAX_COMBINATIONS, RelationshipSources, derive};
use super::routines::assemble_routine;
use super::views::{ViewColumns, base_columns};

/// Types whose modifier is a number of characters or bits: `character`, `character varying`, `bit`,
/// `bit varying`.
const CHARACTERS: [u32; 2] = [1042, 1043];
const BITS: [u32; 2] = [1560, 1562];
/// The constant that PostgreSQL adds to the length of characters in a modifier.
const LENGTH_HEADER: i32 = 4;

/// Builds the schema cache.
pub(crate) fn assemble(catalog: SchemaCatalog) -> SchemaCache {
    let SchemaCatalog {
        relations,
        columns,
        types,
        keys,
        views,
        routines,
        computed,
        representations,
        media_handlers,
        schema_comments,
    } = catalog;

    let mut by_domain: HashMap<String, Representation> = HashMap::new();
    for row in representations {
        if let Some(domain) = types.get(&row.domain()) {
            row.enter(by_domain.entry(domain.formatted.clone()).or_default());
        }
    }

    let mut columns_of: HashMap<u32, BTreeMap<i16, ColumnRow>> = HashMap::with_capacity(relations.len());
    for row in columns {
        columns_of.entry(row.relation).or_default().insert(row.number, row);
    }
    let named = ExposedRelations::new(&relations, &columns_of, &views);
    let primary_keys = primary_keys(&keys, &named);
    let foreign_keys = foreign_keys(&keys, &named);
    drop(named);

    let row_types: HashMap<u32, QualifiedName> = relations.iter().map(|row| (row.row_type, row.name.clone())).collect();
    let mut by_name = ByName::<Arc<Relation>>::new();
    for row in relations {
        let columns = columns_of.remove(&row.oid).unwrap_or_default().into_values();
        let columns: IndexMap<_, _> =
            columns.map(|row| column(row, &types, &by_domain)).map(|column| (column.name.clone(), column)).collect();
        let primary_key = primary_keys.get(&row.oid).cloned().unwrap_or_default();
        let relation = relation(row, columns, primary_key);
        let QualifiedName { schema, name } = relation.name.clone();
        by_name.entry(schema).or_default().insert(name, Arc::new(relation));
    }

    let relationships =
        derive(RelationshipSources { relations: &by_name, foreign_keys: &foreign_keys, computed: &computed });

    let mut routines_by_name: ByName<Vec<_>> = HashMap::new();
    for routine in routines.into_iter().filter_map(|row| assemble_routine(row, &types, &row_types)) {
        let QualifiedName { schema, name } = routine.name.clone();
        routines_by_name.entry(schema).or_default().entry(name).or_default().push(Arc::new(routine));
    }
    for overloads in routines_by_name.values_mut().flat_map(HashMap::values_mut) {
        // Neither the order in the catalog nor oids survive a dump
        overloads.sort_by(|one, other| {
            let order = |parameters: &[super::model::RoutineParameter]| {
                parameters.iter().map(|each| (each.name.clone(), each.sql_type.clone())).collect::<Vec<_>>()
            };
            let lengths = one.parameters.len().cmp(&other.parameters.len());
            lengths.then_with(|| order(&one.parameters).cmp(&order(&other.parameters)))
        });
    }

    SchemaCache {
        relations: by_name,
        relationships,
        routines: routines_by_name,
        representations: by_domain,
        media_handlers: media_handlers
            .into_iter()
            .map(|row| MediaHandler {
                media_type: row.media_type,
                function: row.function,
                relation: row.relation,
                is_function: row.is_function,
            })
            .collect(),
        time_zones: Arc::default(),
        schema_comments,
    }
}

fn relation(row: RelationRow, columns: IndexMap<String, Column>, primary_key: Vec<String>) -> Relation {
    Relation {
        name: row.name,
        comment: row.comment,
        kind: match row.kind.as_str() {
            "p" => RelationKind::PartitionedTable,
            "v" => RelationKind::View,
            "m" => RelationKind::MaterializedView,
            "f" => RelationKind::ForeignTable,
            _ => RelationKind::Table,
        },
        insertable: row.writable & 8 != 0,
        updatable: row.writable & 4 != 0,
        deletable: row.writable & 16 != 0,
        repeats_keys: row.repeats_keys,
        primary_key,
        columns,
    }
}

fn column(row: ColumnRow, types: &HashMap<u32, TypeRow>, representations: &HashMap<String, Representation>) -> Column {
    let chain: Vec<&TypeRow> = domains(row.type_id, types).collect();
    let base_id = chain.last().map_or(row.type_id, |domain| domain.base);
    let base = types.get(&base_id);
    let modifier = chain
        .iter()
        .map(|domain| domain.modifier)
        .fold(row.type_modifier, |found, own| if found >= 0 { found } else { own });
    let domain = chain.first().map(|domain| &domain.formatted).filter(|name| representations.contains_key(*name));
    let default = match row.default {
        None if !row.is_made => chain.iter().find_map(|domain| domain.default.clone()),
        own => own,
    };
    Column {
        name: row.name,
        comment: row.comment,
        nullable: !row.not_null && !chain.iter().any(|domain| domain.not_null),
        base_type: base.filter(|base| base.is_system).map_or(&row.nominal_type, |base| &base.formatted).clone(),
        max_length: match modifier {
            length if length < 0 => None,
            length if CHARACTERS.contains(&base_id) => Some(length - LENGTH_HEADER),
            length if BITS.contains(&base_id) => Some(length),
            _ => None,
        },
        default,
        enum_labels: base.map(|base| base.labels.clone()).unwrap_or_default(),
        domain: domain.cloned(),
        nominal_type: row.nominal_type,
    }
}

/// The exposed relations by oid, and the views among them that show columns of a table.
struct ExposedRelations<'a> {
    relations: HashMap<u32, &'a RelationRow>,
    columns: &'a HashMap<u32, BTreeMap<i16, ColumnRow>>,
    /// Table → its exposed views, the oldest first → column of the table → columns of the view.
    views: HashMap<u32, BTreeMap<u32, HashMap<i16, BTreeSet<i16>>>>,
}

impl<'a> ExposedRelations<'a> {
    fn new(
        relations: &'a [RelationRow],
        columns: &'a HashMap<u32, BTreeMap<i16, ColumnRow>>,
        shown: &ViewColumns,
    ) -> Self {
        let relations: HashMap<_, _> = relations.iter().map(|row| (row.oid, row)).collect();
        let mut views: HashMap<u32, BTreeMap<u32, HashMap<i16, BTreeSet<i16>>>> = HashMap::new();
        for (view, shown) in base_columns(shown) {
            if relations.contains_key(&view) {
                for (number, (table, column)) in shown {
                    let of_table = views.entry(table).or_default().entry(view).or_default();
                    of_table.entry(column).or_default().insert(number);
                }
            }
        }
        Self { relations, columns, views }
    }

    fn column_name(&self, relation: u32, number: i16) -> Option<&'a str> {
        self.columns.get(&relation)?.get(&number).map(|column| column.name.as_str())
    }

    /// Returns the views that show all columns of a key, with their names of each column.
    fn views_with(&self, table: u32, key: &[i16]) -> impl Iterator<Item = (u32, Vec<Vec<&'a str>>)> {
        self.views.get(&table).into_iter().flatten().filter_map(move |(view, columns)| {
            let aliases = |column: &i16| -> Option<Vec<&'a str>> {
                columns.get(column)?.iter().map(|number| self.column_name(*view, *number)).collect()
            };
            Some((*view, key.iter().map(aliases).collect::<Option<Vec<_>>>()?))
        })
    }

    /// Returns the relations that show a key: the table itself, if it is exposed, and views.
    fn shown(&self, table: u32, key: &[i16]) -> Vec<ExposedKey> {
        let mut shown = Vec::new();
        if let Some(relation) = self.relations.get(&table)
            && let Some(columns) =
                key.iter().map(|number| self.column_name(table, *number).map(str::to_owned)).collect()
        {
            shown.push(ExposedKey { relation: relation.name.clone(), is_view: false, columns });
        }
        for (view, aliases) in self.views_with(table, key) {
            if let Some(relation) = self.relations.get(&view) {
                shown.extend(combinations(&aliases).into_iter().map(|columns| ExposedKey {
                    relation: relation.name.clone(),
                    is_view: true,
                    columns,
                }));
            }
        }
        shown
    }
}

/// Returns all combinations of one name per column: `[[a, b], [c]]` gives `[a, c]` and `[b, c]`.
fn combinations(aliases: &[Vec<&str>]) -> Vec<Vec<String>> {
    let mut all: Vec<Vec<String>> = vec![Vec::with_capacity(aliases.len())];
    for names in aliases {
        all = all
            .iter()
            .flat_map(|prefix| names.iter().map(move |name| [prefix.as_slice(), &[(*name).to_owned()]].concat()))
            .take(MAX_COMBINATIONS)
            .collect();
    }
    all
}

/// Returns the primary keys of exposed tables, and of views: the columns of all keys that a view
/// shows completely.
fn primary_keys(keys: &[KeyRow], named: &ExposedRelations<'_>) -> HashMap<u32, Vec<String>> {
    let mut found: HashMap<u32, BTreeSet<&str>> = HashMap::new();
    for key in keys.iter().filter(|key| key.kind == KeyKind::Primary) {
        let own: Option<Vec<_>> = key.columns.iter().map(|number| named.column_name(key.table, *number)).collect();
        let own = own.map(|columns| (key.table, columns));
        let shown = named
            .views_with(key.table, &key.columns)
            .map(|(view, aliases)| (view, aliases.iter().filter_map(|names| names.first().copied()).collect()));
        for (relation, columns) in own.into_iter().chain(shown) {
            found.entry(relation).or_default().extend(columns);
        }
    }
    let sorted = |columns: BTreeSet<&str>| columns.into_iter().map(str::to_owned).collect();
    found.into_iter().map(|(relation, columns)| (relation, sorted(columns))).collect()
}

fn foreign_keys(keys: &[KeyRow], named: &ExposedRelations<'_>) -> Vec<ForeignKey> {
    let sorted = |key: &KeyRow| {
        let mut columns = key.columns.clone();
        columns.sort_unstable();
        (key.table, columns)
    };
    let unique: HashSet<_> = keys.iter().filter(|key| key.kind != KeyKind::Foreign).map(sorted).collect();
    keys.iter()
        .filter(|key| key.kind == KeyKind::Foreign)
        .map(|key| ForeignKey {
            constraint: key.name.clone(),
            unique: unique.contains(&sorted(key)),
            referencing: named.shown(key.table, &key.columns),
            referenced: named.shown(key.referenced_table, &key.referenced_columns),
        })
        .collect()
}
