//! The lists of functions that decide how much of a session is taken back (`wire::session`).

use portico_database::wire::FunctionTraits;
use tokio_postgres::Client;

use super::bootstrap::{majors, ready};

const NONE: FunctionTraits = FunctionTraits::NONE;

/// Returns the functions with a property, by name.
async fn listed(client: &Client, bit: i32) -> Vec<String> {
    const LISTED: &str = "
        select p.proname::text from portico_session.noted join pg_proc as p on p.oid = function
         where bit = $1 and gone_at is null order by 1";
    client.query(LISTED, &[&bit]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

const FOLDS: i32 = 1;
const PREPARES: i32 = 2;

/// Lets a while pass since functions lost their properties.
pub async fn later(client: &Client) {
    const AGE: &str =
        "update portico_session.noted set gone_at = gone_at - interval '1 hour'; select portico_session.note('{}')";
    client.batch_execute(AGE).await.unwrap();
}

#[tokio::test]
async fn functions_are_listed_in_the_transaction_that_changes_them() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        // None of our own functions counts
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), NONE, "{major}");
        client
            .batch_execute(
                "begin;
                 create function plain() returns int stable language sql as 'select 1';
                 create function folded() returns int immutable language sql as 'select 1';
                 create function dynamic(text) returns void language plpgsql as $$ begin execute $1; end $$;
                 create aggregate summed(int) (sfunc = int4pl, stype = int)",
            )
            .await
            .unwrap();
        assert_eq!(listed(&client, FOLDS).await, ["folded"], "{major}");
        assert_eq!(listed(&client, PREPARES).await, ["dynamic"], "{major}");
        client.batch_execute("commit").await.unwrap();
        let both = FunctionTraits { folds: true, prepares: true, ..NONE };
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), both, "{major}");
        client
            .batch_execute(
                "alter function plain() immutable;
                 alter function folded() stable;
                 create or replace function dynamic(text) returns void language plpgsql as $$ begin perform 1; end $$",
            )
            .await
            .unwrap();
        assert_eq!(listed(&client, FOLDS).await, ["plain"], "{major}");
        assert!(listed(&client, PREPARES).await.is_empty(), "{major}");
        // Also what a superuser does where a replica switches other event triggers off
        client
            .batch_execute(
                "set session_replication_role = replica;
                 create function storage.foldername(int) returns int immutable language sql as 'select 1';
                 reset session_replication_role; drop function plain()",
            )
            .await
            .unwrap();
        assert_eq!(listed(&client, FOLDS).await, ["foldername"], "{major}");
        client.batch_execute("drop function storage.foldername(int)").await.unwrap();
        // A transaction that used them may still be under way
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), both, "{major}");
        later(&client).await;
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), NONE, "{major}");
        // The functions of an extension, which its script makes
        client.batch_execute("create extension earthdistance schema public cascade").await.unwrap();
        assert!(listed(&client, FOLDS).await.contains(&"earth".to_owned()), "{major}");
        client.batch_execute("drop extension earthdistance").await.unwrap();
        later(&client).await;
        assert_eq!(FunctionTraits::load(&client).await.unwrap(), NONE, "{major}");
    }
}

