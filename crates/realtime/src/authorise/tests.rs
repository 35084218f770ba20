use std::time::Duration;

use portico_database::wire::{Access, Batch, Statement, WirePoolSettings};
use serde_json::json;

use super::*;
use crate::error::{JoinError, Shutdown};
use crate::fixture::{ScratchDatabase, identity, person};
use crate::identity::ChannelIdentity;

const NONE: ReadPermissions = ReadPermissions { broadcast: false, presence: None };
const BROADCAST: ReadPermissions = ReadPermissions { broadcast: true, presence: None };

fn one_connection() -> WirePoolSettings {
    WirePoolSettings { max_connections: 1, ..WirePoolSettings::default() }
}

fn subject<'a>(identity: &'a ChannelIdentity, topic: &'a str) -> Subject<'a> {
    Subject { identity, headers: "{}", topic }
}

/// A database with one connection for probes.
struct Policies {
    database: ScratchDatabase,
    pool: Pool,
    authoriser: Authoriser,
}

impl Policies {
    async fn new(sql: &str) -> Self {
        let database = ScratchDatabase::new().await;
        database.run(sql).await;
        let pool = database.pool(one_connection());
        Self { authoriser: Authoriser::new(pool.clone(), Duration::ZERO), pool, database }
    }

    async fn read(&self, identity: &ChannelIdentity, topic: &str, presence: bool) -> ReadPermissions {
        self.authoriser.read(&subject(identity, topic), presence).await.unwrap()
    }

    async fn write(&self, identity: &ChannelIdentity, topic: &str) -> (bool, bool) {
        let permissions = self.authoriser.write(&subject(identity, topic)).await.unwrap();
        (permissions.broadcast, permissions.presence)
    }

    /// Waits until this number of probes waits for the connection.
    async fn has_waiting(&self, count: usize) {
        let waits = async {
            while self.pool.status().waiting != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waits).await.unwrap();
    }
}

