//! The transaction of a request, and its end.

use serde_json::json;

use super::CinemaServer;

#[tokio::test]
async fn a_client_can_roll_back_if_allowed() {
    let server = CinemaServer::open().await;
    let insert = |id: i32| server.write("POST", "stations", &json!({ "id": id })).header("prefer", "tx=rollback");
    let kept = insert(30).send().await.expect(201);
    assert_eq!(kept.header("preference-applied"), None);
    server.configure(&[("db_tx_end", "commit-allow-override")]).await;
    let undone = insert(31).send().await.expect(201);
    assert_eq!(undone.header("preference-applied"), Some("tx=rollback"));
    assert_eq!(server.count("select count(*) from stations where id in (30, 31)").await, 1);
}

#[tokio::test]
async fn deferred_constraints_are_checked_before_the_response_even_for_a_rollback() {
    let server = CinemaServer::with(|config| config.tx_end.may_override = true).await;
    server
        .execute(
            "create table later (id int primary key, other int references later deferrable initially deferred);
             grant all on later to service_role",
        )
        .await;
    for prefer in ["tx=commit", "tx=rollback", "return=representation"] {
        let body = json!({ "id": 1, "other": 2 });
        let response = server.write("POST", "later", &body).header("prefer", prefer).send().await;
        assert_eq!((response.status, response.json()["code"].clone()), (409, json!("23503")), "{prefer}");
    }
    let single = server.write("POST", "later", &json!({ "id": 1, "other": 2 }));
    let response = single.header("accept", "application/vnd.pgrst.object+json").send().await;
    assert_eq!(response.status, 409);
    assert_eq!(server.count("select count(*) from later").await, 0);
}

#[tokio::test]
async fn no_more_rows_than_max_affected_are_affected() {
    let server = CinemaServer::open().await;
    let change = |prefer: &'static str| server.write("PATCH", "items?id=lte.3", &json!({})).header("prefer", prefer);
    change("max-affected=1").send().await.expect(204);
    let remove = |prefer: &'static str| server.write("DELETE", "items?id=lte.3", &json!({})).header("prefer", prefer);
    let refused = remove("handling=strict, max-affected=2").send().await.expect(400);
    assert_eq!(
        (refused.json()["code"].clone(), refused.json()["details"].clone()),
        (json!("PGRST124"), json!("The query affects 3 rows"))
    );
    assert_eq!(server.count("select count(*) from items").await, 15);
    let done = remove("handling=strict, max-affected=3").send().await.expect(204);
    assert_eq!(done.header("preference-applied"), Some("handling=strict, max-affected=3"));
    assert_eq!(server.count("select count(*) from items").await, 12);
    // Rows that an embed removes from the response are still affected
    let films = "films?id=in.(1,3)&select=id,directors!inner(id)&directors.id=eq.1";
    let one = server
        .write("PATCH", films, &json!({ "year": 1900 }))
        .header("prefer", "return=representation, handling=strict, max-affected=1");
    let refused = one.send().await.expect(400);
    assert_eq!(refused.json()["details"], "The query affects 2 rows");
    assert_eq!(server.count("select count(*) from films where year = 1900").await, 0);
    let two = server
        .write("PATCH", films, &json!({ "year": 1900 }))
        .header("prefer", "return=representation, handling=strict, max-affected=2");
    assert_eq!(two.send().await.expect(200).json().as_array().unwrap().len(), 1);
    let unknown = server.read("items").header("prefer", "handling=strict, anything").send().await.expect(400);
    assert_eq!(unknown.json()["details"], "Invalid preferences: anything");
    let scalar = server.call("hello", &json!({})).header("prefer", "handling=strict, max-affected=1").send().await;
    assert_eq!((scalar.status, scalar.json()["code"].clone()), (400, json!("PGRST128")));
}

