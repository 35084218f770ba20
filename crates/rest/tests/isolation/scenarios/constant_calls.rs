//! Functions that are declared immutable and read settings nevertheless, called without a column
//! where PostgreSQL evaluates such calls once per session, outside of plans. While a database has
//! such functions, its sessions end with their transactions, so these scenarios are not part of the
//! other tests' databases.

use crate::scenario::{Probe, Scenario};
use crate::schedule;
use crate::server::IsolationServer;

const ROUNDS: usize = 2;

pub fn scenarios() -> Vec<Scenario> {
    let own = |resource| Probe::post(resource, r#"{"mark":"{mark}"}"#).expect(201, r#"[{"mark":"{mark}"}]"#);
    vec![
        Scenario::new(
            "kept_in_domain",
            "create domain public.own_mark as text check (value = split_part(public.context_immutable(), '|', 7));
             create table kept_in_domain (mark public.own_mark);",
            [
                own("kept_in_domain?select=mark"),
                Probe::post("kept_in_domain?select=mark", r#"{"mark":"of another"}"#),
            ],
        ),
        Scenario::new(
            "kept_in_index",
            "create table kept_in_index (mark text);
             create unique index on kept_in_index (public.context_immutable());",
            [own("kept_in_index?select=mark")],
        ),
        Scenario::new(
            "kept_in_index_of_sql",
            "create table kept_in_index_of_sql (mark text);
             create function public.of_caller(text) returns text language sql immutable as $$ select $1 || public.context_immutable() $$;
             create unique index on kept_in_index_of_sql (public.of_caller('x' || left(mark, 0)));",
            [own("kept_in_index_of_sql?select=mark")],
        ),
        Scenario::new(
            "kept_in_partial_index",
            "create table kept_in_partial_index (mark text);
             create unique index on kept_in_partial_index ((1)) where mark <> split_part(public.context_immutable(), '|', 7);",
            [own("kept_in_partial_index?select=mark")],
        ),
        Scenario::new(
            "kept_in_partition_key",
            "create table kept_in_partition_key (mark text)
               partition by list ((mark = split_part(public.context_immutable(), '|', 7)));
             create table kept_own partition of kept_in_partition_key for values in (true);",
            [own("kept_in_partition_key?select=mark")],
        ),
    ]
}

#[tokio::test]
async fn values_that_a_session_keeps_are_the_caller_s() {
    let stage = IsolationServer::open(1, scenarios()).await;
    let (_, report) = schedule::run_unpolluted(&stage, ROUNDS).await;
    schedule::finish(&stage, report).await;
}
