//! Properties that hold for every text and for every query.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::print::print;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_parsed_or_rejected(raw in ".{0,200}") {
        for target in [QueryTarget::Relation, QueryTarget::Function { read: true }, QueryTarget::Function { read: false }] {
            let _ = parse(&raw, target);
        }
        canonical(&raw);
    }

    #[test]
    fn any_text_of_the_grammar_s_words_is_parsed_or_rejected(raw in words()) {
        if let Ok(query) = parse(&raw, QueryTarget::Relation) {
            prop_assert_eq!(parse(&print(&query), QueryTarget::Relation).unwrap(), query);
        }
    }

    #[test]
    fn a_printed_query_parses_to_the_same_query(query in query()) {
        let raw = print(&query);
        prop_assert_eq!(parse(&raw, QueryTarget::Relation).unwrap(), query.clone(), "{}", raw);
        // Sorting and encoding anew changes nothing but the order of parameters; merged ones would.
        let mut keys: Vec<_> = raw.split('&').map(|pair| pair.split('=').next()).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.len() == raw.split('&').count() {
            prop_assert_eq!(sorted(parse(&canonical(&raw), QueryTarget::Relation).unwrap()), sorted(query));
        }
    }

    #[test]
    fn casts_and_configurations_are_harmless(raw in words()) {
        fn check(items: &[SelectItem]) {
            for item in items {
                match item {
                    SelectItem::Column(column) => {
                        for cast in column.cast.iter().chain(&column.aggregate_cast) {
                            assert!(cast.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ' ' | '$')), "{cast}");
                        }
                    }
                    SelectItem::Relation(relation) => check(&relation.select),
                    _ => {}
                }
            }
        }
        if let Ok(query) = parse(&raw, QueryTarget::Relation) {
            check(&query.select);
        }
    }
}

fn sorted(mut query: RequestQuery) -> RequestQuery {
    let key = |path: &EmbedPath, value: &dyn std::fmt::Debug| format!("{path:?}{value:?}");
    query.filters.sort_by_key(|at| key(&at.path, &at.value));
    query.logic.sort_by_key(|at| key(&at.path, &at.value));
    query.orders.sort_by_key(|at| key(&at.path, &at.value));
    query.ranges.sort_by_key(|at| key(&at.path, &at.value));
    query
}

fn words() -> impl Strategy<Value = String> {
    let word = select(vec![
        "select=",
        "order=",
        "or=",
        "not.and=",
        "limit=",
        "columns=",
        "on_conflict=",
        "a=",
        "b.c=",
        "&",
        ";",
        "a",
        "b",
        "count",
        "count()",
        "*",
        ",",
        "(",
        ")",
        "!",
        "inner",
        "left",
        "...",
        ":",
        "::",
        "int",
        ".sum()",
        "->",
        "->>",
        "-",
        ".",
        "not.",
        "eq.",
        "in.(",
        "is.null",
        "fts(",
        "like(any).",
        "{",
        "}",
        "%22",
        "%5C",
        "+",
        "0",
        "1",
        "and(",
        "or(",
        ".asc",
        ".nullslast",
        "é",
    ]);
    vec(word, 0..24).prop_map(|words| words.concat())
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{1,6}", ".{1,8}"].prop_filter("negates in the keys of logic", |name| name != "not")
}

/// Returns a JSON path that does not end with an index, which would be a key before a parenthesis.
fn field() -> impl Strategy<Value = Field> {
    let arrow = || select(vec![Arrow::Json, Arrow::Text]);
    let step = (arrow(), prop_oneof![any::<i32>().prop_map(Operand::Index), name().prop_map(Operand::Key)]);
    let last = (arrow(), name().prop_map(Operand::Key));
    let path = option::of((vec(step, 0..3), last)).prop_map(|path| {
        let steps = path.into_iter().flat_map(|(steps, last)| steps.into_iter().chain([last]));
        steps.map(|(arrow, operand)| JsonStep { arrow, operand }).collect()
    });
    (name(), path).prop_map(|(name, json_path)| Field { name, json_path })
}

fn cast() -> impl Strategy<Value = Option<String>> {
    option::of("[a-z_][a-z0-9_$ ]{0,8}[a-z]")
}

