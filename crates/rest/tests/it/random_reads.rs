//! Random reads: each returns what a small evaluator returns for the same data.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use portico_rest::sql::RowCount;
use serde_json::{Map, Value};

use crate::reads::{JSON, ReadRunner};
use crate::seeded_dice::SeededDice;

/// Enough rows that filters, limits and joins have a choice.
const MORE: &str = "
    insert into directors (id, first_name, last_name) select i, 'First ' || i % 3, 'Last ' || i from generate_series(5, 12) i;
    insert into films (id, title, year, director_id, language)
      select i, 'Film ' || i, case when i % 7 > 0 then 1980 + i % 20 end, case when i % 5 > 0 then 1 + i % 11 end,
        (array['english', 'german', null])[1 + i % 3] from generate_series(6, 30) i;
    insert into actors select i, 'First ' || i % 4, 'Last ' || i from generate_series(4, 10) i;
    insert into roles select f.id, a.id, case when (f.id + a.id) % 4 > 0 then 'As ' || a.id end
      from films f, actors a where (f.id * 7 + a.id * 3) % 11 < 2 on conflict do nothing;
    insert into screenings (film_id, hall, seats) select 1 + i % 9, 'H' || i % 3, 50 + i from generate_series(1, 20) i;
    insert into technical_details (id, film_id, camera) select i, i * 2, 'C' || i % 2 from generate_series(3, 9) i;
    insert into people select i, 'P' || i, 1 + i % 4 from generate_series(5, 14) i;
";

struct TestTable {
    name: &'static str,
    key: &'static [&'static str],
    numbers: &'static [&'static str],
    texts: &'static [&'static str],
}

const TABLES: [TestTable; 7] = [
    TestTable { name: "films", key: &["id"], numbers: &["id", "year", "director_id"], texts: &["title", "language"] },
    TestTable { name: "directors", key: &["id"], numbers: &["id"], texts: &["first_name", "last_name"] },
    TestTable {
        name: "roles",
        key: &["film_id", "actor_id"],
        numbers: &["film_id", "actor_id"],
        texts: &["character"],
    },
    TestTable { name: "actors", key: &["id"], numbers: &["id"], texts: &["first_name", "last_name"] },
    TestTable { name: "technical_details", key: &["id"], numbers: &["id", "film_id"], texts: &["camera"] },
    TestTable { name: "screenings", key: &["id"], numbers: &["id", "film_id", "seats"], texts: &["hall"] },
    TestTable { name: "people", key: &["id"], numbers: &["id", "manager_id"], texts: &["name"] },
];