/// In plain words and in disguise; and words that are no statements.
#[tokio::test]
async fn functions_that_may_prepare_statements_are_recognised() {
    const PREPARE: &[&str] = &[
        "create function f(text) returns void language plpgsql as $$ begin execute $1; end $$",
        "create function f() returns void language sql as 'prepare x as select 1'",
        r"create function f() returns void language plpgsql as $$ begin do E'begin ex\145cute ''select 1''; end'; end $$",
        "create function f() returns void language plpgsql as $$ begin do /* */ language plpgsql $d$ begin null; end $d$; end $$",
        "create function f(text) returns xml language sql as $$ select query_to_xml($1, true, true, '') $$",
        "create function f(text) returns xml language sql begin atomic select query_to_xml($1, true, true, ''); end",
    ];
    const DO_NOT: &[&str] = &[
        "create function f() returns void language sql as 'insert into public.t values (1) on conflict do nothing'",
        "create function f() returns void language sql as 'insert into public.t values (1) on conflict (id) do update set id = 1'",
        "create function f() returns int language plpgsql as $$ declare done int := 1; begin return done; end $$",
    ];
    let database = ready(18).await;
    let client = database.administrator().await.unwrap();
    client.batch_execute("create table public.t (id int primary key)").await.unwrap();
    for (texts, expected) in [(PREPARE, true), (DO_NOT, false)] {
        for text in texts {
            client.batch_execute(&format!("begin; {text}")).await.unwrap();
            assert_eq!(!listed(&client, PREPARES).await.is_empty(), expected, "{text}");
            client.batch_execute("rollback").await.unwrap();
        }
    }
    // Without a function
    for (text, expected) in [
        ("create view v as select query_to_xml('select 1', true, true, '')", true),
        ("create policy p on t using (query_to_xml('select 1', true, true, '') is not null)", true),
        ("create table d (x xml default query_to_xml('select 1', true, true, ''))", true),
        ("alter table t add check (query_to_xml('select 1', true, true, '') is not null)", true),
        ("create view v as select table_to_xml('t', true, true, '')", false),
    ] {
        client.batch_execute(&format!("begin; {text}")).await.unwrap();
        assert_eq!(FunctionTraits::load(&client).await.unwrap().prepares, expected, "{text}");
        client.batch_execute("rollback").await.unwrap();
    }
    client.batch_execute("create view v as select query_to_xml('select 1', true, true, '')").await.unwrap();
    client.batch_execute("drop view v; select portico_session.note(null)").await.unwrap();
    later(&client).await;
    assert_eq!(FunctionTraits::load(&client).await.unwrap(), NONE);
}

/// Parts of expressions that PostgreSQL computes once for a session.
#[tokio::test]
async fn expressions_that_keep_values_are_recognised() {
    const FUNCTIONS: &str = "
        create table polls (poll int, owner text, name text);
        create function mine() returns text immutable language plpgsql as $$ begin return coalesce(current_setting('request.jwt.claims', true), ''); end $$;
        create function claim(name text) returns text immutable language plpgsql as $$ begin return coalesce(current_setting(name, true), ''); end $$;
        create function slug(value text) returns text immutable language plpgsql as $$ begin return lower(value); end $$;
        create function inlined(value text) returns text immutable language sql as $$ select lower(value) $$;
        create function wrapped(value text) returns text immutable language sql as $$ select public.slug(lower(value)) $$;
        create function hidden(value text) returns text immutable language sql as $$ select value || public.mine() $$;
        create function hidden_deep(value text) returns text immutable language sql as $$ select public.hidden(value) $$;
        create function hidden_atomic(value text) returns text immutable language sql return value || public.mine();
        create function equals(text, text) returns boolean immutable language plpgsql as $$ begin return $1 = $2; end $$;
        create operator === (function = equals, leftarg = text, rightarg = text)";
    const KEEP: &[(&str, &str)] = &[
        ("create index i on polls (mine())", "index public.i"),
        ("create unique index u on polls (poll, (mine()))", "index public.u"),
        ("create index p on polls (poll) where owner = mine()", "index public.p"),
        ("create index c on polls ((owner || claim('x')))", "index public.c"),
        ("create index c on polls ((case when poll > 1 then owner else lower(mine()) end))", "index public.c"),
        ("create index h on polls (hidden(owner))", "index public.h"),
        ("create index h on polls (hidden_deep(owner))", "index public.h"),
        ("create index h on polls (hidden_atomic(owner))", "index public.h"),
        ("create index o on polls (poll) where 'a' === 'b'", "index public.o"),
        ("create domain d as text check (value like mine() || ':%')", "domain public.d"),
        ("create domain d as text; alter domain d add check (value <> mine())", "domain public.d"),
        ("create table parts (id text) partition by list ((id || mine()))", "table public.parts"),
    ];
    const DO_NOT: &[&str] = &[
        "create index on polls (slug(owner))",
        "create index on polls (inlined(owner), wrapped(name))",
        "create index on polls (poll) where owner === name",
        "create index on polls (lower(owner)) where poll is not null",
        "create domain d as text check (slug(value) = value)",
        "create table parts (id text) partition by list (slug(id))",
        "create table other (owner text default mine(), check (owner = mine()))",
    ];
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        client.batch_execute(FUNCTIONS).await.unwrap();
        let holders = "select string_agg(distinct holder, ', ') from portico_session.find_kept(null)";
        for (text, holder) in KEEP {
            client.batch_execute(&format!("begin; {text}")).await.unwrap();
            let found: Option<String> = client.query_one(holders, &[]).await.unwrap().get(0);
            assert_eq!(found.as_deref(), Some(*holder), "{major} {text}");
            assert!(FunctionTraits::load(&client).await.unwrap().keeps, "{major} {text}");
            client.batch_execute("rollback").await.unwrap();
        }
        for text in DO_NOT {
            client.batch_execute(&format!("begin; {text}")).await.unwrap();
            assert!(!FunctionTraits::load(&client).await.unwrap().keeps, "{major} {text}");
            client.batch_execute("rollback").await.unwrap();
        }
        // Also when the function that an expression calls changes
        const CHANGE: &str = "
            create index w on polls (wrapped(owner));
            create or replace function wrapped(value text) returns text immutable language sql as $$ select value || public.mine() $$";
        client.batch_execute(CHANGE).await.unwrap();
        assert!(FunctionTraits::load(&client).await.unwrap().keeps, "{major}");
        client.batch_execute("drop index w").await.unwrap();
        later(&client).await;
        assert!(!FunctionTraits::load(&client).await.unwrap().keeps, "{major}");
    }
}

