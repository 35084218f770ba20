//! Tests of each production, of errors, and of properties that hold for every text.

mod errors;
mod properties;

use std::cell::Cell;

use super::*;
use crate::RestError;

thread_local! {
    static SCANNED: Cell<usize> = const { Cell::new(0) };
}

/// Counts the bytes that the parsers of this thread scan.
pub(super) fn count_scanned(bytes: usize) {
    SCANNED.set(SCANNED.get() + bytes);
}

fn relation(raw: &str) -> RequestQuery {
    parse(raw, QueryTarget::Relation).unwrap()
}

/// Returns message and details of the error.
fn parse_error(raw: &str) -> (String, String) {
    match parse(raw, QueryTarget::Relation) {
        Err(RestError::Parse { message, details }) => (message, details),
        other => panic!("{raw}: {other:?}"),
    }
}

fn select(text: &str) -> Vec<SelectItem> {
    relation(&format!("select={text}")).select
}

fn filter(raw: &str) -> Filter {
    let AtLevel { path, value } = relation(raw).filters.remove(0);
    assert!(path.is_empty());
    value
}

fn operation(value: &str) -> FilterOperation {
    filter(&format!("a={value}")).operation
}

fn tree(raw: &str) -> LogicTree {
    relation(raw).logic.remove(0).value
}

fn column(name: &str) -> SelectItem {
    SelectItem::Column(SelectColumn {
        alias: None,
        field: Field { name: name.into(), json_path: Vec::new() },
        cast: None,
        aggregate: None,
        aggregate_cast: None,
    })
}

fn names(items: &[SelectItem]) -> Vec<&str> {
    items
        .iter()
        .map(|item| match item {
            SelectItem::Column(column) => column.field.name.as_str(),
            SelectItem::Relation(relation) => relation.name.as_str(),
            SelectItem::Star => "*",
            SelectItem::CountRows { .. } => "count()",
        })
        .collect()
}

#[test]
fn pairs_are_separated_by_ampersands_and_semicolons_and_need_an_equals_sign() {
    let query = relation("dropped&=dropped&a=eq.1;b=eq.2&&;c=eq.=3");
    let values: Vec<_> =
        query.filters.iter().map(|filter| (&*filter.value.field.name, &filter.value.operation)).collect();
    let equal = |text: &str| FilterOperation::Quantified(QuantOperator::Equal, None, text.into());
    assert_eq!(values, [("a", &equal("1")), ("b", &equal("2")), ("c", &equal("=3"))]);
}

#[test]
fn escapes_and_plus_signs_are_decoded_and_invalid_escapes_stay() {
    assert_eq!(decode("a+b%20c%c3%A9%2B").unwrap(), "a b cé+");
    assert_eq!(decode("100%+%zz%4").unwrap(), "100% %zz%4");
    assert_eq!(decode("%ff"), None);
    assert_eq!(parse_error("a=eq.%ff").1, "the query string is not UTF-8");
}

#[test]
fn only_quotes_protect_reserved_names_and_characters() {
    assert_eq!(filter("%22order%22=eq.3").field.name, "order");
    assert_eq!(filter("%22select%22=eq.3").field.name, "select");
    assert_eq!(filter("%22information.cpe%22=like.*MS*").field.name, "information.cpe");
    let nested = relation("information.cpe=like.*MS*").filters.remove(0);
    assert_eq!((nested.path, nested.value.field.name), (vec!["information".to_owned()], "cpe".to_owned()));
    assert_eq!(names(&select("%22weird,name%22,name")), ["weird,name", "name"]);
    assert_eq!(names(&select("a%2Cb")), ["a", "b"]);
}

#[test]
fn repeated_parameters_use_the_first_the_last_or_all() {
    let query = relation(
        "select=a&select=b&columns=a&columns=b&on_conflict=a&on_conflict=b&order=a&order=b&x.order=c\
         &limit=1&limit=2&limit=x&offset=5&x.limit=7&a=eq.1&a=eq.2&or=(a.eq.1)&or=(a.eq.2)",
    );
    assert_eq!(names(&query.select), ["a"]);
    assert_eq!((query.columns.unwrap(), query.on_conflict.unwrap()), (vec!["a".to_owned()], vec!["a".to_owned()]));
    let orders: Vec<_> = query.orders.iter().map(|order| (order.path.len(), &*order.value[0].field.name)).collect();
    assert_eq!(orders, [(0, "a"), (1, "c")]);
    assert_eq!(
        query.ranges,
        [
            AtLevel { path: vec![], value: RowRange { limit: Some(2), offset: Some(5) } },
            AtLevel { path: vec!["x".into()], value: RowRange { limit: Some(7), offset: None } },
        ]
    );
    assert_eq!((query.filters.len(), query.logic.len()), (2, 2));
}