/// Origin, text of the embed, target, whether it leads to one row; origin column and target column,
/// or those of the junction `roles` between.
type TestRelationship = (&'static str, &'static str, &'static str, bool, [&'static str; 2], Option<[&'static str; 2]>);

const WAYS: [TestRelationship; 14] = [
    ("films", "directors", "directors", true, ["director_id", "id"], None),
    ("films", "director_id", "directors", true, ["director_id", "id"], None),
    ("directors", "films", "films", false, ["id", "director_id"], None),
    ("films", "roles", "roles", false, ["id", "film_id"], None),
    ("roles", "films", "films", true, ["film_id", "id"], None),
    ("roles", "actors", "actors", true, ["actor_id", "id"], None),
    ("actors", "roles", "roles", false, ["id", "actor_id"], None),
    ("films", "actors!roles", "actors", false, ["id", "id"], Some(["film_id", "actor_id"])),
    ("actors", "films!roles", "films", false, ["id", "id"], Some(["actor_id", "film_id"])),
    ("films", "technical_details", "technical_details", true, ["id", "film_id"], None),
    ("technical_details", "films", "films", true, ["film_id", "id"], None),
    ("films", "screenings", "screenings", false, ["id", "film_id"], None),
    ("people", "people", "people", false, ["id", "manager_id"], None),
    ("people", "manager_id", "people", true, ["manager_id", "id"], None),
];

/// One level of a read.
struct RandomLevel {
    table: &'static TestTable,
    columns: Vec<&'static str>,
    conditions: Vec<RandomCondition>,
    embeds: Vec<RandomEmbed>,
    /// A sort column before the key: descending, nulls first.
    order: Option<(&'static str, bool, bool)>,
    limit: Option<usize>,
    offset: Option<usize>,
}

struct RandomEmbed {
    way: &'static TestRelationship,
    inner: bool,
    spread: bool,
    /// A null filter: whether rows must exist.
    exists: Option<bool>,
    level: RandomLevel,
}

enum RandomCondition {
    Compare { column: &'static str, negated: bool, operator: &'static str, values: Vec<String> },
    Group { negated: bool, any: bool, parts: Vec<RandomCondition> },
}

fn table(name: &str) -> &'static TestTable {
    TABLES.iter().find(|table| table.name == name).unwrap()
}

fn level(dice: &mut SeededDice, table: &'static TestTable, depth: usize) -> RandomLevel {
    let all: Vec<_> = table.numbers.iter().chain(table.texts).copied().collect();
    let columns = (0..=dice.below(3)).map(|_| dice.of(&all)).collect();
    let conditions = (0..dice.below(3)).map(|_| condition(dice, table, 0)).collect();
    let ways: Vec<_> = WAYS.iter().filter(|way| way.0 == table.name).collect();
    let embeds = if depth < 3 && !ways.is_empty() { dice.below(3) } else { 0 };
    let mut embeds: Vec<RandomEmbed> = (0..embeds)
        .map(|_| {
            let way = dice.of(&ways);
            let spread = way.3 && dice.one_in(4);
            let inner = dice.one_in(4);
            let exists = (!spread && dice.one_in(5)).then(|| dice.one_in(2));
            let mut level = level(dice, self::table(way.2), if spread { 3 } else { depth + 1 });
            if spread {
                // Levels are addressed by their aliases here, which a spread does not have
                level = RandomLevel { conditions: vec![], order: None, limit: None, offset: None, ..level };
            }
            RandomEmbed { way, inner, spread, exists, level }
        })
        .collect();
    // Two spreads of one name are rejected
    let mut names = HashSet::new();
    embeds.retain(|embed| !embed.spread || names.insert(embed.way.1.split('!').next()));
    let order = dice.one_in(3).then(|| (dice.of(table.numbers), dice.one_in(2), dice.one_in(2)));
    let limit = dice.one_in(4).then(|| dice.below(4));
    let offset = dice.one_in(6).then(|| dice.below(3));
    RandomLevel { table, columns, conditions, embeds, order, limit, offset }
}

fn condition(dice: &mut SeededDice, table: &'static TestTable, depth: usize) -> RandomCondition {
    let negated = dice.one_in(4);
    if depth < 2 && dice.one_in(4) {
        let parts = (0..=dice.below(3)).map(|_| condition(dice, table, depth + 1)).collect();
        return RandomCondition::Group { negated, any: dice.one_in(2), parts };
    }
    let is_number = dice.one_in(2);
    let column = dice.of(if is_number { table.numbers } else { table.texts });
    let operators: &[&str] = if is_number {
        &["eq", "neq", "gt", "gte", "lt", "lte", "in", "is"]
    } else {
        &["eq", "neq", "like", "in", "is"]
    };
    let operator = dice.of(operators);
    let mut value = || match (is_number, operator) {
        (true, _) if dice.one_in(3) => (1985 + dice.below(20)).to_string(),
        (true, _) => dice.below(12).to_string(),
        (false, "like") => dice.of(&["*a*", "F*", "*1", "Last _", "*"]).to_owned(),
        (false, _) => match dice.below(4) {
            0 => format!("Film {}", dice.below(30)),
            1 => format!("Last {}", dice.below(12)),
            2 => format!("First {}", dice.below(4)),
            _ => dice.of(&["english", "german", "Ana", "Arri", "H1", "C0", "As 3", ""]).to_owned(),
        },
    };
    let values = match operator {
        "is" => vec![],
        // A list whose only element is empty is the empty list, which is not used here
        "in" => vec![value(), value()],
        _ => vec![value()],
    };
    RandomCondition::Compare { column, negated, operator, values }
}

// The query string

fn select(level: &RandomLevel) -> String {
    let mut items: Vec<String> = Vec::new();
    for (at, column) in level.columns.iter().enumerate() {
        items.push(format!("c{at}:{column}"));
    }
    for (at, embed) in level.embeds.iter().enumerate() {
        let inner = if embed.inner { "!inner" } else { "" };
        if embed.spread {
            let columns = embed.level.columns.iter().enumerate();
            let columns: Vec<_> = columns.map(|(c, column)| format!("s{at}{c}:{column}")).collect();
            items.push(format!("...{}{inner}({})", embed.way.1, columns.join(",")));
        } else {
            items.push(format!("e{at}:{}{inner}({})", embed.way.1, select(&embed.level)));
        }
    }
    items.join(",")
}

fn pairs(level: &RandomLevel, path: &str, query: &mut String) {
    for condition in &level.conditions {
        match condition {
            RandomCondition::Compare { column, .. } => {
                write!(query, "&{path}{column}={}", operation(condition, false)).unwrap();
            }
            RandomCondition::Group { negated, any, parts } => {
                let not = if *negated { "not." } else { "" };
                let name = if *any { "or" } else { "and" };
                let parts: Vec<_> = parts.iter().map(tree).collect();
                write!(query, "&{path}{not}{name}=({})", parts.join(",")).unwrap();
            }
        }
    }
    let mut order: Vec<_> = level.table.key.iter().map(|key| (*key).to_owned()).collect();
    if let Some((column, descending, nulls_first)) = level.order {
        let direction = if descending { "desc" } else { "asc" };
        order.insert(0, format!("{column}.{direction}.nulls{}", if nulls_first { "first" } else { "last" }));
    }
    write!(query, "&{path}order={}", order.join(",")).unwrap();
    for (name, value) in [("limit", level.limit), ("offset", level.offset)] {
        if let Some(value) = value {
            write!(query, "&{path}{name}={value}").unwrap();
        }
    }
    for (at, embed) in level.embeds.iter().enumerate().filter(|(_, embed)| !embed.spread) {
        if let Some(wanted) = embed.exists {
            write!(query, "&{path}e{at}={}is.null", if wanted { "not." } else { "" }).unwrap();
        }
        pairs(&embed.level, &format!("{path}e{at}."), query);
    }
}

fn operation(condition: &RandomCondition, in_logic: bool) -> String {
    let RandomCondition::Compare { negated, operator, values, .. } = condition else { unreachable!() };
    let quoted = |value: &String| format!("\"{value}\"");
    let value = match *operator {
        "is" => "null".to_owned(),
        "in" => format!("({})", values.iter().map(quoted).collect::<Vec<_>>().join(",")),
        _ if in_logic => quoted(&values[0]),
        _ => values[0].clone(),
    };
    format!("{}{operator}.{value}", if *negated { "not." } else { "" })
}

fn tree(condition: &RandomCondition) -> String {
    match condition {
        RandomCondition::Compare { column, .. } => format!("{column}.{}", operation(condition, true)),
        RandomCondition::Group { negated, any, parts } => {
            let parts: Vec<_> = parts.iter().map(tree).collect();
            let name = if *any { "or" } else { "and" };
            format!("{}{name}({})", if *negated { "not." } else { "" }, parts.join(","))
        }
    }
}

// The meaning of the query

type JsonRow = Map<String, Value>;
type TableRows = HashMap<&'static str, Vec<JsonRow>>;

/// Evaluates the rows of a level, and their number without limit and offset.
fn evaluate(data: &TableRows, level: &RandomLevel, belongs: &dyn Fn(&JsonRow) -> bool) -> (Vec<Value>, usize) {
    let mut rows: Vec<(&JsonRow, JsonRow)> = Vec::new();
    'rows: for row in data[level.table.name].iter().filter(|row| belongs(row)) {
        if level.conditions.iter().any(|condition| holds(row, condition) != Some(true)) {
            continue;
        }
        let mut shown = Map::new();
        for (at, column) in level.columns.iter().enumerate() {
            shown.insert(format!("c{at}"), row[*column].clone());
        }
        for (at, embed) in level.embeds.iter().enumerate() {
            let (found, _) = evaluate(data, &embed.level, &|target| leads(data, embed.way, row, target));
            if (embed.inner && found.is_empty()) || embed.exists.is_some_and(|wanted| wanted == found.is_empty()) {
                continue 'rows;
            }
            if embed.spread {
                for c in 0..embed.level.columns.len() {
                    let value = found.first().map_or(Value::Null, |found| found[format!("c{c}")].clone());
                    shown.insert(format!("s{at}{c}"), value);
                }
            } else if embed.way.3 {
                shown.insert(format!("e{at}"), found.into_iter().next().unwrap_or(Value::Null));
            } else {
                shown.insert(format!("e{at}"), Value::Array(found));
            }
        }
        rows.push((row, shown));
    }
    let total = rows.len();
    rows.sort_by(|(one, _), (other, _)| {
        let first = level.order.map_or(Ordering::Equal, |(column, descending, nulls_first)| {
            let number = |row: &JsonRow| row[column].as_i64();
            match (number(one), number(other)) {
                (Some(one), Some(other)) if descending => other.cmp(&one),
                (Some(one), Some(other)) => one.cmp(&other),
                (None, None) => Ordering::Equal,
                (one, _) => {
                    if one.is_none() == nulls_first {
                        Ordering::Less
                    } else {
                        Ordering::Greater
                    }
                }
            }
        });
        let key = |row: &JsonRow| level.table.key.iter().map(|key| row[*key].as_i64()).collect::<Vec<_>>();
        first.then_with(|| key(one).cmp(&key(other)))
    });
    let rows = rows.into_iter().map(|(_, shown)| Value::Object(shown));
    (rows.skip(level.offset.unwrap_or(0)).take(level.limit.unwrap_or(usize::MAX)).collect(), total)
}

