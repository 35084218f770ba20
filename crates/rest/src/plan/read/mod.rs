//! The plan of a read: a query as a tree of levels.
//!
//! The order of the checks is the order of errors: names that are no embeds, then relationships,
//! then sort terms of embeds, then aggregates. Levels are made only after that.

mod level;
mod sort;

use std::sync::Arc;

pub(crate) use self::level::name_of;
use self::level::{RootSource, build_root};
use super::node::QueryNode;
use super::tree::{LevelSource, OutputColumn, ReadPlan, ReturnedColumns, SortExpression};
use super::{PlanContext, embed};
use crate::RestError;
use crate::query::RequestQuery;
use crate::schema::{QualifiedName, Relation, RelationshipKind, Routine};

/// The source of the rows that are read.
#[derive(Debug, Clone, Copy)]
pub enum ReadRoot<'a> {
    /// A relation.
    Relation(&'a Arc<Relation>),
    /// The rows that a write returned, in the CTE `pgrst_source`. Filters and limits of the root do
    /// not apply.
    Written(&'a Arc<Relation>),
    /// A function.
    Call(&'a Arc<Routine>),
}

/// The name of a function's rows in the statement.
pub const CALL: &str = "pgrst_call";

impl ReadPlan {
    /// Plans the read of a query's `select`, filters, orders and limits.
    ///
    /// # Errors
    ///
    /// PGRST108, 200, 201, 118, 123 and 127, in this order; PGRST103 for a negative limit.
    pub fn new(context: &PlanContext<'_>, root: ReadRoot<'_>, query: &RequestQuery) -> Result<Self, RestError> {
        let mut legacy_names = Vec::new();
        let node = QueryNode::of_query(query, context.settings.legacy_target_names, &mut legacy_names)?;
        let node = embed::resolve(context, &root.name(), root.relation_name().is_some(), node)?;
        node.check_orders(&root.name().name)?;
        node.check_aggregates(context.settings.aggregates)?;
        let (source, alias, relation) = match root {
            ReadRoot::Relation(relation) => {
                (LevelSource::Relation(relation.name.clone()), relation.name.name.clone(), Some(Arc::clone(relation)))
            }
            ReadRoot::Written(relation) => {
                (LevelSource::Written, relation.name.name.clone(), Some(Arc::clone(relation)))
            }
            ReadRoot::Call(routine) => {
                let relation = routine.returns.relation.as_ref();
                let relation = relation.and_then(|name| context.cache.relation(&name.schema, &name.name));
                (LevelSource::Call, CALL.to_owned(), relation.cloned())
            }
        };
        let origin = root.name().name;
        let root = build_root(context, &node, RootSource { source, alias, relation, origin })?;
        Ok(Self { root, legacy_names })
    }

    /// Returns the columns that a write has to return so that this plan can read its rows: selected
    /// columns, sort keys, the origin's columns of relationships, and the primary key. A computed
    /// relationship takes a whole row and needs every column.
    pub fn returned_columns(&self) -> ReturnedColumns {
        let level = &self.root;
        let mut all = false;
        let mut names: Vec<&str> = Vec::new();
        for output in &level.columns {
            match output {
                OutputColumn::Star => all = true,
                OutputColumn::Column { column, .. } => names.push(&column.name),
                OutputColumn::CountRows { .. } => {}
            }
        }
        for order in &level.order {
            if let SortExpression::Column(column) = &order.by {
                names.push(&column.name);
            }
        }
        for embed in &level.embeds {
            match &embed.relationship.kind {
                RelationshipKind::ManyToOne { columns, .. }
                | RelationshipKind::OneToMany { columns, .. }
                | RelationshipKind::OneToOne { columns, .. } => {
                    names.extend(columns.iter().map(|(origin, _)| origin.as_str()));
                }
                RelationshipKind::ManyToMany(junction) => {
                    names.extend(junction.origin_columns.iter().map(|(origin, _)| origin.as_str()));
                }
                RelationshipKind::Computed { .. } => all = true,
            }
        }
        let known = |name: &str| level.relation.as_ref().is_some_and(|relation| relation.columns.contains_key(name));
        if let Some(relation) = &level.relation {
            names.extend(relation.primary_key.iter().map(String::as_str));
        }
        let mut columns: Vec<String> = Vec::new();
        for name in names {
            let there = (all && known(name)) || columns.iter().any(|column| column == name);
            if !there {
                columns.push(name.to_owned());
            }
        }
        ReturnedColumns { all, columns }
    }
}

impl ReadRoot<'_> {
    /// Returns the name that errors show, at which relationships start.
    fn name(&self) -> QualifiedName {
        match self {
            Self::Relation(relation) | Self::Written(relation) => relation.name.clone(),
            Self::Call(routine) => routine.returns.relation.clone().unwrap_or_else(|| routine.name.clone()),
        }
    }

    fn relation_name(&self) -> Option<&QualifiedName> {
        match self {
            Self::Relation(relation) | Self::Written(relation) => Some(&relation.name),
            Self::Call(routine) => routine.returns.relation.as_ref(),
        }
    }
}
