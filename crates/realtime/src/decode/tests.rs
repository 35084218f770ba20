//! Rendered rows compared with what SQL says, through real replication.

use std::collections::BTreeSet;
use std::sync::Arc;

use portico_database::Endpoint;
use portico_database::cluster::{Cluster, ClusterSettings, Durability};
use portico_database::replication::{ReplicationSettings, ReplicationStream};
use portico_database::scratch;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio_postgres::Client;

use super::*;

mod every_type;

/// A database of its own, and a stream of the changes of all tables.
struct Streamed {
    client: Client,
    admin: Endpoint,
    endpoint: Endpoint,
    stream: ReplicationStream,
    decoder: Decoder,
    catalog: TableCatalog,
}

impl Streamed {
    async fn new(set_up: &str) -> Self {
        Self::on(scratch::shared_cluster().await.unwrap().endpoint(), set_up).await
    }

    async fn on(admin: Endpoint, set_up: &str) -> Self {
        let endpoint = scratch::clone_database(&admin, "template0", &scratch::fresh_name()).await.unwrap();
        let client = portico_database::connect(&endpoint).await.unwrap();
        client.batch_execute(set_up).await.unwrap();
        client.batch_execute("create publication all_tables for all tables").await.unwrap();
        let settings = ReplicationSettings {
            slot: endpoint.database().to_owned(),
            publications: vec!["all_tables".into()],
            silence: std::time::Duration::from_secs(60),
        };
        let stream = ReplicationStream::open(&endpoint, &settings).await.unwrap();
        Self { client, admin, endpoint, stream, decoder: Decoder::default(), catalog: TableCatalog::default() }
    }

    /// Runs statements as one transaction and returns its changes.
    async fn changes(&mut self, statements: &str) -> Vec<Change> {
        self.client.batch_execute(statements).await.unwrap();
        let (mut batch, mut changes) = (Vec::new(), Vec::new());
        loop {
            self.stream.next_batch(&mut batch).await.unwrap();
            for message in batch.drain(..) {
                match self.decoder.decode(message.body).unwrap() {
                    Decoded::Change(change) => changes.push(change),
                    Decoded::Commit { .. } => return changes,
                    Decoded::Begin { .. } | Decoded::Relation(_) | Decoded::Nothing => {}
                }
            }
        }
    }

    async fn describe(&mut self, change: &Change) -> Arc<DescribedTable> {
        self.catalog.describe(&self.client, &change.relation).await.unwrap().unwrap()
    }

    /// Returns the rendered old and new row of a change.
    async fn rendered(&mut self, change: &Change) -> (Option<String>, Option<String>) {
        let table = self.describe(change).await;
        let (old, new) = match &change.kind {
            ChangeKind::Insert { new } => (None, Some(table.render(new, None))),
            ChangeKind::Update { old, new } => {
                let full = match old {
                    Some(OldTuple::Full(tuple)) => Some(tuple),
                    _ => None,
                };
                (old.as_ref().map(|old| table.render(old.tuple(), None)), Some(table.render(new, full)))
            }
            ChangeKind::Delete { old } => (Some(table.render(old.tuple(), None)), None),
        };
        let object = |row: RenderedRow| {
            let mut out = Vec::new();
            table.write_object(&mut out, &row, |_, _| true);
            String::from_utf8(out).unwrap()
        };
        (old.map(object), new.map(object))
    }

    /// Returns the rendered new row of an insert, with the values that the server renders.
    async fn rendered_row(&self, table: &DescribedTable, change: &Change) -> RenderedRow {
        let ChangeKind::Insert { new } = &change.kind else { panic!("{change:?}") };
        let mut row = table.render(new, None);
        for waiting in table.waiting_columns(std::slice::from_ref(&row)) {
            let rendered = self.client.query(&waiting.statement, &[&waiting.texts]).await.unwrap();
            let rendered = rendered.iter().map(|row| row.get(0)).collect();
            table.fill(std::slice::from_mut(&mut row), &waiting, Some(rendered));
        }
        row
    }