#[tokio::test]
async fn without_event_triggers_nothing_is_taken_for_granted() {
    let database = ready(18).await;
    let client = database.administrator().await.unwrap();
    client.batch_execute("drop event trigger portico_functions_dropped").await.unwrap();
    let mut known = FunctionTraits::load(&client).await.unwrap();
    assert_eq!(FunctionTraits { unwatched: None, ..known }, FunctionTraits::UNKNOWN);
    // Each change that can add an expression with kept values gives another version
    for change in [
        "create function public.f() returns text immutable language sql as $$ select '' $$",
        "create or replace function public.f() returns text immutable language sql as $$ select 'x' $$",
        "create domain public.d as text",
        "alter domain public.d add constraint c check (value = public.f())",
        "create table public.t (a text) partition by list ((a = public.f()))",
        "create table public.i (a text); create index on public.i ((a || public.f()))",
        "create index on public.i (a) where a = public.f()",
        "drop table public.t, public.i",
    ] {
        client.batch_execute(change).await.unwrap();
        let now = FunctionTraits::load(&client).await.unwrap();
        let version = |traits: FunctionTraits| traits.unwatched.unwrap().version;
        assert_eq!(version(now) == version(known), change == "create domain public.d as text", "{change}");
        known = now;
    }
    assert!(known.keeps);
}

#[tokio::test]
async fn a_role_of_the_project_cannot_change_the_lists() {
    for major in majors() {
        let database = ready(major).await;
        let client = database.administrator().await.unwrap();
        client
            .batch_execute("create function folded() returns int immutable language sql as 'select 1'")
            .await
            .unwrap();
        client.batch_execute("set session authorization postgres").await.unwrap();
        for attempt in [
            "delete from portico_session.noted",
            "insert into portico_session.reviewed values ('public.folded', md5('select 1'))",
            "drop event trigger portico_functions_changed",
            "alter event trigger portico_functions_changed disable",
            "alter schema portico_session rename to other",
            "create or replace function portico_session.watch_functions() returns event_trigger language plpgsql as 'begin end'",
            "drop view portico_session.traits",
        ] {
            let error = client.batch_execute(attempt).await.unwrap_err();
            assert_eq!(error.code().unwrap().code(), "42501", "{major} {attempt}: {error:?}");
        }
        assert_eq!(listed(&client, FOLDS).await, ["folded"], "{major}");
    }
}
