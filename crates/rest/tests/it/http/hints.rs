//! Hints of errors.

use serde_json::{Value, json};

use super::{CinemaServer, FIRST};

#[tokio::test]
async fn only_relations_are_suggested_for_a_relationship() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create table writers (id int primary key, name text);
             create table novels (id int primary key, writer_id int references writers);
             create table essays (id int primary key);
             -- Leads to writers, by a name that is nearer to what is asked for than any relation's
             create function novel_writer(novels) returns writers language sql stable
               as $$ select * from writers where id = $1.writer_id $$;
             grant all on writers, novels, essays to service_role; notify pgrst",
        )
        .await;
    let hint = async |resource: &str| {
        let refused = server.secret(&format!("/{resource}")).send().await.expect(400).json();
        assert_eq!(refused["code"], "PGRST200");
        refused["hint"].as_str().map(str::to_owned)
    };
    let meant = |meant: &str, asked: &str| Some(format!("Perhaps you meant '{meant}' instead of '{asked}'."));
    assert_eq!(hint("novels?select=writer(*)").await, meant("writers", "writer"));
    assert_eq!(hint("novels?select=novel_writers(*)").await, meant("writers", "novel_writers"));
    assert_eq!(hint("novels?select=writer!by(*)").await, meant("writers", "writer"));
    assert_eq!(hint("novels?select=writers(novel(*))").await, meant("novels", "novel"));
    assert_eq!(hint("novels?select=xyz(*)").await, None);
    // An origin without relationships: another origin is suggested
    assert_eq!(hint("essays?select=writers(*)").await, meant("addresses", "essays"));
}

#[tokio::test]
async fn a_call_with_unknown_arguments_suggests_the_nearest_parameters() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create function brew(a int) returns int language sql as 'select 1';
             create function brew(a int, strength_of_it text) returns int language sql as 'select 2';
             create function steep(minutes int, cup text default '') returns int language sql as 'select 3';
             create function stir() returns int language sql as 'select 4'; notify pgrst",
        )
        .await;
    let hint = async |path: &str, body: Option<Value>| {
        let response = match &body {
            Some(body) => server.call(path, body).send().await,
            None => server.read(&format!("rpc/{path}")).send().await,
        };
        let refused = response.expect(404).json();
        assert_eq!(refused["code"], "PGRST202");
        refused["hint"].as_str().map(str::to_owned)
    };
    let meant = |call: &str| Some(format!("Perhaps you meant to call the function public.{call}"));
    assert_eq!(hint("brew", Some(json!({ "a": 1, "zzz": 2 }))).await, meant("brew(a)"));
    assert_eq!(hint("brew", Some(json!({ "a": 1, "strenght_of_it": "x" }))).await, meant("brew(a, strength_of_it)"));
    assert_eq!(hint("brew?a=1&zzz=2", None).await, meant("brew(a)"));
    assert_eq!(hint("steep", Some(json!({ "minute": 1 }))).await, meant("steep(cup, minutes)"));
    assert_eq!(hint("steep?minutes=1&cups=x", None).await, meant("steep(cup, minutes)"));
    // Only the parentheses are similar
    assert_eq!(hint("steep", Some(json!({ "q": 1 }))).await, None);
    assert_eq!(hint("brew", Some(json!({}))).await, None);
    assert_eq!(hint("stir", Some(json!({ "a": 1 }))).await, None);
}