fn leads(data: &TableRows, way: &TestRelationship, row: &JsonRow, target: &JsonRow) -> bool {
    let [ours, theirs] = way.4;
    let equal = |one: &Value, other: &Value| !one.is_null() && one == other;
    match way.5 {
        None => equal(&row[ours], &target[theirs]),
        Some([to_us, to_them]) => {
            data["roles"].iter().any(|role| equal(&role[to_us], &row[ours]) && equal(&role[to_them], &target[theirs]))
        }
    }
}

/// Evaluates a condition to SQL's three values: `None` is NULL.
fn holds(row: &JsonRow, condition: &RandomCondition) -> Option<bool> {
    match condition {
        RandomCondition::Group { negated, any, parts } => {
            let parts: Vec<_> = parts.iter().map(|part| holds(row, part)).collect();
            let decides = Some(*any);
            let all = if parts.contains(&decides) {
                decides
            } else if parts.contains(&None) {
                None
            } else {
                Some(!*any)
            };
            all.map(|all| all != *negated)
        }
        RandomCondition::Compare { column, negated, operator, values } => {
            let left = &row[*column];
            let truth = match *operator {
                "is" => Some(left.is_null()),
                _ if left.is_null() => None,
                "like" => Some(is_like(left.as_str().unwrap(), &values[0].replace('*', "%"))),
                "in" => Some(values.iter().any(|value| compare(left, value) == Ordering::Equal)),
                "eq" => Some(compare(left, &values[0]) == Ordering::Equal),
                "neq" => Some(compare(left, &values[0]) != Ordering::Equal),
                "gt" => Some(compare(left, &values[0]) == Ordering::Greater),
                "gte" => Some(compare(left, &values[0]) != Ordering::Less),
                "lt" => Some(compare(left, &values[0]) == Ordering::Less),
                _ => Some(compare(left, &values[0]) != Ordering::Greater),
            };
            truth.map(|truth| truth != *negated)
        }
    }
}