    async fn close(self) {
        drop((self.stream, self.client));
        scratch::drop_database(&self.admin, self.endpoint.database()).await.unwrap();
    }
}

const TYPES: &str = "
    create type mood as enum ('sad', 'so \"so\"', 'happy, {very}');
    create domain positive as int check (value > 0);
    create domain secret as bytea;
    create domain ratio as float8;
    create type pair as (yy text, x timestamptz);
    create type nested as (p pair, list numeric[], m mood, d positive, raw bytea, j json);
    create domain labels as text[];
    create type tagged as (label text);
    create function tagged_to_json(tagged) returns json language sql immutable as
      $$ select json_build_object('tag', $1.label, 'n', 1.50) $$;
    create type plain as enum ('p', 'q');
    create function plain_to_json(plain) returns json language sql immutable as $$ select json_build_array($1::text) $$;
    create cast (plain as json) with function plain_to_json(plain);
    create cast (tagged as json) with function tagged_to_json(tagged);";

/// Returns the expression of a text.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn texts() -> BoxedStrategy<String> {
    let odd = prop::sample::select(vec![
        "",
        "NULL",
        "null",
        "{}",
        "(,)",
        "\"",
        "\\",
        "a,b",
        " x ",
        "\n\t\u{1}",
        "é\u{1F600}",
    ]);
    prop_oneof![odd.prop_map(str::to_owned), "[ -~é\n\u{7f}]{0,12}"].boxed()
}

fn json() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        (-1000..1000_i32, 0..100_u32).prop_map(|(whole, fraction)| format!("{whole}.{fraction:02}")),
        texts().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        let key = prop::sample::select(vec!["a", "b", "aa", "", "é", "\\u0061"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {} ]", items.join(" ,"))),
            prop::collection::vec((key, inner), 0..5).prop_map(|entries| {
                let entries: Vec<_> = entries.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                format!("{{{}}}", entries.join(", "))
            }),
        ]
    })
    .boxed()
}

