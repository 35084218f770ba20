//! A schema that changes: requests directly after a committed change, before the server can have
//! reloaded the schema.

use futures_util::future::join_all;

use crate::caller::CALLERS;
use crate::oracle::Oracle;
use crate::scenario::{Probe, Scenario};
use crate::schedule::{self, MismatchReport};
use crate::server::{IsolationServer, sql};

/// A change of the schema, with requests before and after it.
pub struct SchemaChange {
    /// A description.
    pub name: &'static str,
    /// Creates the state before the change, also from the state after it.
    pub before: &'static str,
    /// Makes the change.
    pub after: &'static str,
    /// The request with its expected response before the change.
    pub probe_before: Probe,
    /// The request with its expected response after the change.
    pub probe_after: Probe,
}

/// The name of the change that redefines a function which every scenario uses.
pub const REDEFINITION: &str = "auth.uid() reads a header";

const MARK: &str = r#"{"mark":"{mark}"}"#;
const ALL: &str = r#"[{"owner":"anon"},{"owner":"ada"},{"owner":"ben"},{"owner":"cleo"},{"owner":"service"}]"#;
const OWN: &str = r#"[{"owner":"{name}"}]"#;
const NONE: &str = r#"[{"who":"none"}]"#;
const WHO: &str = r#"[{"who":"{context}"}]"#;

/// Returns the schema that changes.
pub fn scenario() -> Scenario {
    Scenario::new(
        "changing",
        "create table guarded (owner text);
         insert into guarded values ('anon'), ('ada'), ('ben'), ('cleo'), ('service');
         alter table guarded enable row level security;
         create policy own on guarded using (true);
         create function private.allows(owner text) returns boolean language sql stable as $$ select true $$;
         create table asked (owner text);
         insert into asked select * from guarded;
         alter table asked enable row level security;
         create policy asks on asked using (private.allows(owner));
         create table defaulted (mark text, seen text default 'none');
         create function private.called() returns text language sql stable as $$ select 'none' $$;
         create view viewed as select 'none'::text as who;
         create view calling as select private.called() as who;
         create function private.declared() returns text language plpgsql stable as $$ begin return {inline}; end $$;
         create view declared as select private.declared() as who;
         create table triggered (mark text, seen text);
         create table checked (mark text);
         create table at_commit (mark text);
         create table plain (id integer);
         insert into plain values (1);
         create table uids (owner text);
         insert into uids values ('-'), ('00000000-0000-4000-8000-00000000000a'),
           ('00000000-0000-4000-8000-00000000000b'), ('00000000-0000-4000-8000-00000000000c'),
           ('00000000-0000-4000-8000-0000000000ff');
         alter table uids enable row level security;
         create policy own on uids using (owner = coalesce(auth.uid()::text, '-'));",
        [],
    )
}

