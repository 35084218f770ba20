//! A page of a level's rows, selected before anything is computed for them.
//!
//! PostgreSQL also computes the outputs of rows that OFFSET skips: a page at offset 1000 would
//! compute and discard the embeds of a thousand rows. Where there is an offset and work per row, a
//! subselect finds the page (conditions, order, limit, offset), and the outputs are computed for
//! its rows.

use super::Sql;
use crate::plan::{Embed, EmbedShape, EmbedSortKey, Level, LevelSource, OutputColumn, SortExpression, counts_rows};
use crate::schema::{QualifiedName, RelationshipKind};

/// The output of the subselect. Only what is needed is selected, since privileges may be limited to
/// single columns.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SubselectOutput<'a> {
    /// All columns.
    Star,
    /// These columns, each once.
    Columns(Vec<&'a str>),
    /// The row as a value of the relation's type, for functions that take it.
    Row(&'a QualifiedName),
}

/// The system columns of a table, which a value of its row type does not have.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "ctid", "xmin", "xmax", "cmin", "cmax"];

impl<'a> SubselectOutput<'a> {
    /// Returns the page of a level, if a subselect is worth it. `embed` is the relationship to the
    /// level above.
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
                // The page itself depends on the embed
                SortExpression::Embed(..) => return None,
            }
        }
        for embed in &level.embeds {
            needed.work |= embed.shape != EmbedShape::Hidden;
            needed.add_origin(&embed.relationship.kind);
        }
        for key in embed.iter().flat_map(|embed| &embed.ordered_by) {
            // Outputs are already among the columns
            if let EmbedSortKey::Column(column) = key {
                needed.add(&column.name);
            }
        }
        if !needed.work || needed.columns.iter().any(|name| SYSTEM_COLUMNS.contains(name)) {
            return None;
        }
        // A name that is no column is a function of the row
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

    /// Appends the select list of the subselect, over rows with the name `alias`.
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

    /// Appends the name of the subselect's rows, which is `alias` again.
    pub(super) fn name(&self, sql: &mut Sql, alias: &str) {
        match self {
            // The rows of a subselect have no type of their own; those of a function do
            Self::Row(_) => sql.raw("pgrst_page, LATERAL unnest(ARRAY[pgrst_page.pgrst_row]) AS ").name(alias),
            Self::Star | Self::Columns(_) => sql.name(alias),
        };
    }
}

/// The columns that are needed once the page is found.
#[derive(Default)]
struct NeededColumns<'a> {
    /// Outputs need work for each row.
    work: bool,
    star: bool,
    /// Functions take the row as a value.
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