/// Returns types, and expressions of values of them.
fn types() -> Vec<(&'static str, BoxedStrategy<String>)> {
    let quoted = |strategy: BoxedStrategy<String>| strategy.prop_map(|text| literal(&text)).boxed();
    let one_of = |texts: &'static [&'static str]| prop::sample::select(texts).prop_map(literal).boxed();
    let float = || {
        prop_oneof![
            any::<f64>().prop_map(|value| format!("{value:e}")),
            one_of(&["NaN", "-Infinity", "Infinity", "-0", "1e15", "1e-5", "123456789012345680"])
                .prop_map(|text| text.trim_matches(&['E', '\''][..]).to_owned())
        ]
    };
    let micros = || {
        prop_oneof![
            (-210_000_000_000_000_000..8_000_000_000_000_000_000_i64),
            (-1000..1000_i64).prop_map(|n| n * 500_000)
        ]
    };
    let time = |what: &'static str| {
        micros()
            .prop_map(move |n| format!("('2000-01-01 00:00:00+00'::{what} + {n}::float8 * interval '1 microsecond')"))
    };
    let small = || -1000..1000_i32;
    let bytes = || {
        prop::collection::vec(any::<u8>(), 0..12)
            .prop_map(|bytes| {
                format!("'\\x{}'::bytea", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            })
            .boxed()
    };
    let numeric = || {
        prop_oneof![
            (any::<i128>(), 0..30_usize)
                .prop_map(|(digits, scale)| format!("({digits}::numeric * '1e-{scale}'::numeric)")),
            one_of(&["NaN", "Infinity", "0.000", "1e100"]).prop_map(|text| format!("{text}::numeric"))
        ]
        .boxed()
    };
    let pair = || {
        prop_oneof![
            (texts(), micros()).prop_map(|(text, n)| format!(
                "row({}, '2000-01-01'::timestamptz + {n}::float8 * interval '1 microsecond')::pair",
                literal(&text)
            )),
            Just("row(null, null)::pair".to_owned()),
        ]
    };
    let mood = || one_of(&["sad", "so \"so\"", "happy, {very}"]).prop_map(|text| format!("{text}::mood"));
    let nested = || {
        (pair(), prop::collection::vec(numeric(), 0..3), mood(), bytes(), json()).prop_map(
            |(pair, list, mood, raw, json)| {
                format!(
                    "row({pair}, array[{}]::numeric[], {mood}, 5, {raw}, {}::json)::nested",
                    list.join(","),
                    literal(&json)
                )
            },
        )
    };
    let list = |strategy: BoxedStrategy<String>, of: &'static str| {
        prop_oneof![
            prop::collection::vec(prop_oneof![3 => strategy.clone(), 1 => Just("null".to_owned())], 0..4)
                .prop_map(move |items| format!("array[{}]::{of}[]", items.join(","))),
            (strategy.clone(), strategy.clone()).prop_map(move |(a, b)| format!("array[[{a},{b}],[null,{b}]]::{of}[]")),
            (strategy.clone(), strategy)
                .prop_map(move |(a, b)| format!("array_prepend({a}::{of}, array[{b}]::{of}[])")),
        ]
        .boxed()
    };
    vec![
        ("bool", any::<bool>().prop_map(|value| value.to_string()).boxed()),
        ("int2", any::<i16>().prop_map(|value| literal(&value.to_string())).boxed()),
        ("int4", any::<i32>().prop_map(|value| literal(&value.to_string())).boxed()),
        ("int8", any::<i64>().prop_map(|value| literal(&value.to_string())).boxed()),
        ("numeric", numeric()),
        ("numeric(12,3)", small().prop_map(|n| format!("{n} / 7.0")).boxed()),
        ("float4", any::<f32>().prop_map(|value| literal(&format!("{value:e}"))).boxed()),
        ("float8", float().prop_map(|text| literal(&text)).boxed()),
        ("text", quoted(texts())),
        ("varchar(20)", quoted(texts())),
        ("char(5)", quoted("[a-zé ]{0,5}".boxed())),
        ("name", quoted("[ -~]{0,20}".boxed())),
        ("\"char\"", quoted("[a-z]{0,1}".boxed())),
        ("bytea", bytes()),
        ("date", (-700_000..2_000_000_i32).prop_map(|n| format!("'2000-01-01'::date + {n}")).boxed()),
        ("date", one_of(&["infinity", "-infinity", "0001-01-01 BC"])),
        (
            "time",
            (0..86_400_000_000_i64)
                .prop_map(|n| format!("'0:00'::time + {n}::float8 * interval '1 microsecond'"))
                .boxed(),
        ),
        ("timetz", one_of(&["13:14:15+02", "00:00:00.5-03:30", "24:00:00+00"])),
        ("timestamp", time("timestamp").boxed()),
        ("timestamp(0)", one_of(&["infinity", "-infinity", "0044-03-15 BC", "2024-02-29 13:14:15.6"])),
        ("timestamptz", time("timestamptz").boxed()),
        ("timestamptz", one_of(&["infinity", "-infinity", "0044-03-15 12:00+01 BC", "2024-02-29 13:14:15.5-11:30"])),
        (
            "interval",
            (small(), any::<i32>())
                .prop_map(|(months, n)| format!("{months} * interval '1 month' + {n} * interval '1 ms'"))
                .boxed(),
        ),
        ("uuid", any::<u128>().prop_map(|n| literal(&format!("{n:032x}"))).boxed()),
        ("inet", one_of(&["127.0.0.1", "10.0.0.0/8", "::1/64"])),
        ("cidr", one_of(&["10.0.0.0/8", "2001:db8::/32"])),
        ("macaddr", one_of(&["08:00:2b:01:02:03"])),
        ("money", small().prop_map(|n| format!("'{n}.25'::money")).boxed()),
        ("oid", any::<u32>().prop_map(|n| format!("{n}::oid")).boxed()),
        ("regclass", one_of(&["pg_class", "pg_catalog.pg_type"])),
        ("bit(8)", one_of(&["00010001", "11111111"])),
        ("varbit", one_of(&["", "101"])),
        ("point", (small(), small()).prop_map(|(x, y)| format!("point({x}, {y}.5)")).boxed()),
        ("box[]", one_of(&["{}", "{(1,2),(0,0);(3,4),(0.5,0)}"])),
        ("json", quoted(json())),
        ("jsonb", quoted(json())),
        ("json[]", list(json().prop_map(|text| format!("{}::json", literal(&text))).boxed(), "json")),
        ("xml", one_of(&["<a b=\"c\">d</a>"])),
        ("tsvector", quoted("[a-z ']{0,12}".prop_map(|text| text.replace('\'', "")).boxed())),
        ("int4range", (small(), 0..50_i32).prop_map(|(low, size)| format!("int4range({low}, {})", low + size)).boxed()),
        ("tstzrange", time("timestamptz").prop_map(|from| format!("tstzrange({from}, null)")).boxed()),
        (
            "int4multirange",
            (small(), 1..50_i32)
                .prop_map(|(low, size)| format!("int4multirange(int4range({low}, {}))", low + size))
                .boxed(),
        ),
        ("int2vector", one_of(&["", "1 2 -3"])),
        ("oidvector", one_of(&["", "4294967295 2"])),
        ("mood", mood().boxed()),
        ("positive", (1..100_i32).prop_map(|n| n.to_string()).boxed()),
        ("secret", bytes()),
        ("ratio", float().prop_map(|text| literal(&text)).boxed()),
        ("labels", list(quoted(texts()), "text")),
        ("pair", pair().boxed()),
        ("nested", nested().boxed()),
        ("text[]", list(quoted(texts()), "text")),
        ("bool[]", list(any::<bool>().prop_map(|value| value.to_string()).boxed(), "bool")),
        ("float8[]", list(float().prop_map(|text| literal(&text)).boxed(), "float8")),
        ("bytea[]", list(bytes(), "bytea")),
        ("timestamptz[]", list(time("timestamptz").boxed(), "timestamptz")),
        ("int4[]", Just("'[2:3][-1:0]={{1,2},{3,null}}'".to_owned()).boxed()),
        ("mood[]", list(mood().boxed(), "mood")),
        ("pair[]", list(pair().boxed(), "pair")),
        ("nested[]", list(nested().boxed(), "nested")),
        ("plain", one_of(&["p", "q"])),
        ("plain[]", list(one_of(&["p", "q"]).prop_map(|text| format!("{text}::plain")).boxed(), "plain")),
        ("tagged", quoted(texts()).prop_map(|text| format!("row({text})::tagged")).boxed()),
    ]
}