/// Returns the changes.
pub fn changes() -> Vec<SchemaChange> {
    vec![
        SchemaChange {
            name: "a policy reads a header",
            before: "alter policy own on guarded using (true)",
            after: "alter policy own on guarded using (
              owner = split_part(current_setting('request.headers', true)::json ->> 'x-mark', '-', 2))",
            probe_before: Probe::get("guarded?select=owner").without_service().expect(200, ALL),
            probe_after: Probe::get("guarded?select=owner").without_service().expect(200, OWN),
        },
        SchemaChange {
            name: "the function of a policy reads a header",
            before: "create or replace function private.allows(owner text) returns boolean language sql stable as $$
              select true $$",
            after: "create or replace function private.allows(owner text) returns boolean language sql stable as $$
              select owner = split_part(current_setting('request.headers', true)::json ->> 'x-mark', '-', 2) $$",
            probe_before: Probe::get("asked?select=owner").without_service().expect(200, ALL),
            probe_after: Probe::get("asked?select=owner").without_service().expect(200, OWN),
        },
        SchemaChange {
            name: "a default reads everything",
            before: "alter table defaulted alter column seen set default 'none'",
            after: "alter table defaulted alter column seen set default {inline}",
            probe_before: Probe::post("defaulted?select=seen", MARK).expect(201, r#"[{"seen":"none"}]"#),
            probe_after: Probe::post("defaulted?select=seen", MARK).expect(201, r#"[{"seen":"{context}"}]"#),
        },
        SchemaChange {
            name: "a view reads everything",
            before: "create or replace view viewed as select 'none'::text as who",
            after: "create or replace view viewed as select {inline} as who",
            probe_before: Probe::get("viewed?select=who").expect(200, NONE),
            probe_after: Probe::get("viewed?select=who").expect(200, WHO),
        },
        SchemaChange {
            name: "the function of a view reads everything",
            before: "create or replace function private.called() returns text language sql stable as $$ select 'none' $$",
            after: "create or replace function private.called() returns text language sql stable as $$ select {inline} $$",
            probe_before: Probe::get("calling?select=who").expect(200, NONE),
            probe_after: Probe::get("calling?select=who").expect(200, WHO),
        },
        SchemaChange {
            name: "a function becomes immutable",
            before: "alter function private.declared() stable",
            after: "alter function private.declared() immutable",
            probe_before: Probe::get("declared?select=who").expect(200, WHO),
            probe_after: Probe::get("declared?select=who").expect(200, WHO),
        },
        SchemaChange {
            name: "a trigger reads everything",
            before: "drop trigger if exists sees on triggered",
            after: "create or replace function private.see() returns trigger language plpgsql as $$
                    begin new.seen := {inline}; return new; end $$;
                    create trigger sees before insert on triggered for each row execute function private.see()",
            probe_before: Probe::post("triggered?select=seen", MARK).expect(201, r#"[{"seen":null}]"#),
            probe_after: Probe::post("triggered?select=seen", MARK).expect(201, r#"[{"seen":"{context}"}]"#),
        },
        SchemaChange {
            name: "a check reads a header",
            before: "alter table checked drop constraint if exists own",
            after: "alter table checked add constraint own check (
              mark = current_setting('request.headers', true)::json ->> 'x-mark') not valid",
            probe_before: Probe::post("checked?select=mark", r#"{"mark":"of another"}"#)
                .expect(201, r#"[{"mark":"of another"}]"#),
            probe_after: Probe::post("checked?select=mark", MARK).expect(201, r#"[{"mark":"{mark}"}]"#),
        },
        SchemaChange {
            name: "a trigger at the commit",
            before: "drop trigger if exists records on at_commit",
            after: "create constraint trigger records after insert on at_commit deferrable initially deferred
              for each row execute function private.record_new()",
            probe_before: Probe::post("at_commit", MARK).minimal().expect(201, ""),
            probe_after: Probe::post("at_commit", MARK).minimal().expect(201, "").writes("written"),
        },
        SchemaChange {
            name: REDEFINITION,
            before: "reset role; create or replace function auth.uid() returns uuid language sql stable as $$
              select coalesce(nullif(current_setting('request.jwt.claim.sub', true), ''),
                nullif(current_setting('request.jwt.claims', true), '')::jsonb ->> 'sub')::uuid $$",
            after: "reset role; create or replace function auth.uid() returns uuid language sql stable as $$
              select coalesce(nullif(current_setting('request.headers', true), '')::json ->> 'x-user',
                nullif(current_setting('request.jwt.claims', true), '')::json ->> 'sub')::uuid $$",
            probe_before: Probe::get("uids?select=owner").without_service().expect(200, r#"[{"owner":"{sub}"}]"#),
            probe_after: Probe::get("uids?select=owner")
                .user_header("00000000-0000-4000-8000-0000000000ff")
                .without_service()
                .expect(200, r#"[{"owner":"00000000-0000-4000-8000-0000000000ff"}]"#),
        },
        SchemaChange {
            name: "a right is taken away",
            before: "grant select on plain to anon, authenticated, service_role",
            after: "revoke select on plain from anon, authenticated, service_role",
            probe_before: Probe::get("plain?select=id").expect(200, r#"[{"id":1}]"#),
            probe_after: Probe::get("plain?select=id&id=eq.1"),
        },
    ]
}

#[tokio::test]
async fn a_request_directly_after_a_change_sees_it() {
    let stage = IsolationServer::open(2, vec![scenario()]).await;
    let (mut report, oracle) = (MismatchReport::default(), Oracle::default());
    let changes = changes();
    for round in 0..2 {
        for change in &changes {
            for (sql_text, probe, when) in
                [(change.before, &change.probe_before, "before"), (change.after, &change.probe_after, "after")]
            {
                stage.execute(&format!("set role postgres; {}; reset role", sql(sql_text))).await;
                // Immediately, and again when connections have plans of it
                for _ in 0..2 {
                    let callers = CALLERS.iter().filter(|caller| probe.is_for(caller));
                    let callers: Vec<_> = callers.clone().chain(callers).collect();
                    let responses =
                        join_all(callers.iter().map(|caller| async { (*caller, stage.send(probe, caller).await) }));
                    for (caller, sent) in responses.await {
                        let judgement = oracle.judge((change.name, round, caller.name), probe, caller, &sent);
                        let judgement = match &sent.response {
                            Some(response) if change.name == "a right is taken away" && when == "after" => {
                                let refused = response.status == 401 || response.status == 403;
                                judgement.and(if refused { Ok(()) } else { Err("is no refusal".into()) })
                            }
                            _ => judgement,
                        };
                        report.judged(&format!("{}, {when}", change.name), caller, &sent, judgement);
                    }
                }
            }
        }
    }
    schedule::finish(&stage, report).await;
}