#[tokio::test]
async fn settings_of_functions_and_roles_apply_to_the_transaction() {
    let server = CinemaServer::open().await;
    let called = |function: &'static str| server.call(function, &json!({}));
    assert_eq!(called("slow_function").send().await.expect(200).json(), "4321ms");
    assert_eq!(called("careful_function").send().await.expect(200).json(), "serializable");
    let timeout = |key: String| {
        let request = server.read("rpc/a_setting?name=statement_timeout").key(&key);
        async move { request.send().await.expect(200).json() }
    };
    assert_eq!(timeout(server.api_keys().anon_jwt().to_owned()).await, "3s");
    assert_eq!(timeout(server.api_keys().service_role_jwt().to_owned()).await, "8s");
    server.role("hurried").await;
    server
        .execute(
            "create function sleep_long() returns void language sql as 'select pg_sleep(60)';
             grant hurried to authenticator; grant usage on schema public to hurried;
             alter role hurried set statement_timeout = '50ms'; notify pgrst, 'reload config'",
        )
        .await;
    server.read("not_there").send().await.expect(404);
    let slow = called("sleep_long").bearer(&server.token("hurried", super::FIRST)).send().await.expect(500);
    assert_eq!(slow.json()["code"], "57014");
    assert_eq!(slow.json()["message"], "canceling statement due to statement timeout");
}

#[tokio::test]
async fn response_settings_end_with_their_transaction() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create function say(name text, value text) returns text language sql volatile as
               $$ select set_config('response.' || name, value, false) $$;
             grant execute on function say to anon; notify pgrst",
        )
        .await;
    let say = |name: &str, value: &str| server.call("say", &json!({ "name": name, "value": value }));
    say("status", "418").send().await.expect(418);
    say("headers", "[{\"Set-Cookie\":\"a=1\"}]").send().await.expect(200);
    for _ in 0..8 {
        let other = server.read("items?limit=1").send().await.expect(200);
        assert_eq!(other.header("set-cookie"), None);
    }
    // Neither an interim status nor a length can be set
    let interim = say("status", "101").send().await.expect(500);
    assert_eq!(interim.json()["code"], "PGRST112");
    let length =
        say("headers", "[{\"Content-Length\":\"1\"},{\"Transfer-Encoding\":\"chunked\"}]").send().await.expect(200);
    assert_eq!(length.header("transfer-encoding"), None);
    assert!(length.json().as_str().unwrap().contains("chunked"));
    let nothing = say("status", "204").send().await.expect(204);
    assert_eq!((nothing.header("content-type"), nothing.header("content-length")), (None, None));
    assert!(nothing.body.is_empty());
}

#[tokio::test]
async fn session_settings_of_a_function_do_not_prevent_writes() {
    let server = CinemaServer::with(|_| {}).await;
    server
        .execute(
            "create function spoil() returns void language sql as
               $$ select set_config('default_transaction_read_only', 'on', false), set_config('default_transaction_isolation', 'serializable', false) $$",
        )
        .await;
    for id in 40..48 {
        server.call("spoil", &json!({})).send().await.expect(204);
        server.write("POST", "stations", &json!({ "id": id })).send().await.expect(201);
    }
}

/// The next request on the same connection sees nothing of it.
#[tokio::test]
async fn session_settings_of_functions_and_triggers_end_with_their_request() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create function remember(value text) returns void language sql volatile as
               $$ select set_config('app.remembered', value, false), set_config('lock_timeout', '7s', false),
                  set_config('timezone', 'Asia/Tokyo', false) $$;
             create function remember_row() returns trigger language plpgsql as
               $$ begin perform public.remember('a row'); return new; end $$;
             create table remembered (id int primary key, other int);
             create trigger remember after insert or update on remembered for each row execute function remember_row();
             grant all on remembered to service_role; notify pgrst",
        )
        .await;
    let known = async || {
        let mut known = Vec::new();
        for name in ["app.remembered", "lock_timeout", "timezone"] {
            let setting = server.read(&format!("rpc/a_setting?name={name}")).send().await.expect(200).json();
            known.push(setting.as_str().unwrap_or_default().to_owned());
        }
        known
    };
    let before = known().await;
    let object = "application/vnd.pgrst.object+json";
    let insert =
        |id: i32| server.write("POST", "remembered", &json!({ "id": id })).header("prefer", "return=representation");
    let responses = [
        server.call("remember", &json!({ "value": "called" })).send().await.expect(204),
        server.read("rpc/remember?value=read").send().await.expect(204),
        insert(1).send().await.expect(201),
        insert(2).header("accept", object).send().await.expect(201),
        server.write("PATCH", "remembered", &json!({ "other": 1 })).header("accept", object).send().await,
    ];
    for response in responses {
        assert_eq!(known().await, before, "{}", response.text());
    }
    // Each of them, and all at once
    for _ in 0..4 {
        insert(3).header("prefer", "resolution=merge-duplicates").send().await;
        assert_eq!(known().await, before);
    }
    server
        .execute(
            "create function first() returns void language plpgsql as $$ begin
               if current_setting('request.path') like '%title%' or current_setting('request.headers')::json->>'x-spoil' is not null
               then perform public.remember('before'); end if; end $$",
        )
        .await;
    server.configure(&[("db_pre_request", "public.first")]).await;
    server.read("items?limit=1").header("x-spoil", "yes").send().await.expect(200);
    assert_eq!(known().await, before);
}

