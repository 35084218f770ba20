//! Builds the levels of a read plan.

use std::collections::HashSet;
use std::sync::Arc;

use super::sort::orders;
use crate::RestError;
use crate::plan::PlanContext;
use crate::plan::column_path::column_of;
use crate::plan::filter::{RowCondition, filter_condition, tree_condition};
use crate::plan::node::QueryNode;
use crate::plan::tree::{Embed, EmbedShape, Level, LevelSource, OutputColumn, SpreadColumn};
use crate::query::{
    Aggregate, Arrow, Field, Filter, FilterOperation, IsValue, Join, Operand, QuantOperator, SelectColumn, SelectItem,
};
use crate::schema::{Relation, RelationKind, RelationshipKind};

/// PostgreSQL truncates longer names, after which two may be equal.
const LONGEST_NAME: usize = 63;

/// The use of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LevelUse {
    /// The root, or an embed with an object of its own.
    Rows,
    /// A spread to one row; its aggregates are computed at the level above.
    SpreadRow,
    /// A spread to many rows.
    SpreadArrays,
}

/// The position of a level in the plan.
struct LevelContext<'a> {
    source: LevelSource,
    alias: String,
    relation: Option<Arc<Relation>>,
    /// The prefix of the names of embeds below.
    origin: &'a str,
    depth: usize,
    level_use: LevelUse,
    /// A level above is aggregated.
    expand: bool,
}

/// The columns that a level selects, under construction.
struct LevelOutputs {
    /// The names of a spread's columns so far, as far as PostgreSQL distinguishes them. Its parent
    /// selects them one by one.
    taken: Option<HashSet<String>>,
    columns: Vec<OutputColumn>,
    lifted: Vec<SpreadColumn>,
}

impl LevelOutputs {
    fn of(level_use: LevelUse) -> Self {
        Self { taken: (level_use != LevelUse::Rows).then(HashSet::new), columns: Vec::new(), lifted: Vec::new() }
    }

    fn push(&mut self, mut output: OutputColumn) {
        if let OutputColumn::Column { key, .. } | OutputColumn::CountRows { key, .. } = &mut output {
            *key = self.lift(key);
        }
        self.columns.push(output);
    }

    /// Adds a column of the parent with this key, and returns the column's name at this level. A
    /// key may occur several times; all of them are part of the response.
    fn lift(&mut self, key: &str) -> String {
        let mut column = key.to_owned();
        if let Some(taken) = &mut self.taken {
            while !taken.insert(cut(&column, LONGEST_NAME).to_owned()) {
                column = format!("pgrst_again_{}", taken.len());
            }
        }
        self.lifted.push(SpreadColumn::Key { column: column.clone(), key: key.to_owned() });
        column
    }
}

/// The source of the root level's rows.
pub(super) struct RootSource {
    pub source: LevelSource,
    pub alias: String,
    pub relation: Option<Arc<Relation>>,
    /// The name that errors show.
    pub origin: String,
}

/// Builds the root level, with all levels below it.
///
/// # Errors
/// PGRST103 for a negative limit.
pub(super) fn build_root(
    context: &PlanContext<'_>,
    node: &QueryNode<'_>,
    root: RootSource,
) -> Result<Level, RestError> {
    let RootSource { source, alias, relation, origin } = root;
    let written = source == LevelSource::Written;
    let mut builder = LevelBuilder { context, written, used: HashSet::new(), aggregates: 0 };
    let alias = builder.unique(alias);
    let level_use = LevelUse::Rows;
    let position = LevelContext { source, alias, relation, origin: &origin, depth: 0, level_use, expand: false };
    let (level, _) = builder.level(node, position)?;
    Ok(level)
}

struct LevelBuilder<'a> {
    context: &'a PlanContext<'a>,
    written: bool,
    /// Names in use. An inner name would hide the outer one that a join needs.
    used: HashSet<String>,
    aggregates: usize,
}