/// Removes the spaces between the tokens of a document.
fn compact(json: &str) -> String {
    let (mut in_string, mut is_escaped) = (false, false);
    let keeps = |character: char| {
        let keeps = in_string || character != ' ';
        match character {
            '"' if !is_escaped => in_string = !in_string,
            _ => {}
        }
        is_escaped = in_string && character == '\\' && !is_escaped;
        keeps
    };
    let mut keeps = keeps;
    json.chars().filter(|character| keeps(*character)).collect()
}

#[tokio::test]
async fn values_of_every_type_are_rendered_as_sql_renders_them() {
    const ROWS: usize = 60;
    let types = types();
    let columns: Vec<_> = types.iter().enumerate().map(|(at, (name, _))| format!("c{at} {name}")).collect();
    let mut streamed =
        Streamed::new(&format!("{TYPES} create table items (id int primary key, {})", columns.join(", "))).await;
    let mut runner = TestRunner::default();
    let mut rows = vec![format!("(0{})", ", null".repeat(types.len()))];
    for id in 1..=ROWS {
        let values = types.iter().map(|(_, strategy)| strategy.new_tree(&mut runner).unwrap().current());
        rows.push(format!("({id}, {})", values.collect::<Vec<_>>().join(", ")));
    }
    let inserts: String = rows.iter().map(|row| format!("insert into items values {row};")).collect();
    let changes = streamed.changes(&format!("begin; {inserts} commit")).await;
    assert_eq!(changes.len(), ROWS + 1);

    let expected = |(at, (name, _)): (usize, &(&str, BoxedStrategy<String>))| match *name {
        "bytea" | "secret" => format!("to_jsonb(encode(c{at}::bytea, 'hex'))"),
        "float4" | "float8" | "ratio" | "numeric" => {
            format!(
                "case when c{at}::text in ('NaN', 'Infinity', '-Infinity') then 'null'::jsonb else to_jsonb(c{at}) end"
            )
        }
        _ => format!("to_jsonb(c{at})"),
    };
    let expected: Vec<_> = types.iter().enumerate().map(expected).collect();
    let list = expected.iter().map(|json| format!("coalesce({json}, 'null')::text")).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "select array[id::text, {list}], \
           (select jsonb_object_agg(key, value)::text
              from unnest(array['id',{}], array[to_jsonb(id), {}]) as item (key, value))
           from items order by id",
        (0..types.len()).map(|at| format!("'c{at}'")).collect::<Vec<_>>().join(","),
        expected.join(", ")
    );
    let expected = streamed.client.query(&sql, &[]).await.unwrap();
    let mut by_server = BTreeSet::new();
    for (change, expected) in changes.iter().zip(&expected) {
        let ChangeKind::Insert { new } = &change.kind else { panic!("{change:?}") };
        let table = streamed.describe(change).await;
        let alone = table.render(new, None);
        let missing = (0..types.len()).filter(|at| alone.column(at + 1).is_none());
        by_server.extend(missing.map(|at| types[at].0));
        let row = streamed.rendered_row(&table, change).await;
        let values: Vec<String> = expected.get(0);
        for (at, value) in values.iter().enumerate() {
            let column = &table.table.columns[at];
            let got = String::from_utf8(row.column(at).unwrap().to_vec()).unwrap();
            let context = format!("{} {} {:?}", column.name, table.type_name(at), new.get(at));
            assert_eq!(compact(&got), compact(value), "{context}");
        }
        let mut object = Vec::new();
        table.write_object(&mut object, &row, |_, _| true);
        assert_eq!(compact(&String::from_utf8(object).unwrap()), compact(expected.get(1)));
    }
    assert!(by_server.into_iter().eq(["plain", "plain[]"]), "no other type needs the server");
    streamed.close().await;
}