fn item() -> impl Strategy<Value = SelectItem> {
    let aggregate = select(vec![Aggregate::Sum, Aggregate::Avg, Aggregate::Count, Aggregate::Max, Aggregate::Min]);
    let column = (option::of(name()), field(), cast(), option::of((aggregate, cast()))).prop_map(
        |(alias, field, cast, aggregate)| {
            let (aggregate, aggregate_cast) =
                aggregate.map_or((None, None), |(aggregate, cast)| (Some(aggregate), cast));
            SelectItem::Column(SelectColumn { alias, field, cast, aggregate, aggregate_cast })
        },
    );
    let leaf = prop_oneof![
        Just(SelectItem::Star),
        (option::of(name()), cast()).prop_map(|(alias, cast)| SelectItem::CountRows { alias, cast }),
        column,
    ];
    leaf.prop_recursive(4, 24, 4, |item| {
        let join = option::of(select(vec![Join::Left, Join::Inner]));
        (any::<bool>(), option::of(name()), name(), option::of(name()), join, vec(item, 0..4)).prop_map(
            |(spread, alias, name, hint, join, select)| {
                let alias = alias.filter(|_| !spread);
                SelectItem::Relation(SelectRelation { spread, alias, name, hint, join, select })
            },
        )
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    use {QuantOperator as Q, SimpleOperator as S};
    let value = || ".{0,12}";
    let simple = select(vec![
        S::NotEqual,
        S::Contains,
        S::ContainedBy,
        S::Overlaps,
        S::StrictlyLeft,
        S::StrictlyRight,
        S::NotExtendsRight,
        S::NotExtendsLeft,
        S::Adjacent,
    ]);
    let quant = select(vec![
        Q::Equal,
        Q::GreaterOrEqual,
        Q::Greater,
        Q::LessOrEqual,
        Q::Less,
        Q::Like,
        Q::ILike,
        Q::Match,
        Q::IMatch,
    ]);
    let quantifier = option::of(select(vec![Quantifier::Any, Quantifier::All]));
    let is = select(vec![IsValue::Null, IsValue::NotNull, IsValue::True, IsValue::False, IsValue::Unknown]);
    let fts = select(vec![Fts::Query, Fts::Plain, Fts::Phrase, Fts::Web]);
    let operation = prop_oneof![
        vec(value(), 0..4)
            .prop_filter("reads as the empty list", |list| !matches!(list.as_slice(), [only] if only.is_empty()))
            .prop_map(FilterOperation::In),
        is.prop_map(FilterOperation::Is),
        value().prop_map(FilterOperation::IsDistinct),
        (fts, cast(), value()).prop_map(|(function, config, value)| FilterOperation::Fts { function, config, value }),
        (simple, value()).prop_map(|(operator, value)| FilterOperation::Simple(operator, value)),
        (quant, quantifier, value())
            .prop_map(|(operator, any, value)| FilterOperation::Quantified(operator, any, value)),
    ];
    (field(), any::<bool>(), operation).prop_map(|(field, negated, operation)| Filter { field, negated, operation })
}

fn logic() -> impl Strategy<Value = LogicTree> {
    fn group(part: impl Strategy<Value = LogicTree>) -> impl Strategy<Value = LogicTree> {
        (any::<bool>(), select(vec![Logic::And, Logic::Or]), vec(part, 1..4))
            .prop_map(|(negated, logic, parts)| LogicTree::Group { negated, logic, parts })
    }
    group(filter().prop_map(LogicTree::Filter).prop_recursive(3, 16, 3, group))
}

fn order() -> impl Strategy<Value = Vec<OrderTerm>> {
    let direction = option::of(select(vec![Direction::Ascending, Direction::Descending]));
    let nulls = option::of(select(vec![Nulls::First, Nulls::Last]));
    let term = (option::of(name()), field(), direction, nulls)
        .prop_map(|(relation, field, direction, nulls)| OrderTerm { relation, field, direction, nulls });
    vec(term, 1..4)
}

/// Returns values at levels.
fn at<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<AtLevel<T>>> {
    vec((vec(name(), 0..3), value).prop_map(|(path, value)| AtLevel { path, value }), 0..3)
}

/// Keeps at most one value at each level.
fn unique<T>(list: Vec<AtLevel<T>>) -> Vec<AtLevel<T>> {
    let mut paths = Vec::new();
    list.into_iter()
        .filter(|at| {
            let new = !paths.contains(&at.path);
            paths.push(at.path.clone());
            new
        })
        .collect()
}

fn query() -> impl Strategy<Value = RequestQuery> {
    let names = || {
        let names = vec(name(), 1..4).prop_map(|names| names.into_iter().collect::<indexmap::IndexSet<_>>());
        option::of(names.prop_map(|names| names.into_iter().collect::<Vec<_>>()))
    };
    let range = (option::of(any::<i64>()), option::of(any::<i64>()))
        .prop_filter("nothing to print", |(limit, offset)| limit.is_some() || offset.is_some())
        .prop_map(|(limit, offset)| RowRange { limit, offset });
    let (filters, logic) = (at(filter()), at(logic()));
    (vec(item(), 0..4), names(), names(), filters, logic, at(order()), at(range)).prop_map(
        |(select, columns, on_conflict, filters, logic, orders, ranges)| RequestQuery {
            select,
            columns,
            on_conflict,
            filters,
            logic,
            orders: unique(orders),
            ranges: unique(ranges),
            arguments: Vec::new(),
        },
    )
}
