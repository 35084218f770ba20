//! Values of every type of the catalog, compared with the JSON that the protocol promises. The
//! catalog is asked for its types, so that a type of a new PostgreSQL needs a sample here.

use super::*;

/// The types of columns, with expressions of values and the JSON that a client receives. A sample
/// of an array is made of those of its element.
const SAMPLES: &[(&str, &[(&str, &str)])] = &[
    ("bool", &[("true", "true"), ("false", "false")]),
    ("int2", &[("-32768", "-32768")]),
    ("int4", &[("2147483647", "2147483647")]),
    ("int8", &[("9223372036854775807", "9223372036854775807")]),
    ("numeric", &[("12.50", "12.50"), ("1e20", "100000000000000000000"), ("'NaN'", "null"), ("'Infinity'", "null")]),
    ("float4", &[("1.1", "1.1"), ("'1e20'", "100000000000000000000"), ("'NaN'", "null"), ("'-Infinity'", "null")]),
    ("float8", &[("1.1", "1.1"), ("'-1.5e-7'", "-0.00000015"), ("'NaN'", "null"), ("'Infinity'", "null")]),
    ("money", &[("'12.34'", r#""$12.34""#)]),
    ("text", &[(r#"E'é "\\ \n'"#, r#""é \"\\ \n""#), ("''", r#""""#)]),
    ("varchar", &[("'NULL'", r#""NULL""#)]),
    ("bpchar", &[("'whole '", r#""whole ""#)]),
    ("name", &[("'a name'", r#""a name""#)]),
    ("char", &[("'c'", r#""c""#)]),
    ("bytea", &[(r"'\xdeadbeef'", r#""deadbeef""#)]),
    ("date", &[("'2024-02-29'", r#""2024-02-29""#), ("'infinity'", r#""infinity""#)]),
    ("time", &[("'13:14:15.5'", r#""13:14:15.5""#)]),
    ("timetz", &[("'13:14:15+02'", r#""13:14:15+02""#)]),
    ("timestamp", &[("'2024-02-29 13:14:15.123456'", r#""2024-02-29T13:14:15.123456""#)]),
    ("timestamptz", &[("'2024-02-29 13:14:15.123456+02'", r#""2024-02-29T11:14:15.123456+00:00""#)]),
    ("interval", &[("'1 day 02:03:00'", r#""1 day 02:03:00""#)]),
    ("uuid", &[("'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", r#""a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11""#)]),
    ("inet", &[("'10.1.2.3/24'", r#""10.1.2.3/24""#)]),
    ("cidr", &[("'2001:db8::/32'", r#""2001:db8::/32""#)]),
    ("macaddr", &[("'08:00:2b:01:02:03'", r#""08:00:2b:01:02:03""#)]),
    ("macaddr8", &[("'08:00:2b:01:02:03:04:05'", r#""08:00:2b:01:02:03:04:05""#)]),
    ("bit", &[("'1010'", r#""1010""#)]),
    ("varbit", &[("'101'", r#""101""#)]),
    ("point", &[("'(1,2.5)'", r#""(1,2.5)""#)]),
    ("line", &[("'{1,2,3}'", r#""{1,2,3}""#)]),
    ("lseg", &[("'[(0,0),(1,1)]'", r#""[(0,0),(1,1)]""#)]),
    ("box", &[("'(1,1),(0,0)'", r#""(1,1),(0,0)""#)]),
    ("path", &[("'((0,0),(1,1))'", r#""((0,0),(1,1))""#)]),
    ("polygon", &[("'((0,0),(1,1),(2,0))'", r#""((0,0),(1,1),(2,0))""#)]),
    ("circle", &[("'<(1,2),3>'", r#""<(1,2),3>""#)]),
    ("json", &[(r#"'{"b": 1, "a": [null, "x"]}'"#, r#"{"a":[null,"x"],"b":1}"#), ("'null'", "null")]),
    ("jsonb", &[(r#"'{"b": 1.50, "a": [null, "x"]}'"#, r#"{"a":[null,"x"],"b":1.50}"#), (r#"'"1"'"#, r#""1""#)]),
    ("jsonpath", &[("'$.a[*]'", r#""$.\"a\"[*]""#)]),
    ("xml", &[(r#"'<a b="c">d</a>'"#, r#""<a b=\"c\">d</a>""#)]),
    ("tsvector", &[("'a:1 b:2'", r#""'a':1 'b':2""#)]),
    ("tsquery", &[("'a & b'", r#""'a' & 'b'""#)]),
    ("oid", &[("42", r#""42""#)]),
    ("regproc", &[("'now'", r#""now""#)]),
    ("regprocedure", &[("'abs(integer)'", r#""abs(integer)""#)]),
    ("regoper", &[("'||/'", r#""||/""#)]),
    ("regoperator", &[("'*(integer,integer)'", r#""*(integer,integer)""#)]),
    ("regclass", &[("'pg_type'", r#""pg_type""#)]),
    ("regcollation", &[("'\"C\"'", r#""\"C\"""#)]),
    ("regtype", &[("'int4'", r#""integer""#)]),
    ("regrole", &[("'pg_monitor'", r#""pg_monitor""#)]),
    ("regnamespace", &[("'pg_catalog'", r#""pg_catalog""#)]),
    ("regconfig", &[("'english'", r#""english""#)]),
    ("regdictionary", &[("'simple'", r#""simple""#)]),
    ("int2vector", &[("'1 2 -3'", "[1,2,-3]"), ("''", "[]")]),
    ("oidvector", &[("'4294967295 2'", r#"["4294967295","2"]"#)]),
    ("tid", &[("'(0,1)'", r#""(0,1)""#)]),
    ("xid", &[("'42'", r#""42""#)]),
    ("xid8", &[("'42'", r#""42""#)]),
    ("cid", &[("'42'", r#""42""#)]),
    ("pg_lsn", &[("'16/B374D848'", r#""16/B374D848""#)]),
    ("pg_snapshot", &[("'10:20:10,14'", r#""10:20:10,14""#)]),
    ("txid_snapshot", &[("'10:20:10,14'", r#""10:20:10,14""#)]),
    ("refcursor", &[("'a cursor'", r#""a cursor""#)]),
    ("aclitem", &[("'pg_monitor=r/pg_monitor'", r#""pg_monitor=r/pg_monitor""#)]),
    ("int4range", &[("'[1,5)'", r#""[1,5)""#), ("'empty'", r#""empty""#)]),
    ("int8range", &[("'[1,)'", r#""[1,)""#)]),
    ("numrange", &[("'[1.50,2.5]'", r#""[1.50,2.5]""#)]),
    ("daterange", &[("'[2024-01-01,2024-01-05)'", r#""[2024-01-01,2024-01-05)""#)]),
    ("tsrange", &[("'[2024-01-01 01:02:03,)'", r#""[\"2024-01-01 01:02:03\",)""#)]),
    ("tstzrange", &[("'[2024-01-01 01:02:03+00,)'", r#""[\"2024-01-01 01:02:03+00\",)""#)]),
    ("int4multirange", &[("'{[1,5),[7,9)}'", r#""{[1,5),[7,9)}""#), ("'{}'", r#""{}""#)]),
    ("int8multirange", &[("'{[1,5)}'", r#""{[1,5)}""#)]),
    ("nummultirange", &[("'{[1.50,2.5]}'", r#""{[1.50,2.5]}""#)]),
    ("datemultirange", &[("'{[2024-01-01,2024-01-05)}'", r#""{[2024-01-01,2024-01-05)}""#)]),
    ("tsmultirange", &[("'{[2024-01-01 01:02:03,)}'", r#""{[\"2024-01-01 01:02:03\",)}""#)]),
    ("tstzmultirange", &[("'{[2024-01-01 01:02:03+00,)}'", r#""{[\"2024-01-01 01:02:03+00\",)}""#)]),
    // The domains of the information schema
    ("cardinal_number", &[("7", "7")]),
    ("character_data", &[("'a b'", r#""a b""#)]),
    ("sql_identifier", &[("'items'", r#""items""#)]),
    ("time_stamp", &[("'2024-02-29 13:14:15.12+02'", r#""2024-02-29T11:14:15.12+00:00""#)]),
    ("yes_or_no", &[("'YES'", r#""YES""#)]),
    // The types of a project
    ("mood", &[("'happy, {very}'", r#""happy, {very}""#), (r#"'so "so"'"#, r#""so \"so\"""#)]),
    ("plain", &[("'p'", r#"["p"]"#)]),
    ("positive", &[("5", "5")]),
    ("small", &[("5", "5")]),
    ("secret", &[(r"'\xdeadbeef'", r#""deadbeef""#)]),
    ("ratio", &[("1.5", "1.5"), ("'NaN'", "null")]),
    ("labels", &[("'{a,NULL}'", r#"["a",null]"#)]),
    ("pair", &[("row('z z', '2024-02-29 11:14:15+00')", r#"{"x":"2024-02-29T11:14:15+00:00","yy":"z z"}"#)]),
    (
        "nested",
        &[(
            r#"row(row('z', null)::pair, '{1.50,NULL}'::numeric[], 'sad', 5, '\xdead', '{"b":1,"a":2}')"#,
            r#"{"d":5,"j":{"a":2,"b":1},"m":"sad","p":{"x":null,"yy":"z"},"raw":"\\xdead","list":[1.50,null]}"#,
        )],
    ),
    ("tagged", &[("row('a')", r#"{"label":"a"}"#)]),
    ("account", &[("row(1, '{a,b}')", r#"{"id":1,"names":["a","b"]}"#)]),
    ("span", &[("'[1.5,2)'", r#""[1.5,2)""#)]),
    ("span_multirange", &[("'{[1.5,2)}'", r#""{[1.5,2)}""#)]),
];

/// The types whose values only PostgreSQL itself makes, and where it keeps one. A client receives
/// the text form.
const VALUES_OF_THE_CATALOG: &[(&str, &str)] = &[
    ("pg_node_tree", "(select adbin from pg_attrdef where adrelid = 'measured'::regclass)"),
    ("pg_ndistinct", "(select stxdndistinct from pg_statistic_ext_data)"),
    ("pg_dependencies", "(select stxddependencies from pg_statistic_ext_data)"),
    ("pg_mcv_list", "(select stxdmcv from pg_statistic_ext_data)"),
];

/// The types whose values are only in indexes: a column of them has nulls.
const WITHOUT_VALUES: &[&str] = &["gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary"];

const SET_UP: &str = "
    create domain small as positive check (value < 100);
    create type span as range (subtype = float8);
    create table account (id int, names text[]);
    create table measured (a int default 1, b int);
    insert into measured select n % 3, n % 3 from generate_series(1, 30) as n;
    create statistics of_measured (ndistinct, dependencies, mcv) on a, b from measured;
    analyze measured;";

/// Selects the types that a column can have: all but pseudo-types, arrays of them, and the row
/// types of PostgreSQL's own tables. Those of the project's tables are among them.
const COLUMN_TYPES: &str = "
    select type.typname::text, format('%I.%I', namespace.nspname, type.typname), element.typname::text
      from pg_type as type
           join pg_namespace as namespace on namespace.oid = type.typnamespace
           left join pg_type as element on element.typarray = type.oid
           left join pg_class as class on class.oid = coalesce(element.typrelid, type.typrelid)
     where coalesce(element.typtype, type.typtype) <> 'p'
       and (class.relkind is null or class.relkind = 'c' or namespace.nspname = 'public')
       and (class.relname is null or class.relname <> 'measured')
     order by type.oid";

/// The JSON that is expected of a value.
enum ExpectedJson {
    Text(String),
    /// The result of an expression of SQL on the column `value`.
    OfServer(&'static str),
}

/// Returns expressions of values of a type, and their JSON. `None`: there is no sample.
fn samples(name: &str, element: Option<&str>) -> Option<Vec<(String, ExpectedJson)>> {
    if let Some(element) = element {
        let elements = samples(element, None)?;
        // Compared with `to_jsonb`, since an element has no rule of its own
        let array = |(value, _)| (format!("array[{value}, null]"), ExpectedJson::OfServer("to_jsonb(value)"));
        return Some(elements.into_iter().map(array).collect());
    }
    if let Some((_, samples)) = SAMPLES.iter().find(|(known, _)| *known == name) {
        let sample = |(value, json): &(&str, &str)| ((*value).to_owned(), ExpectedJson::Text((*json).to_owned()));
        return Some(samples.iter().map(sample).collect());
    }
    if let Some((_, value)) = VALUES_OF_THE_CATALOG.iter().find(|(known, _)| *known == name) {
        return Some(vec![((*value).to_owned(), ExpectedJson::OfServer("to_jsonb(value::text)"))]);
    }
    WITHOUT_VALUES.contains(&name).then(|| vec![("null".to_owned(), ExpectedJson::Text("null".to_owned()))])
}

#[tokio::test]
async fn every_type_of_the_catalog_is_rendered_as_the_protocol_has_it() {
    render_every_type(scratch::shared_cluster().await.unwrap().endpoint()).await;
    with_older_postgres(render_every_type).await;
}

async fn render_every_type(admin: Endpoint) {
    let mut streamed = Streamed::on(admin, &format!("{TYPES}{SET_UP}")).await;
    let types = streamed.client.query(COLUMN_TYPES, &[]).await.unwrap();
    let (mut tables, mut inserts, mut expected, mut missing) = (String::new(), String::new(), Vec::new(), Vec::new());
    for (at, row) in types.iter().enumerate() {
        let (name, qualified, element): (&str, &str, Option<&str>) = (row.get(0), row.get(1), row.get(2));
        let Some(samples) = samples(name, element) else {
            missing.push(name);
            continue;
        };
        tables.push_str(&format!("create table t{at} (id int, value {qualified});"));
        let null = ("null".to_owned(), ExpectedJson::Text("null".to_owned()));
        for (id, (value, json)) in samples.into_iter().chain([null]).enumerate() {
            inserts.push_str(&format!("insert into t{at} values ({id}, ({value})::{qualified});"));
            expected.push((at, name, id, json));
        }
    }
    assert!(missing.is_empty(), "types without a sample: {missing:?}");
    streamed.client.batch_execute(&tables).await.unwrap();
    let changes = streamed.changes(&format!("begin; {inserts} commit")).await;
    assert_eq!(changes.len(), expected.len());
    for (change, (at, name, id, json)) in changes.iter().zip(expected) {
        let json = match json {
            ExpectedJson::Text(json) => json,
            ExpectedJson::OfServer(expression) => {
                let sql = format!("select ({expression})::text from t{at} where id = {id}");
                streamed.client.query_one(&sql, &[]).await.unwrap().get(0)
            }
        };
        let table = streamed.describe(change).await;
        let row = streamed.rendered_row(&table, change).await;
        let ChangeKind::Insert { new } = &change.kind else { panic!("{change:?}") };
        let needs_server = json != "null" && ["plain", "_plain"].contains(&name);
        assert_eq!(table.render(new, None).is_waiting(), needs_server, "{name}, sample {id}");
        let got = String::from_utf8(row.column(1).unwrap().to_vec()).unwrap();
        assert_eq!(compact(&got), compact(&json), "{name}, sample {id}");
        assert_eq!(table.type_name(1), name);
    }
    streamed.close().await;
}
