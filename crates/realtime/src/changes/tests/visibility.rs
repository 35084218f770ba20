//! Compares what a person receives with what the same person may select and asked for.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio_postgres::Client;

use super::{Joined, Live, entry};
use crate::fixture::identity;
use crate::identity::ChannelIdentity;

const COLUMNS: [&str; 7] = ["id", "owner", "level", "shared", "score", "tag", "secret"];
const POLICIES: [&str; 7] = [
    "true",
    "false",
    "owner = auth.jwt() ->> 'sub'",
    "owner = auth.jwt() ->> 'sub' or shared",
    "level <= (auth.jwt() ->> 'level')::int",
    "10 / (level - (auth.jwt() ->> 'level')::int) > 0",
    "(auth.jwt() ->> 'sub') <> 'c' and id % 2 = 0",
];
/// Filters of the protocol and of SQL.
const FILTERS: [(&str, &str); 18] = [
    ("", "true"),
    ("", "true"),
    ("level=eq.3", "level = 3"),
    ("level=neq.3", "level <> 3"),
    ("level=in.(1,2)", "level in (1, 2)"),
    ("level=not.gt.2", "not level > 2"),
    ("owner=eq.a", "owner = 'a'"),
    ("owner=not.in.(a,\"b\")", "owner not in ('a', 'b')"),
    ("score=gte.2.50", "score >= 2.50"),
    ("score=eq.2.5", "score = 2.5"),
    ("tag=like.x%", "tag like 'x%'"),
    ("tag=not.ilike.X%", "not tag ilike 'X%'"),
    ("tag=is.null", "tag is null"),
    ("tag=isdistinct.xy", "tag is distinct from 'xy'"),
    ("shared=is.true", "shared is true"),
    ("shared=not.is.unknown", "shared is not unknown"),
    ("tag=match.^x,level=lt.4", "tag ~ '^x' and level < 4"),
    ("id=lte.4,owner=neq.c", "id <= 4 and owner <> 'c'"),
];