#[tokio::test]
async fn policies_decide_by_role_claims_topic_and_extension() {
    let policies = Policies::new(
        "create policy a on realtime.messages for select to authenticated
           using (realtime.topic() = 'room:' || (select auth.uid()) and messages.topic = realtime.topic() and extension = 'broadcast');
         create policy b on realtime.messages for select to authenticated
           using (extension = 'presence' and auth.jwt() ->> 'plan' = 'pro' and auth.role() = 'authenticated');
         create policy c on realtime.messages for insert to authenticated
           with check (extension = 'presence' and realtime.topic() = topic);
         create policy d on realtime.messages for insert to anon with check (topic = 'open');
         create policy e on realtime.messages for select to anon
           using (current_setting('request.headers')::json ->> 'x-door' = 'blue'
              and current_setting('request.jwt.claim.sub') = 'ann' and current_setting('request.jwt.claim.role') = 'anon')",
    )
    .await;
    let id = "0c2a9d4e-1111-4222-8333-444455556666";
    let own = format!("room:{id}");
    let ann = person(id);
    let pro = identity(json!({ "role": "authenticated", "sub": id, "plan": "pro" }));
    assert_eq!(policies.read(&ann, &own, false).await, BROADCAST);
    assert_eq!(policies.read(&ann, "room:other", false).await, NONE);
    let both = ReadPermissions { broadcast: true, presence: Some(false) };
    assert_eq!(policies.read(&ann, &own, true).await, both);
    assert_eq!(policies.read(&pro, "x", true).await, ReadPermissions { broadcast: false, presence: Some(true) });
    assert!(both.any() && !ReadPermissions { broadcast: false, presence: Some(false) }.any());

    let visitor = identity(json!({ "role": "anon", "sub": "ann" }));
    let behind = |headers| Subject { identity: &visitor, headers, topic: "x" };
    let read = async |headers| policies.authoriser.read(&behind(headers), false).await.unwrap();
    assert_eq!(read(r#"{"x-door":"blue"}"#).await, BROADCAST);
    assert_eq!(read("{}").await, NONE);

    assert_eq!(policies.write(&ann, "any").await, (false, true));
    assert_eq!(policies.write(&visitor, "open").await, (true, true));
    assert_eq!(policies.write(&visitor, "closed").await, (false, false));
    assert_eq!(policies.write(&identity(json!({ "role": "service_role" })), "any").await, (true, true));
    let rows = policies.database.value("select count(*)::text from realtime.messages").await;
    assert_eq!(rows, "0", "probes are rolled back");
}

#[tokio::test]
async fn policies_for_presence_run_only_when_presence_is_wanted() {
    let policies = Policies::new(
        "create function reject() returns bool language plpgsql as $$ begin raise 'rejected'; end $$;
         create policy a on realtime.messages for select to authenticated
           using (case extension when 'presence' then reject() else true end)",
    )
    .await;
    assert_eq!(policies.read(&person("a"), "x", false).await, BROADCAST);
    let error = policies.authoriser.read(&subject(&person("a"), "x"), true).await.unwrap_err();
    assert!(matches!(&error, AuthoriseError::Policy(text) if text.contains("rejected")), "{error:?}");
    let topic = "x".to_owned();
    assert_eq!(error.clone().into_join_error("x"), JoinError::Unauthorized { topic: topic.clone() });
    assert_eq!(error.into_shutdown("x"), Shutdown::NoReadPermission { topic });
}

#[tokio::test]
async fn errors_of_policies_and_roles_reject() {
    let policies = Policies::new(
        "create policy a on realtime.messages for insert to authenticated
           with check (case when extension = 'presence' then 1 / (length(topic) - 1) = 0 else false end);
         create policy b on realtime.messages using (true) with check (true)",
    )
    .await;
    for role in ["pgbouncer", "no such role", "supabase_admin"] {
        let identity = identity(json!({ "role": role, "sub": "a" }));
        let read = policies.authoriser.read(&subject(&identity, "x"), false).await;
        assert!(matches!(read, Err(AuthoriseError::Policy(_) | AuthoriseError::Failed)), "{role} {read:?}");
        let write = policies.authoriser.write(&subject(&identity, "x")).await;
        assert!(write.is_err(), "{role} {write:?}");
    }
    policies.database.run("drop policy b on realtime.messages").await;
    let error = policies.authoriser.write(&subject(&person("a"), "x")).await.unwrap_err();
    assert!(matches!(error, AuthoriseError::Policy(text) if text.contains("division by zero")));
    assert_eq!(policies.write(&person("a"), "longer").await, (false, true));
    // A zero byte has no place in a text of PostgreSQL
    let error = policies.authoriser.read(&subject(&person("a"), "a\0b"), false).await.unwrap_err();
    assert!(matches!(error, AuthoriseError::Policy(_)), "{error:?}");
    assert_eq!(policies.read(&person("a"), "x", false).await, NONE);
}

#[tokio::test]
async fn a_missing_partition_is_reported() {
    let policies = Policies::new(
        "do $$ declare name regclass; begin
           for name in select inhrelid::regclass from pg_inherits where inhparent = 'realtime.messages'::regclass loop
             execute format('drop table %s', name);
           end loop; end $$",
    )
    .await;
    let read = policies.authoriser.read(&subject(&person("a"), "x"), false).await;
    assert_eq!(read, Err(AuthoriseError::MissingPartition));
    let write = policies.authoriser.write(&subject(&person("a"), "x")).await;
    assert_eq!(write, Err(AuthoriseError::MissingPartition));
}

/// A policy cannot extend its own time, nor that of the policy for the other extension.
#[tokio::test]
async fn a_slow_policy_is_canceled() {
    let policies = Policies::new(
        "create function slow() returns bool language plpgsql as $$ begin
           perform set_config('statement_timeout', '0', true); perform set_config('statement_timeout', '0', false);
           perform pg_sleep(600); return true; end $$;
         create function lift() returns bool language plpgsql as $$ begin
           perform set_config('statement_timeout', '0', false); return true; end $$;
         create policy a on realtime.messages for select to authenticated using (slow());
         create policy b on realtime.messages for insert to authenticated
           with check (case extension when 'broadcast' then lift() else slow() end)",
    )
    .await;
    let ann = person("a");
    let subject = subject(&ann, "x");
    let text = "canceling statement due to statement timeout".to_owned();
    let canceled = AuthoriseError::QueryCanceled(text.clone());
    assert_eq!(policies.authoriser.read(&subject, false).await, Err(canceled.clone()));
    assert_eq!(policies.authoriser.write(&subject).await, Err(canceled.clone()));
    assert_eq!(canceled.clone().into_join_error("x"), JoinError::QueryCanceled(text));
    assert_eq!(canceled.into_shutdown("x"), Shutdown::QueryCanceled);
}

/// Leaves behind everything that a policy can, as one caller, and looks for it as the next one, on
/// the same connection.
#[tokio::test]
async fn nothing_that_a_policy_does_reaches_the_next_probe() {
    let policies = Policies::new(
        "create sequence numbers; grant usage on sequence numbers to authenticated;
         create table marks (mark text); grant all on marks to authenticated;
         create function leave(what text) returns bool language plpgsql as $$ begin
           insert into marks values (what);
           execute what;
           return true;
         end $$;
         create function seen() returns text language sql as $$
           select concat_ws(' ', current_user, current_setting('request.jwt.claims'), current_setting('request.headers'),
             current_setting('realtime.topic'), current_setting('request.jwt.claim.sub'), current_setting('search_path'),
             current_setting('statement_timeout'), nullif(current_setting('app.left', true), ''),
             (select count(*) from marks), (select count(*) from pg_listening_channels()), (select count(*) from pg_cursors where is_holdable),
             (select count(*) from pg_prepared_statements where from_sql),
             (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
             (select count(*) from pg_class where relnamespace = pg_my_temp_schema()),
             current_setting('default_transaction_read_only')) $$;
         create function report() returns bool language plpgsql as $$ begin raise '%', seen(); end $$;
         create policy a on realtime.messages for select to authenticated
           using (case realtime.topic() when 'leave' then leave(auth.jwt() ->> 'what') else report() end);
         create policy b on realtime.messages for insert to authenticated
           with check (case realtime.topic() when 'leave' then leave(auth.jwt() ->> 'what') else report() end)",
    )
    .await;
    let ann = person("ann");
    let report = async |write: bool| {
        let subject = subject(&ann, "report");
        let error = match write {
            true => policies.authoriser.write(&subject).await.unwrap_err(),
            false => policies.authoriser.read(&subject, false).await.unwrap_err(),
        };
        let AuthoriseError::Policy(text) = error else { panic!("{error:?}") };
        text
    };
    let clean = [report(false).await, report(true).await];
    assert!(clean[0].contains("ann") && clean[0].contains("authenticated"), "{clean:?}");
    for what in [
        "select set_config('app.left', 'left', true)",
        "select set_config('app.left', 'left', false)",
        "select set_config('request.jwt.claims', '{\"sub\":\"eve\"}', false)",
        "select set_config('realtime.topic', 'report', false)",
        "set search_path = pg_catalog",
        "set default_transaction_read_only = on",
        "set role anon",
        "reset role",
        "listen someone",
        "declare left_over cursor with hold for select 1",
        "prepare left_over as select 1",
        "deallocate all",
        "discard plans",
        "select pg_advisory_lock(4711)",
        "create temporary table left_over (id int)",
        "create temporary table messages (topic text, extension text)",
        "select nextval('numbers')",
        "set constraints all deferred",
        "select 1 / 0",
        "commit",
        "rollback",
    ] {
        let eve = identity(json!({ "role": "authenticated", "sub": "eve", "what": what }));
        let subject = subject(&eve, "leave");
        let _ = policies.authoriser.read(&subject, true).await;
        assert_eq!(report(false).await, clean[0], "read, {what}");
        let _ = policies.authoriser.write(&subject).await;
        assert_eq!(report(true).await, clean[1], "write, {what}");
        assert_eq!(report(false).await, clean[0], "write, {what}");
    }
}

/// The policy for broadcasts leaves nothing for the policy for presence in the same probe.
#[tokio::test]
async fn extensions_are_probed_apart() {
    let policies = Policies::new(
        "create function mark() returns bool language plpgsql as $$ begin
           perform set_config('request.jwt.claims', '{\"sub\":\"marked\"}', false); return true; end $$;
         create policy a on realtime.messages for insert to authenticated
           with check (case extension when 'broadcast' then mark() else auth.jwt() ->> 'sub' = 'marked' end)",
    )
    .await;
    assert_eq!(policies.write(&person("ann"), "x").await, (true, false));
}

#[tokio::test]
async fn a_cancelled_probe_leaves_a_usable_connection() {
    let policies = Policies::new(
        "create function slow() returns bool language plpgsql as $$ begin
           perform set_config('app.left', 'left', false); perform pg_sleep(600); return true; end $$;
         create policy a on realtime.messages for select to authenticated
           using (case realtime.topic() when 'slow' then slow() else coalesce(current_setting('app.left', true), '') = '' end)",
    )
    .await;
    let authoriser = policies.authoriser.clone();
    let slow = tokio::spawn(async move { authoriser.read(&subject(&person("a"), "slow"), false).await });
    let sleeps =
        "select count(*)::text from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    while policies.database.value(sleeps).await != "1" {}
    slow.abort();
    assert!(slow.await.unwrap_err().is_cancelled());
    assert_eq!(policies.read(&person("a"), "x", false).await, BROADCAST);
    while policies.database.value(sleeps).await != "0" {}
}

/// Counts its runs, outside of the transaction of the probe.
const COUNTED: &str = "
    create sequence runs;
    grant usage on sequence runs to authenticated;
    create function counted() returns bool language plpgsql as $$ begin perform nextval('runs'); return true; end $$;
    create policy a on realtime.messages for select to authenticated using (counted())";

#[tokio::test]
async fn identical_probes_that_wait_share_a_run_and_others_do_not() {
    let policies = Policies::new(COUNTED).await;
    let runs = async || policies.database.value("select (last_value - 1 + is_called::int)::text from runs").await;
    let held = policies.pool.checkout().await.unwrap();
    let read = |sub: &'static str, topic: &'static str, headers: &'static str| {
        let authoriser = policies.authoriser.clone();
        tokio::spawn(async move {
            authoriser.read(&Subject { identity: &person(sub), headers, topic }, false).await.unwrap()
        })
    };
    let mut probes: Vec<_> = (0..20).map(|_| read("a", "x", "{}")).collect();
    probes.extend([read("b", "x", "{}"), read("a", "y", "{}"), read("a", "x", r#"{"x-a":"1"}"#)]);
    policies.has_waiting(4).await;
    // Callers that go away take nothing with them
    probes.drain(..5).for_each(|probe| probe.abort());
    let gone = read("gone", "x", "{}");
    policies.has_waiting(5).await;
    gone.abort();
    policies.has_waiting(4).await;
    drop(held);
    for probe in probes {
        assert_eq!(probe.await.unwrap(), BROADCAST);
    }
    assert_eq!(runs().await, "4");
    assert!(policies.authoriser.0.waiting.is_empty());
    // Nothing is kept
    assert_eq!(policies.read(&person("a"), "x", false).await, BROADCAST);
    assert_eq!(runs().await, "5");
}

/// A run that has begun may have been decided by older policies.
#[tokio::test]
async fn a_probe_never_gets_the_answer_of_a_run_that_began_before_it() {
    let database = ScratchDatabase::new().await;
    database
        .run(
            "create table open (is_open bool); insert into open values (false); grant select on open to authenticated;
             create function is_open() returns bool language plpgsql as $$
               declare found bool;
               begin
                 select open.is_open into found from open;
                 perform pg_advisory_xact_lock_shared(1);
                 return found;
               end $$;
             create policy a on realtime.messages for select to authenticated using (is_open())",
        )
        .await;
    let authoriser = Authoriser::new(database.pool(WirePoolSettings::default()), Duration::ZERO);
    let read = || {
        let authoriser = authoriser.clone();
        tokio::spawn(async move { authoriser.read(&subject(&person("a"), "x"), false).await.unwrap() })
    };
    let waiting = "select count(*)::text from pg_locks where locktype = 'advisory' and not granted";
    database.run("begin; select pg_advisory_xact_lock(1)").await;
    let early = read();
    while database.value(waiting).await != "1" {}
    let other = portico_database::connect(database.endpoint()).await.unwrap();
    other.batch_execute("update open set is_open = true").await.unwrap();
    let late = read();
    while database.value(waiting).await != "2" {}
    database.run("commit").await;
    assert_eq!((early.await.unwrap(), late.await.unwrap()), (NONE, BROADCAST));
}

#[tokio::test]
async fn decisions_are_kept_only_where_it_is_set_and_only_for_the_same_subject() {
    let policies = Policies::new(COUNTED).await;
    let runs = async || policies.database.value("select (last_value - 1 + is_called::int)::text from runs").await;
    let keeps = Authoriser::new(policies.pool.clone(), Duration::from_secs(3600));
    let (a, b) = (person("a"), person("b"));
    for _ in 0..3 {
        assert_eq!(keeps.read(&subject(&a, "x"), false).await, Ok(BROADCAST));
    }
    assert_eq!(runs().await, "1");
    keeps.read(&subject(&b, "x"), false).await.unwrap();
    keeps.read(&subject(&a, "y"), false).await.unwrap();
    keeps.read(&Subject { headers: r#"{"x-a":"1"}"#, ..subject(&a, "x") }, false).await.unwrap();
    assert_eq!(runs().await, "4");
    let both = keeps.read(&subject(&a, "x"), true).await.unwrap();
    assert_eq!(both.presence, Some(true));
    assert_eq!(runs().await, "6");
    assert_eq!(keeps.write(&subject(&a, "x")).await, Ok(WritePermissions { broadcast: false, presence: false }));
    // A decision that is too old
    let aged = Decisions::new(Duration::from_secs(5));
    let probe = Probe::new(ProbeKind::Write, &subject(&a, "x"));
    let (verdict, now) = (ProbeResult { broadcast: true, presence: Some(true) }, Instant::now());
    aged.keep(&probe, verdict, now);
    assert_eq!(aged.get(&probe, now + Duration::from_secs(4)), Some(verdict));
    assert_eq!(aged.get(&probe, now + Duration::from_secs(5)), None);
}

#[tokio::test]
async fn an_exhausted_pool_rejects_joins_at_once() {
    let database = ScratchDatabase::new().await;
    let pool = database.pool(WirePoolSettings { checkout_timeout: Duration::from_millis(1), ..one_connection() });
    let authoriser = Authoriser::new(pool.clone(), Duration::ZERO);
    let mut held = pool.checkout().await.unwrap();
    held.run(&Batch::new().statement(Statement::named("select 1", &[])).ending(Access::ReadOnly)).await.unwrap();
    let ann = person("a");
    let subject = subject(&ann, "x");
    assert_eq!(authoriser.read(&subject, false).await, Err(AuthoriseError::NoConnection));
    assert_eq!(AuthoriseError::NoConnection.into_join_error("x"), JoinError::NoConnection);
    drop(held);
    assert_eq!(authoriser.read(&subject, false).await, Err(AuthoriseError::NoConnection), "although one is free");
    assert_eq!(pool.timeouts(), 1);
    assert!(authoriser.write(&subject).await.is_ok());
}

#[tokio::test]
async fn a_database_that_is_down_is_unreachable() {
    let database = ScratchDatabase::new().await;
    let gone = database.endpoint().with_database("no_such_database");
    let authoriser = Authoriser::new(Pool::open(&gone, "authenticator", one_connection()).unwrap(), Duration::ZERO);
    let error = authoriser.read(&subject(&person("a"), "x"), false).await.unwrap_err();
    assert_eq!(error, AuthoriseError::Unreachable);
    assert_eq!(error.into_join_error("x"), JoinError::DatabaseUnreachable);
}