#[tokio::test]
async fn the_hint_of_a_missing_grant_names_the_relation_that_lacks_it() {
    let server = CinemaServer::open().await;
    server
        .execute(
            r#"create schema vault_room; create schema other_room; create schema closed_room;
             grant usage on schema vault_room, other_room to anon, authenticated;
             create table vault_room.ledger (id int primary key, entry text);
             create table vault_room.stock (id int primary key);
             create table vault_room."Odd name" (id int);
             create table vault_room.twice (id int); create table other_room.twice (id int);
             create table closed_room.ledger_log (id int); create table vault_room.ledger_log (id int);
             create view by_caller with (security_invoker) as select * from vault_room.ledger;
             create view by_caller_again with (security_invoker) as select id from by_caller;
             create view by_owner as select * from vault_room.ledger;
             create view of_both with (security_invoker) as
               select l.id, s.id as stock from vault_room.ledger as l left join vault_room.stock as s on s.id = l.id;
             create view odd with (security_invoker) as select * from vault_room."Odd name";
             create table owned (id int primary key references vault_room.ledger);
             create table shown (id int primary key references owned);
             create table guarded_rows (id int); alter table guarded_rows enable row level security;
             create policy by_stock on guarded_rows using (exists (select from vault_room.stock as s where s.id = guarded_rows.id));
             create function read_log() returns bigint language sql as 'select count(*) from vault_room.ledger_log';
             create function write_log() returns void language sql as 'insert into vault_room.ledger_log values (1)';
             create function read_twice() returns bigint language sql as 'select count(*) from other_room.twice';
             revoke all on owned from anon;
             grant all on by_caller, by_caller_again, by_owner, of_both, odd, shown, guarded_rows to anon, authenticated;
             grant execute on function read_log, write_log, read_twice to anon, authenticated;
             alter view by_owner owner to service_role;
             create table vault_room.kept (id int); grant usage on schema vault_room to service_role;
             create function kept_in_sql() returns bigint security definer language sql as 'select count(*) from vault_room.kept';
             create function kept_in_plpgsql() returns bigint security definer language plpgsql set search_path = ''
               as $$ begin return (select count(*) from vault_room.kept); end $$;
             create function kept_by_caller() returns bigint language plpgsql as $$ begin return (select count(*) from vault_room.kept); end $$;
             create function kept_below() returns bigint security definer language plpgsql as $$ begin return kept_by_caller(); end $$;
             create function kept_twice() returns bigint security definer language sql as 'select count(*) from vault_room.kept';
             create function kept_twice(int) returns bigint language sql as 'select count(*) from vault_room.kept';
             create function ones() returns int security definer language sql as 'select 1';
             create function kept_above() returns bigint language plpgsql as $$ begin perform ones(); return kept_by_caller(); end $$;
             create function keep_row() returns trigger security definer language plpgsql
               as $$ begin perform from vault_room.kept; return new; end $$;
             create table triggering (id int); create trigger keep before insert on triggering for each row execute function keep_row();
             create table policed (id int); alter table policed enable row level security;
             create policy keep on policed using (kept_in_plpgsql() > 0); insert into policed values (1);
             alter function kept_in_sql owner to service_role; alter function kept_in_plpgsql owner to service_role;
             alter function kept_below owner to service_role; alter function kept_twice() owner to service_role;
             alter function ones owner to service_role; alter function keep_row owner to service_role;
             grant all on triggering, policed to anon;
             grant execute on all functions in schema public to anon, service_role; notify pgrst"#,
        )
        .await;
    server.read("not_there").send().await.expect(404);
    let hint = async |method: &str, resource: &str| {
        let request = server.request(method.parse().unwrap(), &format!("/rest/v1/{resource}"));
        let request = match (method, resource.starts_with("rpc/")) {
            ("GET", _) => request,
            (_, true) => request.json(&json!({})),
            (_, false) => request.json(&json!({ "id": 1 })),
        };
        let refused = request.send().await.expect(401).json();
        assert_eq!(refused["code"], "42501");
        let hint = refused["hint"].as_str()?;
        Some(hint.strip_prefix("Grant the required privileges to the current role with: ").unwrap().to_owned())
    };
    let grants = |grant: &str| Some(grant.to_owned());
    // In another schema, behind one view and behind two
    assert_eq!(hint("GET", "by_caller").await, grants("GRANT SELECT ON vault_room.ledger TO anon;"));
    assert_eq!(hint("GET", "by_caller_again?select=id").await, grants("GRANT SELECT ON vault_room.ledger TO anon;"));
    assert_eq!(hint("GET", "odd").await, grants("GRANT SELECT ON vault_room.\"Odd name\" TO anon;"));
    assert_eq!(hint("POST", "by_caller").await, grants("GRANT INSERT ON vault_room.ledger TO anon;"));
    assert_eq!(hint("PATCH", "by_caller?id=eq.1").await, grants("GRANT SELECT, UPDATE ON vault_room.ledger TO anon;"));
    // A view reads with the privileges of its owner
    assert_eq!(hint("GET", "by_owner").await, grants("GRANT SELECT ON vault_room.ledger TO service_role;"));
    // The embed lacks it, not the relation that embeds it
    assert_eq!(hint("GET", "shown?select=id,owned(id)").await, grants("GRANT SELECT ON public.owned TO anon;"));
    // Functions and policies
    assert_eq!(hint("GET", "rpc/read_log").await, grants("GRANT SELECT ON vault_room.ledger_log TO anon;"));
    assert_eq!(hint("GET", "guarded_rows").await, grants("GRANT SELECT ON vault_room.stock TO anon;"));
    server.execute("grant select, update, delete on vault_room.ledger_log to anon").await;
    assert_eq!(hint("POST", "rpc/write_log").await, grants("GRANT INSERT ON vault_room.ledger_log TO anon;"));
    // A function reads with the privileges of its owner, also where another one calls it
    let owner = "GRANT SELECT ON vault_room.kept TO service_role;";
    for called in ["kept_in_sql", "kept_in_plpgsql", "kept_below", "kept_by_trigger", "kept_by_policy"] {
        let (method, resource) = match called {
            "kept_by_trigger" => ("POST", "triggering".to_owned()),
            "kept_by_policy" => ("GET", "policed".to_owned()),
            function => ("GET", format!("rpc/{function}")),
        };
        assert_eq!(hint(method, &resource).await, grants(owner), "{called}");
    }
    assert_eq!(hint("GET", "rpc/kept_above").await, grants("GRANT SELECT ON vault_room.kept TO anon;"));
    // Two functions of the name differ in their rights
    assert_eq!(hint("GET", "rpc/kept_twice").await, None);
    server.execute("grant select on vault_room.kept to service_role").await;
    server.read("rpc/kept_in_plpgsql").send().await.expect(200);
    // Two relations of the name lack it: no hint is better than a wrong one
    assert_eq!(hint("GET", "rpc/read_twice").await, None);
    server.execute("grant select on vault_room.ledger to anon").await;
    assert_eq!(hint("GET", "of_both").await, grants("GRANT SELECT ON vault_room.stock TO anon;"));

    server.execute("grant select on vault_room.ledger to service_role").await;
    server.read("by_owner").bearer(&server.token("authenticated", FIRST)).send().await.expect(200);
}