fn compare(left: &Value, right: &str) -> Ordering {
    match left.as_i64() {
        Some(number) => number.cmp(&right.parse().unwrap()),
        None => left.as_str().unwrap().cmp(right),
    }
}

fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('%') => {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| is_like(&text[at..], &pattern[1..]))
        }
        Some(c) => {
            let rest = &pattern[c.len_utf8()..];
            text.chars()
                .next()
                .is_some_and(|first| (c == '_' || c == first) && is_like(&text[first.len_utf8()..], rest))
        }
    }
}

#[tokio::test]
async fn any_read_gives_what_an_evaluator_gives() {
    let reader = ReadRunner::open().await;
    let administrator = reader.cinema.administrator().await;
    administrator.batch_execute(MORE).await.unwrap();
    let mut data = TableRows::new();
    for table in &TABLES {
        let rows =
            administrator.query_one(&format!("select json_agg(t)::text from {} t", table.name), &[]).await.unwrap();
        data.insert(table.name, serde_json::from_str(rows.get(0)).unwrap());
    }
    let mut dice = SeededDice(0x9e37_79b9_7f4a_7c15);
    let mut not_empty = 0;
    for _ in 0..600 {
        let table = &TABLES[dice.below(TABLES.len())];
        let level = level(&mut dice, table, 0);
        let mut resource = format!("{}?select={}", table.name, select(&level));
        pairs(&level, "", &mut resource);
        let (rows, total) = evaluate(&data, &level, &|_| true);
        not_empty += usize::from(!rows.is_empty());
        let response = reader.ask("service_role", &resource, RowCount::Exact, &JSON).await;
        let response = response.unwrap_or_else(|refusal| panic!("{resource}: {refusal:?}"));
        let body: Value = serde_json::from_str(response.body.as_deref().unwrap()).unwrap();
        assert_eq!(body, Value::Array(rows), "{resource}");
        assert_eq!(response.total, Some(total as u64), "{resource}");
    }
    assert!(not_empty > 200, "only {not_empty} had rows");
}