/// Settings of reads do not survive either: PostgreSQL does not report most settings, least of all
/// custom ones.
#[tokio::test]
async fn session_settings_of_views_and_policies_end_with_their_request() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create function divert() returns int language sql stable as
               $$ select length(set_config('search_path', 'archive', false) || set_config('default_transaction_read_only', 'off', false)
                  || set_config('response.status', '418', false) || set_config('app.remembered', 'a view', false)
                  || set_config('statement_timeout', '1h', false)) $$;
             create view diverted as select public.divert() as length;
             create view far as select length from diverted;
             create view unasked as select set_config('app.remembered', 'itself', false) as value;
             create table guarded (id int primary key);
             create table houses (id int primary key, guard int references guarded, name text);
             insert into guarded values (1);
             insert into houses values (1, 1, 'a');
             alter table guarded enable row level security;
             create policy diverting on guarded using (public.divert() > 0);
             create function door(houses) returns int language sql stable as 'select public.divert()';
             create view settings as select current_setting('search_path') as path, current_setting('transaction_read_only') as reads,
               current_setting('statement_timeout') as timeout, coalesce(current_setting('app.remembered', true), '') as remembered;
             grant select on diverted, far, unasked, guarded, houses, settings to anon; notify pgrst",
        )
        .await;
    let settings = async || server.read("settings").send().await.expect(200).json();
    let begun = settings().await;
    assert_eq!((&begun[0]["reads"], &begun[0]["remembered"]), (&json!("on"), &json!("")));
    let assert_forgotten = async |resource: &str, status: u16| {
        for _ in 0..4 {
            server.read(resource).send().await.expect(status);
            assert_eq!(settings().await, begun, "{resource}");
        }
    };
    for (resource, status) in [
        ("diverted", 418),
        ("far", 418),
        ("unasked", 200),
        ("guarded", 418),
        ("houses?select=name,guarded(id)", 418),
        ("houses?select=name,door", 418),
        ("houses?door=gt.0", 418),
        ("houses?order=door", 418),
    ] {
        assert_forgotten(resource, status).await;
    }
    // The API must notice a new policy
    assert_forgotten("houses?select=id", 200).await;
    server
        .execute("alter table houses enable row level security; create policy none on houses using (name is null)")
        .await;
    server.read("not_there").send().await.expect(404);
    server.execute("create policy diverting on houses using (public.divert() > 0)").await;
    server.read("not_there").send().await.expect(404);
    assert_forgotten("houses?select=id", 418).await;
}

