//! A query's `select` as a tree of nodes, each with the parameters of its level.

use std::collections::HashSet;
use std::sync::Arc;

use crate::RestError;
use crate::query::{Filter, LogicTree, OrderTerm, RequestQuery, RowRange, SelectItem, SelectRelation};
use crate::schema::Relationship;

/// A level of the query.
pub(super) struct QueryNode<'q> {
    /// The item that selects it; `None` for the root.
    pub(super) item: Option<&'q SelectRelation>,
    /// The items that it selects.
    select: &'q [SelectItem],
    pub(super) filters: Vec<&'q Filter>,
    pub(super) logic: Vec<&'q LogicTree>,
    pub(super) order: &'q [OrderTerm],
    pub(super) range: RowRange,
    /// The relations in `select`, in order.
    pub(super) children: Vec<QueryNode<'q>>,
    /// The relationship to its parent; `None` for the root.
    pub(super) relationship: Option<Arc<Relationship>>,
}

/// The meaning of an absent `select`.
const EVERYTHING: &[SelectItem] = &[SelectItem::Star];

impl<'q> QueryNode<'q> {
    /// Makes the tree of a query. `legacy`: a level with an alias may also be addressed by its
    /// name. Each use is added to `used`, with the alias.
    pub(super) fn of_query(
        query: &'q RequestQuery,
        legacy: bool,
        used: &mut Vec<(String, String)>,
    ) -> Result<Self, RestError> {
        let select = if query.select.is_empty() { EVERYTHING } else { &query.select };
        let mut root = Self::of_select(None, select);
        for at in &query.filters {
            root.at(&at.path, legacy, used)?.filters.push(&at.value);
        }
        for at in &query.orders {
            root.at(&at.path, legacy, used)?.order = &at.value;
        }
        for at in &query.ranges {
            root.at(&at.path, legacy, used)?.range = at.value;
        }
        for at in &query.logic {
            root.at(&at.path, legacy, used)?.logic.push(&at.value);
        }
        Ok(root)
    }

    fn of_select(item: Option<&'q SelectRelation>, select: &'q [SelectItem]) -> Self {
        let children = select.iter().filter_map(|item| match item {
            SelectItem::Relation(relation) => Some(Self::of_select(Some(relation), &relation.select)),
            _ => None,
        });
        Self {
            item,
            select,
            filters: Vec::new(),
            logic: Vec::new(),
            order: &[],
            range: RowRange::default(),
            children: children.collect(),
            relationship: None,
        }
    }

    /// Returns the level at a path. Each step is an alias or a name; the first match counts.
    fn at(&mut self, path: &[String], legacy: bool, used: &mut Vec<(String, String)>) -> Result<&mut Self, RestError> {
        let Some((step, rest)) = path.split_first() else {
            return Ok(self);
        };
        let is_step = |child: &Self| child.key() == step || (legacy && child.name() == step);
        let Some(found) = self.children.iter().position(is_step) else {
            let aliased = self.children.iter().find(|child| child.name() == step);
            let alias = aliased.map(|child| child.key().to_owned());
            return Err(RestError::NotEmbedded { name: step.clone(), alias });
        };
        let child = &mut self.children[found];
        if child.key() != step {
            let names = (step.clone(), child.key().to_owned());
            if !used.contains(&names) {
                used.push(names);
            }
        }
        child.at(rest, legacy, used)
    }

    /// Replaces each child by the one that `map` returns.
    pub(super) fn try_map_children(self, map: impl FnMut(Self) -> Result<Self, RestError>) -> Result<Self, RestError> {
        let children = self.children.into_iter().map(map).collect::<Result<_, _>>()?;
        Ok(Self { children, ..self })
    }

    /// Sets the relationship to the parent.
    pub(super) fn with_relationship(self, relationship: Arc<Relationship>) -> Self {
        Self { relationship: Some(relationship), ..self }
    }

    /// Returns the items that are not relations.
    pub(super) fn items(&self) -> impl Iterator<Item = &'q SelectItem> {
        self.select.iter().filter(|item| !matches!(item, SelectItem::Relation(_)))
    }

    /// Returns the requested name of the relation.
    pub(super) fn name(&self) -> &'q str {
        self.item.map_or("", |item| &item.name)
    }

    /// Returns the alias, or the name if there is none.
    pub(super) fn key(&self) -> &'q str {
        self.item.map_or("", |item| item.alias.as_deref().unwrap_or(&item.name))
    }

    /// Returns true if nothing of it is selected, at any depth: the embed is a filter only.
    pub(super) fn selects_nothing(&self) -> bool {
        self.items().next().is_none() && self.children.iter().all(Self::selects_nothing)
    }

    /// Returns a key that two of its embeds have, if there is one. Their joins would have the same
    /// name.
    pub(super) fn repeated_key(&self) -> Option<&'q str> {
        let mut keys = HashSet::new();
        self.children.iter().map(Self::key).find(|key| !keys.insert(*key))
    }

    fn is_to_one(&self) -> bool {
        self.relationship.as_ref().is_some_and(|relationship| relationship.is_to_one())
    }

    fn is_spread(&self) -> bool {
        self.item.is_some_and(|item| item.spread)
    }

    fn has_own_aggregates(&self) -> bool {
        self.items().any(|item| match item {
            SelectItem::Column(column) => column.aggregate.is_some(),
            item => matches!(item, SelectItem::CountRows { .. }),
        })
    }

    /// Returns true if its rows are grouped, because of its own aggregates or those of spreads to
    /// one row.
    pub(super) fn has_aggregates(&self) -> bool {
        let lifts = |child: &Self| child.is_spread() && child.is_to_one() && child.has_aggregates();
        self.has_own_aggregates() || self.children.iter().any(lifts)
    }

    /// Checks that sort terms refer to embeds that exist and lead to one row.
    pub(super) fn check_orders(&self, origin: &str) -> Result<(), RestError> {
        for name in self.order.iter().filter_map(|term| term.relation.as_ref()) {
            let Some(child) = self.children.iter().find(|child| child.key() == name) else {
                return Err(RestError::NotEmbedded { name: name.clone(), alias: None });
            };
            if !child.is_to_one() {
                return Err(RestError::RelatedOrder { origin: origin.to_owned(), target: child.key().to_owned() });
            }
        }
        self.children.iter().try_for_each(|child| match &child.relationship {
            Some(relationship) => child.check_orders(&relationship.target.name),
            None => Ok(()),
        })
    }

    /// Checks that aggregates are enabled, and that no spread to many rows has them.
    pub(super) fn check_aggregates(&self, enabled: bool) -> Result<(), RestError> {
        if !enabled && self.any(&Self::has_own_aggregates) {
            return Err(RestError::Aggregates);
        }
        if self.any(&|node| node.is_spread() && !node.is_to_one() && node.has_aggregates()) {
            return Err(RestError::NotImplemented(
                "Aggregates are not implemented for one-to-many or many-to-many spreads.".to_owned(),
            ));
        }
        Ok(())
    }

    fn any(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        test(self) || self.children.iter().any(|child| child.any(test))
    }
}