#[tokio::test]
async fn old_rows_follow_the_replica_identity() {
    let large = "(select string_agg(md5(n::text), '') from generate_series(1, 400) as n)";
    let mut streamed = Streamed::new(&format!(
        "create table keyed (id int primary key, name text, large text);
         alter table keyed alter column large set storage external;
         create table whole (like keyed including all);
         alter table whole replica identity full;
         create table other (id int primary key, code text not null unique, name text);
         alter table other replica identity using index other_code_key;
         insert into keyed values (1, 'a', {large}); insert into whole select * from keyed;
         insert into other values (1, 'x', 'a')"
    ))
    .await;
    let some = |text: &str| Some(text.to_owned());
    for (statement, old, new) in [
        ("update keyed set name = 'b'", None, some(r#"{"id":1,"name":"b"}"#)),
        ("update keyed set id = 2", some(r#"{"id":1,"name":null,"large":null}"#), some(r#"{"id":2,"name":"b"}"#)),
        ("delete from keyed", some(r#"{"id":2,"name":null,"large":null}"#), None),
        ("update other set name = 'b'", None, some(r#"{"id":1,"code":"x","name":"b"}"#)),
        (
            "update other set code = 'y'",
            some(r#"{"id":null,"code":"x","name":null}"#),
            some(r#"{"id":1,"code":"y","name":"b"}"#),
        ),
    ] {
        let changes = streamed.changes(statement).await;
        assert_eq!(streamed.rendered(&changes[0]).await, (old, new), "{statement}");
    }
    let changes = streamed.changes("update whole set name = 'b'").await;
    let (old, new) = streamed.rendered(&changes[0]).await;
    let large: String = streamed.client.query_one("select large from whole", &[]).await.unwrap().get(0);
    assert_eq!(old.unwrap(), format!(r#"{{"id":1,"name":"a","large":"{large}"}}"#));
    assert_eq!(new.unwrap(), format!(r#"{{"id":1,"name":"b","large":"{large}"}}"#), "taken from the old row");
    let table = streamed.describe(&changes[0]).await;
    assert!((0..3).all(|column| table.is_identity(column)), "the identity is the whole row, and the key is not");
    let keys: Vec<_> = table.table.columns.iter().map(|column| column.is_primary_key).collect();
    assert_eq!(keys, [true, false, false]);
    streamed.close().await;
}

#[tokio::test]
async fn a_table_is_described_again_when_it_or_its_types_change() {
    describe_again(scratch::shared_cluster().await.unwrap().endpoint()).await;
    with_older_postgres(describe_again).await;
}

/// Runs a test on an older PostgreSQL, where one is installed.
async fn with_older_postgres(test: impl AsyncFnOnce(Endpoint)) {
    if let Some(binaries) = scratch::older_binaries() {
        let folder = tempfile::tempdir().unwrap();
        let settings = ClusterSettings {
            binaries: Some(binaries.folder().to_owned()),
            durability: Durability::Off,
            ..ClusterSettings::new(folder.path().join("database"))
        };
        let cluster = Cluster::start(settings).await.unwrap();
        test(cluster.endpoint()).await;
        cluster.stop().await;
    }
}

async fn describe_again(admin: Endpoint) {
    let mut streamed = Streamed::on(
        admin,
        "create type size as (w int);
         create table parent (id int, at date, s size, primary key (id, at)) partition by range (at);
         create table part partition of parent for values from ('2026-01-01') to ('2027-01-01')",
    )
    .await;
    let insert = |rest: &str| format!("insert into parent values (1, '2026-01-02', {rest})");
    let changes = streamed.changes(&insert("row(1)")).await;
    let table = streamed.describe(&changes[0]).await;
    assert_eq!((&*table.table.schema, &*table.table.name), ("public", "part"));
    let root = table.table.partition_root.as_ref().map(|(schema, name)| (&**schema, &**name));
    assert_eq!(root, Some(("public", "parent")));
    assert!(!table.table.has_row_security && table.table.has_primary_key());
    assert_eq!(streamed.rendered(&changes[0]).await.1.unwrap(), r#"{"s":{"w":1},"at":"2026-01-02","id":1}"#);
    // PostgreSQL describes an unchanged table again when its caches were reset, which statements of
    // other sessions can cause
    let (mut relation, mut known) = (Arc::clone(&changes[0].relation), table);
    for attempt in 0.. {
        let again = streamed.changes("update parent set s = row(2)").await;
        let described = streamed.describe(&again[0]).await;
        let is_same = Arc::ptr_eq(&relation, &again[0].relation);
        assert_eq!(is_same, Arc::ptr_eq(&known, &described), "read again only where it is described again");
        if is_same {
            break;
        }
        assert!(attempt < 20, "the table is described with each change");
        (relation, known) = (Arc::clone(&again[0].relation), described);
    }

    let changes = streamed
        .changes(
            "begin; alter type size add attribute h int cascade; alter table parent add column note text;
             alter table part enable row level security;
             insert into parent values (2, '2026-01-02', row(1, 2), 'n'); commit",
        )
        .await;
    let change = changes.last().unwrap();
    assert!(streamed.describe(change).await.table.has_row_security);
    assert_eq!(
        streamed.rendered(change).await.1.unwrap(),
        r#"{"s":{"h":2,"w":1},"at":"2026-01-02","id":2,"note":"n"}"#
    );

    let statements = "begin; create table short (id int); insert into short values (1); drop table short; commit";
    let changes = streamed.changes(statements).await;
    let relation = &changes[0].relation;
    assert!(streamed.catalog.describe(&streamed.client, relation).await.unwrap().is_none());
    assert!(streamed.catalog.described(relation).is_some_and(|known| known.is_none()), "it is not looked up again");
    streamed.close().await;
}