/// A connection keeps settings that the next request needs again; no request may depend on that.
#[tokio::test]
async fn each_request_sees_its_own_caller_only() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create table own (id int primary key, owner uuid not null default auth.uid());
             alter table own enable row level security;
             create policy own on own to authenticated using (owner = (select auth.uid())) with check (owner = auth.uid());
             create table asked (id int primary key, path text default current_setting('request.path', true));
             create view seen as select current_user as who, current_setting('statement_timeout') as patience,
               current_setting('request.jwt.claims', true)::json ->> 'sub' as sub, current_setting('request.method', true) as method,
               current_setting('request.path', true) as path, current_setting('request.headers', true)::json ->> 'x-a' as header,
               current_setting('request.cookies', true)::json ->> 'c' as cookie;
             create function seen_by_function() returns json language sql stable as 'select to_json(seen) from seen';
             grant select, insert on own, asked to authenticated;
             grant select on seen to anon, authenticated, service_role; notify pgrst",
        )
        .await;
    let people = [(super::FIRST, 1), (super::SECOND, 2)];
    for (person, id) in people {
        let insert = server.write("POST", "own", &json!({ "id": id })).bearer(&server.token("authenticated", person));
        insert.send().await.expect(201);
    }
    let patience = ["3s", "8s"];
    for round in 0..24_usize {
        let (person, id) = people[round % 2];
        let token = server.token("authenticated", person);
        // A plain table shows the caller's own rows, and none to others
        assert_eq!(server.read("own?select=id").bearer(&token).send().await.expect(200).json(), json!([{ "id": id }]));
        assert_eq!(server.read("own").send().await.expect(200).json(), json!([]));
        // A view and a function see everything
        let header = format!("h{round}");
        let is_person = round % 3 > 0;
        let expected = json!({
            "who": if is_person { "authenticated" } else { "anon" },
            "patience": patience[usize::from(is_person)],
            "sub": is_person.then_some(person),
            "method": "GET",
            "path": "/seen",
            "header": header,
            "cookie": (round % 4 == 0).then_some("x"),
        });
        let as_caller = |request: portico_testkit::Request| {
            let request = request.header("x-a", &header);
            let request = if is_person { request.bearer(&token) } else { request };
            if round % 4 == 0 { request.header("cookie", "c=x") } else { request }
        };
        assert_eq!(as_caller(server.read("seen")).send().await.expect(200).json(), json!([expected]));
        let mut by_function = expected.clone();
        by_function["method"] = json!("POST");
        by_function["path"] = json!("/rpc/seen_by_function");
        let called = as_caller(server.call("seen_by_function", &json!({}))).send().await.expect(200);
        assert_eq!(called.json(), by_function);
        let insert = server.write("POST", "asked?select=path", &json!({ "id": round })).bearer(&token);
        let insert = insert.header("prefer", "return=representation").send().await.expect(201);
        assert_eq!(insert.json(), json!([{ "path": "/asked" }]));
        // An error in between changes nothing
        server.write("POST", "own", &json!({ "id": id })).bearer(&token).send().await.expect(409);
        server.read("own?id=eq.x").bearer(&token).send().await.expect(400);
    }
}

/// A pooler in transaction mode gives each transaction another session: nothing may be left there,
/// nor expected.
#[tokio::test]
async fn without_prepared_statements_a_transaction_sets_everything_it_needs() {
    let server = CinemaServer::open().await;
    server
        .execute(
            "create view settings as select current_setting('search_path') as path, current_setting('transaction_read_only') as reads,
               current_setting('default_transaction_read_only') as usually_reads, current_setting('timezone') as zone;
             grant select on settings to anon; notify pgrst",
        )
        .await;
    let settings = async || server.read("settings").send().await.expect(200).json();
    let begun = settings().await;
    assert_eq!((&begun[0]["reads"], &begun[0]["usually_reads"]), (&json!("on"), &json!("off")));
    server.configure(&[("db_prepared_statements", "false")]).await;
    for _ in 0..8 {
        let now = settings().await;
        assert_eq!((&now[0]["reads"], &now[0]["usually_reads"]), (&json!("on"), &json!("off")));
        assert_eq!((&now[0]["path"], &now[0]["zone"]), (&begun[0]["path"], &json!("UTC")));
        server.call("hello", &json!({})).send().await.expect(200);
    }
    server.write("POST", "stations", &json!({ "id": 60 })).send().await.expect(201);
    server.configure(&[("db_prepared_statements", "true")]).await;
    assert_eq!(settings().await, begun);
}