impl LevelBuilder<'_> {
    /// Makes a level. Returns it with the columns that a spread of it adds to its parent.
    fn level(
        &mut self,
        node: &QueryNode<'_>,
        position: LevelContext<'_>,
    ) -> Result<(Level, Vec<SpreadColumn>), RestError> {
        let relation = position.relation.as_deref();
        // The types of a function's result are not known, only its columns
        let typed = relation.filter(|_| position.source != LevelSource::Call);
        let aggregated = node.has_aggregates();
        let expand =
            position.expand || aggregated || position.level_use != LevelUse::Rows || self.has_representation(typed);
        let hoist = position.level_use == LevelUse::SpreadRow;
        let mut selected = LevelOutputs::of(position.level_use);
        for item in node.items() {
            self.output(item, (relation, typed), expand, hoist, &mut selected);
        }
        let mut embeds = Vec::with_capacity(node.children.len());
        for child in &node.children {
            let mut embed = self.embed(child, &position, aggregated || position.expand)?;
            if let EmbedShape::Spread(of_child) | EmbedShape::SpreadArrays(of_child) = &mut embed.shape {
                for each in of_child.iter_mut() {
                    match (hoist, &*each) {
                        // At this level it is a plain column
                        (true, SpreadColumn::Aggregated { input, .. }) => {
                            let through = input.clone();
                            selected.lifted.push(each.clone());
                            *each = through.map_or(SpreadColumn::Nothing, |input| SpreadColumn::Key {
                                column: input.clone(),
                                key: input,
                            });
                        }
                        (_, SpreadColumn::Key { column, key }) => {
                            *each = SpreadColumn::Key { column: column.clone(), key: selected.lift(key) };
                        }
                        _ => selected.lifted.push(each.clone()),
                    }
                }
            } else if embed.shape != EmbedShape::Hidden {
                embed.key = selected.lift(&embed.key);
            }
            embeds.push(embed);
        }
        let order = orders(node, typed, &mut embeds);
        let filtered = !matches!(position.source, LevelSource::Written);
        let conditions = if filtered { self.conditions(node, typed) } else { Vec::new() };
        let to_one = node.relationship.as_ref().is_some_and(|relationship| relationship.is_to_one());
        let (limit, offset) = if filtered { self.range(node, to_one, relation)? } else { (None, None) };
        let level = Level {
            source: position.source,
            alias: position.alias,
            relation: position.relation.clone(),
            columns: selected.columns,
            embeds,
            conditions,
            order,
            limit,
            offset,
            aggregated: aggregated && !hoist,
            repeated: node.repeated_key().map(|key| format!("{}_{key}_{}", position.origin, position.depth + 1)),
        };
        Ok((level, selected.lifted))
    }

    fn embed(&mut self, child: &QueryNode<'_>, parent: &LevelContext<'_>, expand: bool) -> Result<Embed, RestError> {
        let (Some(item), Some(relationship)) = (child.item, child.relationship.clone()) else {
            return Err(RestError::Internal);
        };
        let depth = parent.depth + 1;
        let target = &relationship.target;
        let source = match &relationship.kind {
            RelationshipKind::Computed { function, .. } => LevelSource::Computed(function.clone()),
            _ => LevelSource::Relation(target.clone()),
        };
        let alias = self.numbered(&target.name, depth);
        let junction_alias = match &relationship.kind {
            RelationshipKind::ManyToMany(junction) => self.numbered(&junction.relation.name, depth),
            _ => String::new(),
        };
        let key = child.key().to_owned();
        let lateral = self.numbered(&format!("{}_{key}", parent.origin), depth);
        let level_use = match (item.spread, relationship.is_to_one()) {
            (false, _) => LevelUse::Rows,
            (true, true) => LevelUse::SpreadRow,
            (true, false) => LevelUse::SpreadArrays,
        };
        let relation = self.context.cache.relation(&target.schema, &target.name).cloned();
        let position = LevelContext { source, alias, relation, origin: &target.name, depth, level_use, expand };
        let (level, lifted) = self.level(child, position)?;
        let shape = match (level_use, relationship.is_to_one()) {
            _ if child.selects_nothing() => EmbedShape::Hidden,
            (LevelUse::SpreadRow, _) => EmbedShape::Spread(lifted),
            (LevelUse::SpreadArrays, _) => EmbedShape::SpreadArrays(lifted),
            (LevelUse::Rows, true) => EmbedShape::Object,
            (LevelUse::Rows, false) => EmbedShape::Array,
        };
        let join = item.join.unwrap_or(Join::Left);
        Ok(Embed { relationship, key, alias: lateral, junction_alias, join, shape, level, ordered_by: Vec::new() })
    }

    fn output(
        &mut self,
        item: &SelectItem,
        (relation, typed): (Option<&Relation>, Option<&Relation>),
        expand: bool,
        hoist: bool,
        selected: &mut LevelOutputs,
    ) {
        match (item, relation) {
            (SelectItem::Star, Some(relation)) if expand => {
                for name in relation.columns.keys() {
                    let field = Field { name: name.clone(), json_path: Vec::new() };
                    let column = SelectColumn { alias: None, field, cast: None, aggregate: None, aggregate_cast: None };
                    selected.push(self.column(&column, typed));
                }
            }
            (SelectItem::Star, _) => {
                selected.lifted.push(SpreadColumn::Star);
                selected.columns.push(OutputColumn::Star);
            }
            (SelectItem::Column(column), _) => match (column.aggregate, hoist) {
                (Some(aggregate), true) => {
                    self.aggregates += 1;
                    let input = format!("pgrst_agg_{}", self.aggregates);
                    let key = column.alias.clone().unwrap_or_else(|| name_of(aggregate).to_owned());
                    let cast = column.aggregate_cast.clone();
                    selected.lifted.push(SpreadColumn::Aggregated { input: Some(input.clone()), aggregate, cast, key });
                    selected.columns.push(OutputColumn::Column {
                        column: column_of(typed, &column.field),
                        representation: None,
                        cast: column.cast.clone(),
                        aggregate: None,
                        aggregate_cast: None,
                        key: input,
                    });
                }
                _ => selected.push(self.column(column, typed)),
            },
            (SelectItem::CountRows { alias, cast }, _) => {
                let key = alias.clone().unwrap_or_else(|| "count".to_owned());
                if hoist {
                    let aggregate = Aggregate::Count;
                    selected.lifted.push(SpreadColumn::Aggregated { input: None, aggregate, cast: cast.clone(), key });
                } else {
                    selected.push(OutputColumn::CountRows { cast: cast.clone(), key });
                }
            }
            (SelectItem::Relation(_), _) => {}
        }
    }

    fn column(&self, column: &SelectColumn, relation: Option<&Relation>) -> OutputColumn {
        let field = &column.field;
        // Results of functions and aggregated columns have no representation
        let representation = relation
            .filter(|_| column.aggregate.is_none())
            .and_then(|relation| relation.columns.get(&field.name)?.domain.as_ref())
            .and_then(|domain| self.context.cache.representations.get(domain)?.to_json.clone());
        let named = |name: &str| name.to_owned();
        let key = match (&column.alias, column.aggregate, &representation) {
            (Some(alias), ..) => named(alias),
            (None, Some(aggregate), _) => named(name_of(aggregate)),
            (None, None, Some(_)) => named(&field.name),
            (None, None, None) => named(last_key(field)),
        };
        let mut known = column_of(relation, field);
        known.to_json &= representation.is_none();
        OutputColumn::Column {
            column: known,
            representation,
            cast: column.cast.clone(),
            aggregate: column.aggregate,
            aggregate_cast: column.aggregate_cast.clone(),
            key,
        }
    }

    fn has_representation(&self, relation: Option<&Relation>) -> bool {
        let representations = &self.context.cache.representations;
        !representations.is_empty()
            && relation.is_some_and(|relation| {
                relation.columns.values().any(|column| {
                    let domain = column.domain.as_ref();
                    domain.and_then(|domain| representations.get(domain)).is_some_and(|found| found.to_json.is_some())
                })
            })
    }

    fn conditions(&self, node: &QueryNode<'_>, relation: Option<&Relation>) -> Vec<RowCondition> {
        let on_embed = |filter: &Filter| null_filter(node, filter);
        let filters = node
            .filters
            .iter()
            .map(|filter| on_embed(filter).unwrap_or_else(|| filter_condition(self.context, relation, filter)));
        let logic = node.logic.iter().map(|tree| tree_condition(self.context, relation, tree, &on_embed));
        filters.chain(logic).collect()
    }

    /// Returns LIMIT and OFFSET. The operator's limit is left out where there is at most one row
    /// anyway, which makes the execution plan one node shorter.
    fn range(
        &self,
        node: &QueryNode<'_>,
        to_one: bool,
        relation: Option<&Relation>,
    ) -> Result<(Option<u64>, Option<u64>), RestError> {
        let requested = node.range.limit.map(u64::try_from).transpose().map_err(|_| RestError::Range {
            details: "Limit should be greater than or equal to zero.".to_owned(),
            content_range: None,
        })?;
        // There is only one row; a view may have more
        let requested = requested.filter(|requested| *requested == 0 || !to_one);
        let offset = node.range.offset.and_then(|offset| u64::try_from(offset).ok()).filter(|offset| *offset > 0);
        let most = self.context.settings.max_rows.filter(|_| !self.written);
        let single = to_one || relation.is_some_and(|relation| finds_one_row(node, relation));
        let limit = match (requested, most) {
            (requested, Some(most)) if most > 0 && single => requested,
            (Some(requested), Some(most)) => Some(requested.min(most)),
            (requested, most) => requested.or(most),
        };
        Ok((limit, offset))
    }

    /// Returns a name with the depth: `films_1`.
    fn numbered(&mut self, name: &str, depth: usize) -> String {
        let number = format!("_{depth}");
        self.unique(format!("{}{number}", cut(name, LONGEST_NAME - number.len())))
    }

    fn unique(&mut self, mut name: String) -> String {
        while !self.used.insert(name.clone()) {
            name = format!("{}_{}", cut(&name, LONGEST_NAME - 6), self.used.len());
        }
        name
    }
}