#[test]
fn limits_that_are_no_integers_are_ignored_and_large_ones_saturate() {
    let limit = |text: &str| relation(&format!("limit={text}")).ranges.first().map(|range| range.value.limit.unwrap());
    assert_eq!(limit("0"), Some(0));
    assert_eq!(limit("-1"), Some(-1));
    assert_eq!(limit("+7"), Some(7));
    assert_eq!(limit("99999999999999999999"), Some(i64::MAX));
    assert_eq!(limit("-99999999999999999999"), Some(i64::MIN));
    for none in ["", "-", "1.5", "a", "0x10", "1 2"] {
        assert_eq!(limit(none), None, "{none}");
    }
}

#[test]
fn select_reads_names_in_every_form() {
    assert_eq!(relation("").select, []);
    assert_eq!(select(""), []);
    assert_eq!(select("*"), [SelectItem::Star]);
    assert_eq!(select(" id ,%09first name, x-y ,größe,$a "), ["id", "first name", "x-y", "größe", "$a"].map(column));
    assert_eq!(select("%22a%5C%22b%5C%5C%22"), [column("a\"b\\")]);
    let SelectItem::Column(renamed) = select("full name:name::text").remove(0) else { panic!() };
    assert_eq!((renamed.alias.as_deref(), renamed.cast.as_deref()), (Some("full name"), Some("text")));
    let SelectItem::Column(cast) = select("at::timestamp with time zone").remove(0) else { panic!() };
    assert_eq!((cast.alias, cast.cast.as_deref()), (None, Some("timestamp with time zone")));
}

#[test]
fn select_without_any_item_is_empty() {
    for text in [",", " ,a", "(id)", ")", "!inner", "|"] {
        assert_eq!(select(text), [], "{text}");
    }
    for text in ["a,", "a,,b", "rel(,)", "rel(a,)", "...", "x:", "%22a"] {
        assert!(parse_error(&format!("select={text}")).0.contains("select parameter"), "{text}");
    }
}

#[test]
fn select_ignores_text_after_the_last_item() {
    assert_eq!(names(&select("rel(*)junk,x")), ["rel"]);
    assert_eq!(names(&select("id::numeric(10,2),x")), ["id"]);
    assert_eq!(names(&select("a::text[],x")), ["a"]);
    // The grammar allows a second type; without an aggregate it has no effect
    assert_eq!(select("a::int::text,x"), select("a::int,x"));
    assert_eq!(names(&select("count(id)")), ["count"]);
    assert_eq!(filter("id::text=eq.1").field.name, "id");
    assert_eq!(operation("in.(1,2)junk"), FilterOperation::In(vec!["1".into(), "2".into()]));
    assert_eq!(operation("is.nullify"), FilterOperation::Is(IsValue::Null));
    assert_eq!(relation("columns=a,b)c").columns.unwrap(), ["a", "b"]);
    assert!(matches!(tree("or=(a.eq.1)junk"), LogicTree::Group { .. }));
}

#[test]
fn select_reads_json_paths() {
    let paths = |text: &str| match select(text).remove(0) {
        SelectItem::Column(column) => column.field.json_path,
        other => panic!("{other:?}"),
    };
    let key = |arrow, key: &str| JsonStep { arrow, operand: Operand::Key(key.into()) };
    let index = |arrow, index| JsonStep { arrow, operand: Operand::Index(index) };
    assert_eq!(paths("data->>blood_type"), [key(Arrow::Text, "blood_type")]);
    assert_eq!(
        paths("data->phones->0->>number::int"),
        [key(Arrow::Json, "phones"), index(Arrow::Json, 0), key(Arrow::Text, "number")]
    );
    assert_eq!(paths("data->-1,x"), [index(Arrow::Json, -1)]);
    assert_eq!(paths("data->1a-b->>c%20-%20d"), [key(Arrow::Json, "1a-b"), key(Arrow::Text, "c-d")]);
    assert_eq!(paths("data->%22a.b%22->%229%22"), [key(Arrow::Json, "a.b"), key(Arrow::Json, "9")]);
    assert_eq!(paths("data->99999999999"), [key(Arrow::Json, "99999999999")]);
    assert!(parse_error("select=data->").1.starts_with("unexpected end of input"));
}