/// A table and its subscribers.
#[derive(Debug, Clone)]
struct Scenario {
    has_row_security: bool,
    has_full_identity: bool,
    policies: Vec<usize>,
    /// The role may select the column `secret`.
    reads_secret: bool,
    /// Person, event and filter.
    subscribers: Vec<(usize, usize, usize)>,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
struct Step {
    id: u32,
    is_deletion: bool,
    owner: usize,
    level: u32,
    shared: Option<bool>,
    score: u32,
    tag: Option<usize>,
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let step = (
        1..6_u32,
        prop::bool::weighted(0.3),
        0..3_usize,
        0..6_u32,
        any::<Option<bool>>(),
        0..10_u32,
        prop::option::of(0..4_usize),
    )
        .prop_map(|(id, is_deletion, owner, level, shared, score, tag)| Step {
            id,
            is_deletion,
            owner,
            level,
            shared,
            score,
            tag,
        });
    let subscriber = (0..4_usize, 0..4_usize, 0..FILTERS.len());
    (
        prop::bool::weighted(0.8),
        any::<bool>(),
        prop::collection::vec(0..POLICIES.len(), 0..3),
        any::<bool>(),
        prop::collection::vec(subscriber, 3..8),
        prop::collection::vec(step, 10..20),
    )
        .prop_map(|(has_row_security, has_full_identity, policies, reads_secret, subscribers, steps)| Scenario {
            has_row_security,
            has_full_identity,
            policies,
            reads_secret,
            subscribers,
            steps,
        })
}

fn people() -> [(ChannelIdentity, &'static str); 4] {
    let member = |sub: &str, level: Value| identity(json!({ "role": "authenticated", "sub": sub, "level": level }));
    [
        (member("a", json!(2)), "authenticated"),
        (member("b", json!(5)), "authenticated"),
        (member("c", json!("none")), "authenticated"),
        (identity(json!({ "role": "service_role" })), "service_role"),
    ]
}

/// A channel, and what is expected of it.
struct Subscriber {
    joined: Joined,
    person: usize,
    event: &'static str,
    filter: &'static str,
}

#[tokio::test]
async fn a_person_receives_what_that_person_may_select_and_asked_for() {
    let live = Live::new("").await;
    let oracle = portico_database::connect(live.database.endpoint()).await.unwrap();
    let mut runner = TestRunner::default();
    let mut delivered = 0;
    for number in 0..14 {
        let scenario = scenarios().new_tree(&mut runner).unwrap().current();
        let table = format!("t{number}");
        delivered += run(&live, &oracle, &table, &scenario).await;
    }
    assert!(delivered > 20, "{delivered}");
}

async fn run(live: &Live, oracle: &Client, table: &str, scenario: &Scenario) -> usize {
    live.run(&set_up(table, scenario)).await;
    let people = people();
    let mut subscribers = Vec::new();
    for (person, event, filter) in &scenario.subscribers {
        let event = ["*", "INSERT", "UPDATE", "DELETE"][*event];
        let (filter, sql) = FILTERS[*filter];
        let joined = live.join(&people[*person].0, &format!("topic {person}"), &[entry(event, table, filter)]).await;
        subscribers.push(Subscriber { joined, person: *person, event, filter: sql });
    }
    let mut delivered = 0;
    for step in &scenario.steps {
        let exists =
            oracle.query_opt(&format!("select from {table} where id = {}", step.id), &[]).await.unwrap().is_some();
        let action = match (exists, step.is_deletion) {
            (false, true) => continue,
            (false, false) => "INSERT",
            (true, true) => "DELETE",
            (true, false) => "UPDATE",
        };
        let mut expected = Vec::new();
        if action == "DELETE" {
            for subscriber in &subscribers {
                expected.push(expected_deletion(oracle, table, scenario, subscriber, step.id).await);
            }
        }
        live.run(&statement(table, action, step)).await;
        let mark = live.mark().await;
        if action != "DELETE" {
            for subscriber in &subscribers {
                let (identity, role) = &people[subscriber.person];
                expected
                    .push(expected_row(oracle, table, scenario, subscriber, (identity, role), (step.id, action)).await);
            }
        }
        for (subscriber, expected) in subscribers.iter().zip(expected) {
            let events = subscriber.joined.until(mark).await;
            let row = if action == "DELETE" { "old_record" } else { "record" };
            let got: Vec<_> =
                events.iter().map(|event| (event["data"]["type"].clone(), event["data"][row].clone())).collect();
            let expected: Vec<_> = expected.into_iter().map(|row| (json!(action), row)).collect();
            let Subscriber { person, event, filter, .. } = subscriber;
            assert_eq!(got, expected, "person {person}, event {event}, filter {filter}, {step:?} of {scenario:?}");
            delivered += got.len();
        }
    }
    live.run(&format!("drop table {table}")).await;
    delivered
}

fn set_up(table: &str, scenario: &Scenario) -> String {
    let mut sql = format!(
        "create table public.{table} (id int primary key, owner text, level int, shared bool, score numeric, tag varchar(8), secret text);
         revoke all on public.{table} from anon, authenticated;
         grant select ({}) on public.{table} to authenticated;
         grant select on public.{table} to service_role;
         alter table public.{table} replica identity {};
         alter table public.{table} {} row level security;
         alter publication supabase_realtime add table public.{table};",
        readable(scenario, "authenticated").join(", "),
        if scenario.has_full_identity { "full" } else { "default" },
        if scenario.has_row_security { "enable" } else { "disable" },
    );
    for (number, policy) in scenario.policies.iter().enumerate() {
        let _ = write!(
            sql,
            "create policy p{number} on public.{table} for select to authenticated using ({});",
            POLICIES[*policy]
        );
    }
    sql
}

fn readable(scenario: &Scenario, role: &str) -> Vec<&'static str> {
    let reads_secret = scenario.reads_secret || role == "service_role";
    COLUMNS.into_iter().filter(|column| reads_secret || *column != "secret").collect()
}

fn statement(table: &str, action: &str, step: &Step) -> String {
    let text = |text: Option<&str>| text.map_or("null".to_owned(), |text| format!("'{text}'"));
    let (owner, tag) = (["a", "b", "c"][step.owner], text(step.tag.map(|tag| ["x", "xy", "Xz", ""][tag])));
    let shared = step.shared.map_or("null".to_owned(), |shared| shared.to_string());
    let values = format!("'{owner}', {}, {shared}, {}.50, {tag}, 's'", step.level, step.score);
    let id = step.id;
    match action {
        "INSERT" => format!("insert into {table} values ({id}, {values})"),
        "UPDATE" => {
            format!("update {table} set (owner, level, shared, score, tag, secret) = row({values}) where id = {id}")
        }
        _ => format!("delete from {table} where id = {id}"),
    }
}

/// Returns the row as the person selects it with the filter.
async fn expected_row(
    oracle: &Client,
    table: &str,
    scenario: &Scenario,
    subscriber: &Subscriber,
    (identity, role): (&ChannelIdentity, &str),
    (id, action): (u32, &str),
) -> Option<Value> {
    if !["*", action].contains(&subscriber.event) {
        return None;
    }
    oracle.batch_execute("begin").await.unwrap();
    let settings = "select set_config('request.jwt.claims', $1, true), set_config('role', $2, true)";
    oracle.query(settings, &[&identity.claims(), &role]).await.unwrap();
    let columns = readable(scenario, role).join(", ");
    let sql = format!(
        "select to_jsonb(r)::text from (select {columns} from {table} where id = {id} and ({})) as r",
        subscriber.filter
    );
    let row = oracle.query_opt(&sql, &[]).await;
    oracle.batch_execute("rollback").await.unwrap();
    // A policy that fails shows nothing
    row.ok().flatten().map(|row| serde_json::from_str(row.get(0)).unwrap())
}

/// Returns the old row of a deletion, which policies do not decide about.
async fn expected_deletion(
    oracle: &Client,
    table: &str,
    scenario: &Scenario,
    subscriber: &Subscriber,
    id: u32,
) -> Option<Value> {
    if !["*", "DELETE"].contains(&subscriber.event) {
        return None;
    }
    let role = people()[subscriber.person].1;
    // With the key alone, a condition on another column does not hold
    let is_whole = scenario.has_full_identity && !scenario.has_row_security;
    let known = if is_whole || subscriber.filter == "true" { subscriber.filter } else { "false" };
    let columns = match is_whole {
        true => readable(scenario, role).join(", "),
        false => "id".to_owned(),
    };
    let sql =
        format!("select to_jsonb(r)::text from (select {columns} from {table} where id = {id} and ({known})) as r");
    let row = oracle.query_opt(&sql, &[]).await.unwrap();
    row.map(|row| serde_json::from_str(row.get(0)).unwrap())
}