/// Returns the first bytes of a name, up to a character boundary.
fn cut(name: &str, most: usize) -> &str {
    let mut end = most.min(name.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Returns the SQL name of an aggregate, which is also the key of its value.
pub(crate) fn name_of(aggregate: Aggregate) -> &'static str {
    match aggregate {
        Aggregate::Sum => "sum",
        Aggregate::Avg => "avg",
        Aggregate::Count => "count",
        Aggregate::Max => "max",
        Aggregate::Min => "min",
    }
}

/// Returns the key of a value without an alias.
fn last_key(field: &Field) -> &str {
    let keys = field.json_path.iter().rev().filter_map(|step| match (&step.operand, step.arrow) {
        (Operand::Key(key), Arrow::Json | Arrow::Text) => Some(key.as_str()),
        (Operand::Index(_), _) => None,
    });
    keys.into_iter().next().unwrap_or(&field.name)
}

/// Returns the condition of `embed=is.null` or `embed=not.is.null`. No other filter on an embed is
/// a condition on its rows.
fn null_filter(node: &QueryNode<'_>, filter: &Filter) -> Option<RowCondition> {
    if filter.operation != FilterOperation::Is(IsValue::Null) || !filter.field.json_path.is_empty() {
        return None;
    }
    let embed = node.children.iter().position(|child| child.key() == filter.field.name)?;
    Some(RowCondition::Exists { embed, wanted: filter.negated })
}

/// Returns true if every column of the primary key is compared with one value. The key of a view is
/// inferred and guarantees nothing.
fn finds_one_row(node: &QueryNode<'_>, relation: &Relation) -> bool {
    let compared = |name: &String| {
        node.filters.iter().any(|filter| {
            !filter.negated
                && filter.field.name == *name
                && filter.field.json_path.is_empty()
                && matches!(filter.operation, FilterOperation::Quantified(QuantOperator::Equal, None, _))
        })
    };
    matches!(relation.kind, RelationKind::Table | RelationKind::PartitionedTable)
        && !relation.primary_key.is_empty()
        && relation.primary_key.iter().all(compared)
}
