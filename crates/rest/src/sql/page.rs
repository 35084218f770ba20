//! A page of a level's rows, found before anything is computed of them.
//!
//! PostgreSQL computes what is selected for the rows that OFFSET passes over, too: a page at offset 1000 would have the embeds of a
//! thousand rows more made and thrown away. Where there is an offset and work per row, a subselect finds the page
//! (conditions, order, limit, offset), and the outputs are computed over that.

use super::Sql;
use crate::plan::{Embed, EmbedShape, EmbedSortKey, Level, LevelSource, OutputColumn, SortExpression, counts_rows};
use crate::schema::{QualifiedName, RelationshipKind};

/// What the subselect yields of each row. Only what is needed: privileges may be those of single columns.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Page<'a> {
    /// All columns.
    Star,
    /// These columns, each once.
    Columns(Vec<&'a str>),
    /// The row as a value of the relation's type, for functions that take it.
    Row(&'a QualifiedName),
}

/// What every row of a table has besides its columns, which a value of its type does not.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"];

impl<'a> Page<'a> {
    /// The page of a level, if it is worth one. `embed` is how the level belongs to the one above.
    pub(super) fn of(level: &'a Level, embed: Option<&'a Embed>) -> Option<Self> {
        level.offset?;
        let relation = level.relation.as_deref()?;
        if level.aggregated || counts_rows(level) {
            return None;
        }
        let mut needed = NeededColumns::default();
        for output in &level.columns {
            match output {
                OutputColumn::Star => needed.star = true,
                OutputColumn::Column { column, representation, .. } => {
                    needed.work |= representation.is_some() || !relation.columns.contains_key(&column.name);
                    needed.add(&column.name);
                }
                OutputColumn::CountRows { .. } => return None,
            }
        }
        for order in &level.order {
            match &order.by {
                SortExpression::Column(column) => needed.add(&column.name),
                // The page itself needs the embed
                SortExpression::Embed(..) => return None,
            }
        }
        for embed in &level.embeds {
            needed.work |= embed.shape != EmbedShape::Hidden;
            needed.add_origin(&embed.relationship.kind);
        }
        for key in embed.iter().flat_map(|embed| &embed.ordered_by) {
            // Outputs are among the columns already
            if let EmbedSortKey::Column(column) = key {
                needed.add(&column.name);
            }
        }
        if !needed.work || needed.columns.iter().any(|name| SYSTEM_COLUMNS.contains(name)) {
            return None;
        }
        // What is no column is a function of the row
        let has_functions = needed.columns.iter().any(|name| !relation.columns.contains_key(*name));
        match level.source {
            LevelSource::Written => None,
            LevelSource::Call if has_functions => None,
            LevelSource::Call if needed.star || needed.rows => Some(Self::Star),
            _ if has_functions || needed.rows => Some(Self::Row(&relation.name)),
            _ if needed.star => Some(Self::Star),
            _ => Some(Self::Columns(needed.columns)),
        }
    }

    /// Appends the select list of the subselect, over rows called `alias`.
    pub(super) fn select_list(&self, sql: &mut Sql, alias: &str) {
        match self {
            Self::Star => {
                sql.name(alias).raw(".*");
            }
            Self::Columns(names) => {
                sql.list(", ", names, |sql, name| {
                    sql.qualified(alias, name);
                });
            }
            Self::Row(relation) => {
                sql.raw("(").name(alias).raw(".*)::").qualified(&relation.schema, &relation.name).raw(" AS pgrst_row");
            }
        }
    }

    /// Appends how the subselect is called: its rows have the name `alias` again.
    pub(super) fn name(&self, sql: &mut Sql, alias: &str) {
        match self {
            // The rows of a subselect have no type of their own; those of a function do
            Self::Row(_) => sql.raw("pgrst_page, LATERAL unnest(ARRAY[pgrst_page.pgrst_row]) AS ").name(alias),
            Self::Star | Self::Columns(_) => sql.name(alias),
        };
    }
}

/// What is needed of a row once the page is found.
#[derive(Default)]
struct NeededColumns<'a> {
    /// Something is computed of each row.
    work: bool,
    star: bool,
    /// Functions take the row.
    rows: bool,
    columns: Vec<&'a str>,
}

impl<'a> NeededColumns<'a> {
    fn add(&mut self, name: &'a str) {
        if !self.columns.contains(&name) {
            self.columns.push(name);
        }
    }

    fn add_origin(&mut self, kind: &'a RelationshipKind) {
        match kind {
            RelationshipKind::ManyToOne { columns, .. }
            | RelationshipKind::OneToMany { columns, .. }
            | RelationshipKind::OneToOne { columns, .. } => columns.iter().for_each(|(origin, _)| self.add(origin)),
            RelationshipKind::ManyToMany(junction) => {
                junction.origin_columns.iter().for_each(|(origin, _)| self.add(origin));
            }
            RelationshipKind::Computed { .. } => self.rows = true,
        }
    }
}