#[test]
fn an_index_before_a_parenthesis_is_a_key() {
    let SelectItem::Relation(relation) = select("rel(a->0,data->0)").remove(0) else { panic!() };
    let operands: Vec<_> = relation
        .select
        .iter()
        .map(|item| match item {
            SelectItem::Column(column) => column.field.json_path[0].operand.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(operands, [Operand::Index(0), Operand::Key("0".into())]);
}

#[test]
fn select_reads_aggregates() {
    assert_eq!(select("count()"), [SelectItem::CountRows { alias: None, cast: None }]);
    assert_eq!(
        select("n:count()::text"),
        [SelectItem::CountRows { alias: Some("n".into()), cast: Some("text".into()) }]
    );
    assert_eq!(select("count"), [column("count")]);
    let SelectItem::Column(tax) = select("t:data->tax::numeric.sum()::int").remove(0) else { panic!() };
    assert_eq!((tax.cast.as_deref(), tax.aggregate), (Some("numeric"), Some(Aggregate::Sum)));
    assert_eq!(tax.aggregate_cast.as_deref(), Some("int"));
    for (text, aggregate) in
        [("avg", Aggregate::Avg), ("count", Aggregate::Count), ("max", Aggregate::Max), ("min", Aggregate::Min)]
    {
        let SelectItem::Column(column) = select(&format!("amount.{text}()")).remove(0) else { panic!() };
        assert_eq!(column.aggregate, Some(aggregate));
    }
}

#[test]
fn select_reads_embeds() {
    let items = select("title,author:profiles!author_fk!inner(name,...roles!left(x, y ) ),posts(count),none( )");
    assert_eq!(names(&items), ["title", "profiles", "posts", "none"]);
    let SelectItem::Relation(author) = &items[1] else { panic!() };
    assert_eq!(
        (author.alias.as_deref(), author.hint.as_deref(), author.join, author.spread),
        (Some("author"), Some("author_fk"), Some(Join::Inner), false)
    );
    let SelectItem::Relation(roles) = &author.select[1] else { panic!() };
    assert_eq!((roles.spread, roles.join, roles.alias.as_deref()), (true, Some(Join::Left), None));
    assert_eq!(names(&roles.select), ["x", "y"]);
    let (SelectItem::Relation(posts), SelectItem::Relation(none)) = (&items[2], &items[3]) else { panic!() };
    assert_eq!((&posts.select, &none.select), (&vec![column("count")], &vec![]));
    let SelectItem::Relation(swapped) = select("a!inner!%22left_fk%22(*)").remove(0) else { panic!() };
    assert_eq!((swapped.hint.as_deref(), swapped.join), (Some("left_fk"), Some(Join::Inner)));
}

#[test]
fn filters_read_every_operator() {
    use {QuantOperator as Q, SimpleOperator as S};
    for (text, operator) in [
        ("eq", Q::Equal),
        ("gte", Q::GreaterOrEqual),
        ("gt", Q::Greater),
        ("lte", Q::LessOrEqual),
        ("lt", Q::Less),
        ("like", Q::Like),
        ("ilike", Q::ILike),
        ("match", Q::Match),
        ("imatch", Q::IMatch),
    ] {
        for (suffix, quantifier) in [("", None), ("(any)", Some(Quantifier::Any)), ("(all)", Some(Quantifier::All))] {
            let expected = FilterOperation::Quantified(operator, quantifier, "{a,b}".into());
            assert_eq!(operation(&format!("{text}{suffix}.{{a,b}}")), expected);
        }
    }
    for (text, operator) in [
        ("neq", S::NotEqual),
        ("cs", S::Contains),
        ("cd", S::ContainedBy),
        ("ov", S::Overlaps),
        ("sl", S::StrictlyLeft),
        ("sr", S::StrictlyRight),
        ("nxr", S::NotExtendsRight),
        ("nxl", S::NotExtendsLeft),
        ("adj", S::Adjacent),
    ] {
        assert_eq!(operation(&format!("{text}.x")), FilterOperation::Simple(operator, "x".into()));
    }
    for (text, function) in [("fts", Fts::Query), ("plfts", Fts::Plain), ("phfts", Fts::Phrase), ("wfts", Fts::Web)] {
        assert_eq!(operation(&format!("{text}.x")), FilterOperation::Fts { function, config: None, value: "x".into() });
        let config = Some("english".into());
        assert_eq!(
            operation(&format!("{text}(english).x")),
            FilterOperation::Fts { function, config, value: "x".into() }
        );
    }
    for (text, value) in [
        ("null", IsValue::Null),
        ("NOT_null", IsValue::NotNull),
        ("True", IsValue::True),
        ("false", IsValue::False),
        ("UNKNOWN", IsValue::Unknown),
    ] {
        assert_eq!(operation(&format!("is.{text}")), FilterOperation::Is(value));
    }
    assert_eq!(operation("isdistinct.x"), FilterOperation::IsDistinct("x".into()));
    assert!(filter("a=not.eq.1").negated);
    assert!(!filter("a=eq.not.1").negated);
}

#[test]
fn values_of_parameters_are_used_unchanged() {
    let value = |text: &str| match operation(text) {
        FilterOperation::Quantified(_, _, value) => value,
        other => panic!("{other:?}"),
    };
    assert_eq!(value("eq.%22Ann%22"), "\"Ann\"");
    assert_eq!(value("eq."), "");
    assert_eq!(value("eq.a,b)c+d"), "a,b)c d");
    assert_eq!(value("eq.a%00"), "a\0");
}

#[test]
fn lists_keep_spaces_and_unquote_elements() {
    let list = |text: &str| match operation(text) {
        FilterOperation::In(list) => list,
        other => panic!("{other:?}"),
    };
    assert_eq!(list("in.()"), [""; 0]);
    assert_eq!(list("in.(%22%22)"), [""; 0]);
    assert_eq!(list("in.(,)"), ["", ""]);
    assert_eq!(list("in.(a, b)"), ["a", " b"]);
    assert_eq!(list("in.( a , b )"), ["a ", " b "]);
    assert_eq!(list("in. ( %22a,b%22,c) "), ["a,b", "c"]);
    for empty in ["in.( )", "in.(+%09)", "in. (  ) ", "in.( %22%22)"] {
        assert_eq!(list(empty), [""; 0], "{empty}");
    }
    assert_eq!(list("in.( , )"), ["", " "]);
    assert_eq!(list("in.(%22a,b%22,%22c)%22,%22d%5C%22%5C%5C%5Ce%22)"), ["a,b", "c)", "d\"\\e"]);
    assert_eq!(list("in.(%22a%22b,%22,c)"), ["\"a\"b", "\"", "c"]);
    assert!(parse_error("a=in.(b").1.contains("expecting \",\" or \")\""));
}

#[test]
fn logic_reads_trees_and_their_values() {
    let LogicTree::Group { negated, logic, parts } =
        tree("or=( a.eq.%22x,)%22, and(b.not.is.null,c.in.(1,2)),not.and(d.cs.{1,2},e->>f.ov.{x),not.eq.5)")
    else {
        panic!()
    };
    assert_eq!((negated, logic, parts.len()), (false, Logic::Or, 4));
    let LogicTree::Filter(first) = &parts[0] else { panic!() };
    assert_eq!(first.operation, FilterOperation::Quantified(QuantOperator::Equal, None, "x,)".into()));
    let LogicTree::Group { negated: false, logic: Logic::And, parts: inner } = &parts[1] else { panic!() };
    assert!(matches!(&inner[0], LogicTree::Filter(filter) if filter.negated));
    assert!(
        matches!(&inner[1], LogicTree::Filter(Filter { operation: FilterOperation::In(list), .. }) if list.len() == 2)
    );
    let LogicTree::Group { negated: true, logic: Logic::And, parts: inner } = &parts[2] else { panic!() };
    let values: Vec<_> = inner
        .iter()
        .map(|part| match part {
            LogicTree::Filter(Filter { operation: FilterOperation::Simple(_, value), .. }) => value.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(values, ["{1,2}", "{x"]);
    let LogicTree::Filter(last) = &parts[3] else { panic!() };
    assert_eq!((last.field.name.as_str(), last.negated), ("not", false));
}

#[test]
fn logic_may_have_spaces_around_its_fields_and_parentheses() {
    let plain = tree("or=(a.eq.1,and(%22b c%22.is.null,d->>e.in.(1,2)),not.and(f.eq.x,g.in.()))");
    for spaced in [
        "or= ( a.eq.1, and ( %22b c%22 .is.null , d->>e .in. ( 1,2) ) , not.and (f.eq.x, g.in.( ) ) )",
        "or=(%09a.eq.1,%20and%09( %22b c%22.is.null ,d->>e.in.(1,2) ),  not.and(f.eq.x,g.in.(  )))  ",
    ] {
        assert_eq!(tree(spaced), plain, "{spaced}");
    }
    // Parentheses of a value belong to it
    let LogicTree::Group { parts, .. } = tree("or=(a.eq. x ,b.eq.%22y%22 )") else { panic!() };
    let values: Vec<_> = parts
        .iter()
        .map(|part| match part {
            LogicTree::Filter(Filter { operation: FilterOperation::Quantified(_, _, value), .. }) => value.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(values, [" x ", "\"y\" "]);
}

#[test]
fn a_not_among_the_names_of_a_logic_key_negates() {
    for (raw, path) in [("not.or=(a.eq.1)", vec![]), ("x.not.or=(a.eq.1)", vec!["x"]), ("not.x.or=(a.eq.1)", vec!["x"])]
    {
        let at = relation(raw).logic.remove(0);
        assert_eq!(at.path, path);
        assert!(matches!(at.value, LogicTree::Group { negated: true, logic: Logic::Or, .. }));
    }
}

#[test]
fn order_reads_directions_nulls_and_embeds() {
    let order =
        relation("order=a.desc.nullslast, b ,c.nullsfirst,d->>e.asc,rel(f).desc,g->0.asc").orders.remove(0).value;
    let read: Vec<_> =
        order.iter().map(|term| (term.relation.as_deref(), &*term.field.name, term.direction, term.nulls)).collect();
    assert_eq!(
        read,
        [
            (None, "a", Some(Direction::Descending), Some(Nulls::Last)),
            (None, "b", None, None),
            (None, "c", None, Some(Nulls::First)),
            (None, "d", Some(Direction::Ascending), None),
            (Some("rel"), "f", Some(Direction::Descending), None),
            (None, "g", Some(Direction::Ascending), None),
        ]
    );
    assert_eq!(order[5].field.json_path[0].operand, Operand::Index(0));
    assert_eq!(relation("a.b.order=c").orders[0].path, ["a", "b"]);
}

/// Queries of the official client.
#[test]
fn requests_of_the_official_client_are_parsed() {
    let query = relation(
        "select=id%2Ctitle%2Cauthor%3Aprofiles%28name%29%2Ccomments%28count%29&author_id=eq.5&order=id.desc&offset=0&limit=10",
    );
    assert_eq!(names(&query.select), ["id", "title", "profiles", "comments"]);
    assert_eq!(query.ranges[0].value, RowRange { limit: Some(10), offset: Some(0) });
    assert_eq!((query.filters.len(), query.orders.len()), (1, 1));
    let query = relation("on_conflict=slug&columns=%22slug%22%2C%22n%22");
    assert_eq!(
        (query.on_conflict.unwrap(), query.columns.unwrap()),
        (vec!["slug".to_owned()], vec!["slug".into(), "n".into()])
    );
    assert_eq!(operation("fts%28english%29.fat+%26+rat"), {
        let (function, config) = (Fts::Query, Some("english".into()));
        FilterOperation::Fts { function, config, value: "fat & rat".into() }
    });
    assert_eq!(
        operation("cs.%7B%22a%22%3A1%7D"),
        FilterOperation::Simple(SimpleOperator::Contains, "{\"a\":1}".into())
    );
    let nested = relation("messages.or=%28a.eq.1%2Cb.not.is.null%29").logic.remove(0);
    assert_eq!(nested.path, ["messages"]);
}

#[test]
fn the_canonical_query_is_sorted_merged_and_encoded_anew() {
    assert_eq!(canonical("select=id,name&order=id&limit=2&offset=2"), "limit=2&offset=2&order=id&select=id%2Cname");
    assert_eq!(canonical("b=eq.2&=x&a=gt.1+x;a=lt.%C3%A9&dropped&c="), "a=gt.1%20x,lt.%C3%A9&b=eq.2&c=");
    assert_eq!(canonical(""), "");
}
