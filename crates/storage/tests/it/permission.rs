//! Row-level security: whatever the call, nothing hidden is read, listed, moved, copied or
//! overwritten.

use portico_storage::ImageSettings;
use serde_json::{Value, json};

use super::helper::{Files, OWN_FOLDER, assert_error, own};

const RLS: &str = "new row violates row-level security policy";

#[tokio::test]
async fn tokens_are_required_and_checked_as_the_contract_says() {
    let f = Files::with_buckets().await;
    f.store("site/a", "x").await.expect(200);
    f.store("files/a", "x").await.expect(200);
    let none = f.post("/object/list/files").json(&json!({ "prefix": "" })).send().await;
    assert_error(&none, 400, "400", "InvalidRequest", "headers must have required property 'authorization'");
    let broken = f.post("/object/list/files").header("authorization", "Bearer x").send().await;
    assert_error(&broken, 400, "403", "AccessDenied", "Invalid Compact JWS");
    assert_eq!(broken.json()["error"], "Unauthorized");
    // An opaque key is accepted as `apikey`, and is no token
    for key in [f.t.api_keys().secret(), "sb_other"] {
        let opaque = f.post("/object/list/files").header("authorization", &format!("Bearer {key}")).send().await;
        assert_error(&opaque, 400, "403", "AccessDenied", "Invalid Compact JWS");
    }
    let wrong = format!("{}A", f.t.api_keys().anon_jwt());
    let wrong = f.post("/object/list/files").bearer(&wrong).send().await;
    assert_eq!(wrong.json()["code"], "AccessDenied");
    let expired = f.t.keys().ring.sign(&json!({ "role": "service_role", "exp": 1000 })).unwrap();
    let expired = f.post("/object/list/files").bearer(&expired).send().await;
    assert_error(&expired, 400, "403", "AccessDenied", "\"exp\" claim timestamp check failed");
    // The word `Bearer` is optional, and a key alone stands for its token
    let bare = f.get("/object/files/a").header("authorization", f.t.api_keys().service_role_jwt());
    assert_eq!(bare.send().await.expect(200).text(), "x");
    assert_eq!(f.get("/object/files/a").key(f.t.api_keys().secret()).send().await.expect(200).text(), "x");
    // Reading tolerates a token that is not valid
    let tolerant = f.get("/object/site/a").header("authorization", "Bearer x").send().await.expect(200);
    assert_eq!(tolerant.text(), "x");
    let hidden = f.get("/object/files/a").header("authorization", "Bearer x").send().await;
    assert_error(&hidden, 400, "404", "NoSuchBucket", "Bucket not found");
    assert_error(&f.anon(f.get("/object/files/a")).send().await, 400, "404", "NoSuchKey", "Object not found");
    for role in ["none", "authenticator", "postgres", "supabase_admin"] {
        let token = f.t.keys().ring.sign(&json!({ "role": role })).unwrap();
        let denied = f.get("/bucket").bearer(&token).send().await;
        assert_eq!(
            (denied.status, denied.json()["code"].as_str().map(str::to_owned)),
            (400, Some("AccessDenied".into())),
            "{role}"
        );
    }
}

#[tokio::test]
async fn without_policies_only_the_service_reads_and_writes() {
    let f = Files::with_buckets().await;
    f.store("files/a", "x").await.expect(200);
    let alice = f.t.member("alice@example.com").await;
    let denied = alice.sends(f.post("/object/files/b").body("x")).send().await;
    assert_error(&denied, 400, "403", "AccessDenied", RLS);
    // The policies decide before the duplicate is found
    assert_error(&alice.sends(f.post("/object/files/a").body("x")).send().await, 400, "403", "AccessDenied", RLS);
    assert_error(&alice.sends(f.get("/object/files/a")).send().await, 400, "404", "NoSuchKey", "Object not found");
    assert_error(
        &alice.sends(f.get("/object/authenticated/files/a")).send().await,
        400,
        "404",
        "NoSuchKey",
        "Object not found",
    );
    let listed = alice.sends(f.post("/object/list/files").json(&json!({ "prefix": "" }))).send().await.expect(200);
    assert_eq!(listed.json(), json!([]));
    assert_eq!(f.file_count().await, 1);
    let unknown = alice.sends(f.post("/object/nothing/a").body("x")).send().await;
    assert_error(&unknown, 400, "404", "NoSuchBucket", "Bucket not found");
}

#[tokio::test]
async fn the_rules_of_a_bucket_are_checked_before_the_policies() {
    let f = Files::start().await;
    f.bucket("files", json!({ "allowed_mime_types": ["text/plain"], "file_size_limit": 5 })).await;
    let alice = f.t.member("alice@example.com").await;
    let upload = |path: &str, kind: &str, body: &'static str| {
        alice.sends(f.post(&format!("/object/{path}")).header("content-type", kind).body(body)).send()
    };
    let no_bucket = upload("other/a", "text/plain", "x").await;
    assert_error(&no_bucket, 400, "404", "NoSuchBucket", "Bucket not found");
    let mime_type = upload("files/a", "image/png", "x").await;
    assert_error(&mime_type, 400, "415", "InvalidMimeType", "mime type image/png is not supported");
    let too_large = upload("files/a", "text/plain", "123456").await;
    assert_error(&too_large, 400, "413", "EntityTooLarge", "The object exceeded the maximum allowed size");
    let key = upload("files/a%5Eb", "text/plain", "x").await;
    assert_error(&key, 400, "400", "InvalidKey", "Invalid key: a^b");
    assert_error(&upload("files/a", "text/plain", "x").await, 400, "403", "AccessDenied", RLS);
    // Also where the policies would allow it
    f.t.migrate("create policy all_insert on storage.objects for insert to authenticated with check (true)").await;
    let mime_type = upload("files/a", "image/png", "x").await;
    assert_error(&mime_type, 400, "415", "InvalidMimeType", "mime type image/png is not supported");
    upload("files/a", "text/plain", "x").await.expect(200);
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
}

#[tokio::test]
async fn an_upload_needs_insert_and_a_replacement_also_select_and_update() {
    let f = Files::with_buckets().await;
    let alice = f.t.member("alice@example.com").await;
    f.t.migrate("create policy own_insert on storage.objects for insert to authenticated with check (owner_id = (select auth.uid()::text) and owner = auth.uid() and metadata ->> 'mimetype' = 'text/plain' and (metadata ->> 'contentLength')::int < 100 and storage.allow_any_operation(array['object.upload', 'object.upload_update']))").await;
    let send = |name: &str, kind: &str, upsert: &str| {
        let request = f.post(&format!("/object/files/{name}")).header("content-type", kind).header("x-upsert", upsert);
        alice.sends(request.body("hello")).send()
    };
    send("a", "text/plain", "false").await.expect(200);
    assert_error(&send("b", "image/png", "false").await, 400, "403", "AccessDenied", RLS);
    assert_error(&send("c", "text/plain", "true").await, 400, "403", "AccessDenied", RLS);
    f.t.migrate("create policy own_select on storage.objects for select to authenticated using (owner_id = (select auth.uid()::text))").await;
    send("c", "text/plain", "true").await.expect(200);
    assert_error(&send("a", "text/plain", "true").await, 400, "403", "AccessDenied", RLS);
    f.t.migrate("create policy own_update on storage.objects for update to authenticated using (owner_id = (select auth.uid()::text))").await;
    send("a", "text/plain", "true").await.expect(200);
    let owner = f.t.query("select owner_id, owner::text, version from storage.objects where name = 'a'").await;
    assert_eq!((owner[0].get::<_, &str>(0), owner[0].get::<_, &str>(1)), (alice.id(), alice.id()));
    assert_ne!(owner[0].get::<_, &str>(2), "1", "the row of the test is not the one that stays");
}

#[tokio::test]
async fn triggers_see_the_test_as_the_caller_and_the_write_as_the_service() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    f.t.migrate(
        "create table public.seen (role text, uid uuid, owner text, operation text, path text);
         grant all on public.seen to anon, authenticated, service_role;
         create function public.see() returns trigger language plpgsql as $$ begin
           insert into public.seen values (current_user, auth.uid(), new.owner_id, storage.operation(), current_setting('request.path', true));
           if new.name like '%forbidden%' then raise exception 'no' using errcode = '42501'; end if;
           return new;
         end $$;
         create trigger see before insert on storage.objects for each row execute function public.see()",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    let path = own(&alice, "a");
    alice.sends(f.post(&format!("/object/files/{path}")).body("x")).send().await.expect(200);
    let seen = f.t.query("select role, uid::text, owner, operation, path from public.seen").await;
    assert_eq!(seen.len(), 1, "the test is rolled back with what its triggers wrote");
    let row = &seen[0];
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, Option<&str>>(1), row.get::<_, &str>(2)),
        ("service_role", None, alice.id())
    );
    assert_eq!(
        (row.get::<_, &str>(3), row.get::<_, &str>(4)),
        ("storage.object.upload", format!("/object/files/{path}").as_str())
    );
    let denied = alice.sends(f.post(&format!("/object/files/{}", own(&alice, "forbidden"))).body("x")).send().await;
    assert_error(&denied, 400, "403", "AccessDenied", "no");
    f.has_files(1).await;
}

#[tokio::test]
async fn every_step_has_the_settings_of_its_request() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    // An error returns what a step sees: a read, the two tests of an upsert, and its write
    f.t.migrate(
        "create function public.settings() returns text language sql as $$ select concat_ws('|', \
           current_setting('search_path'), current_user, current_setting('request.jwt.claim.role'), \
           current_setting('request.jwt.claims')::json ->> 'role', current_setting('request.jwt.claim.sub'), \
           auth.uid(), current_setting('request.jwt') like '%.%.%', current_setting('request.headers')::json ->> 'x-mark', \
           current_setting('request.method'), current_setting('request.path'), storage.operation(), \
           current_setting('storage.allow_delete_query'), current_setting('statement_timeout'), \
           current_setting('lock_timeout'), current_setting('timezone')) $$; \
         create function public.raise() returns boolean language plpgsql as $$ begin \
           raise exception '%', public.settings() using errcode = '42501'; end $$; \
         create function public.raise_at_step() returns trigger language plpgsql as $$ begin \
           perform public.raise() where (new.name like '%/test' and new.version = '1') \
             or (new.name like '%/again' and new.version <> '1' and current_user = 'authenticated') \
             or (new.name like '%/write' and current_user = 'service_role'); \
           return new; end $$; \
         create trigger settings before insert on storage.objects for each row execute function public.raise_at_step(); \
         create policy settings on storage.objects as restrictive for select to authenticated \
           using (name not like '%/read' or public.raise())",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    let id = alice.id();
    f.store(&format!("files/{id}/read"), "x").await.expect(200);
    let seen = |role: &str, of_caller: &str, method: &str, name: &str, operation: &str| {
        // The service has a token only where its key is one
        let has_token = if of_caller.is_empty() { "f" } else { "t" };
        format!(
            "storage, public, extensions|{role}|{role}|{role}|{of_caller}|{has_token}|mine|{method}|/object/files/{id}/{name}|\
             {operation}|true|30s|5s|UTC"
        )
    };
    let of_caller = format!("{id}|{id}");
    for round in 0..2 {
        let read = f.get(&format!("/object/files/{id}/read")).header("x-mark", "mine");
        let expected = seen("authenticated", &of_caller, "GET", "read", "storage.object.get_authenticated");
        assert_error(&alice.sends(read).send().await, 400, "403", "AccessDenied", &expected);
        for (name, role) in [("test", "authenticated"), ("again", "authenticated"), ("write", "service_role")] {
            let upload =
                f.post(&format!("/object/files/{id}/{name}")).header("x-upsert", "true").header("x-mark", "mine");
            let of_caller = if role == "authenticated" { &of_caller } else { "" };
            let expected = seen(role, of_caller, "POST", name, "storage.object.upload");
            assert_error(&alice.sends(upload.body("x")).send().await, 400, "403", "AccessDenied", &expected);
        }
        // On connections whose statements are prepared too
        let upload = f.post(&format!("/object/files/{id}/{round}")).header("x-upsert", "true");
        alice.sends(upload.body("x")).send().await.expect(200);
    }
}

#[tokio::test]
async fn policies_see_the_operation_of_each_route() {
    let images = tempfile::tempdir().unwrap();
    let f = Files::with(|settings| settings.images = Some(ImageSettings::in_folder(images.path()))).await;
    f.bucket("files", json!({})).await;
    f.store("files/a", "x").await.expect(200);
    f.t.migrate(
        "create function public.tell() returns boolean language plpgsql as \
           $$ begin raise exception '%', storage.operation() using errcode = '42501'; end $$; \
         create policy tell on storage.objects to authenticated using (public.tell()) with check (public.tell()); \
         create policy tell on storage.buckets to authenticated using (public.tell()) with check (public.tell())",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    let both = json!({ "bucketId": "files", "sourceKey": "a", "destinationKey": "b" });
    for (request, operation) in [
        (f.post("/bucket").json(&json!({ "name": "new" })), "storage.bucket.create"),
        (f.get("/bucket"), "storage.bucket.list"),
        (f.get("/bucket/files"), "storage.bucket.get"),
        (f.put("/bucket/files").json(&json!({ "public": true })), "storage.bucket.update"),
        (f.delete("/bucket/files"), "storage.bucket.delete"),
        (f.post("/object/files/b").body("x"), "storage.object.upload"),
        (f.put("/object/files/a").body("x"), "storage.object.upload_update"),
        (f.post("/object/copy").json(&both), "storage.object.copy"),
        (f.post("/object/move").json(&both), "storage.object.move"),
        (f.delete("/object/files/a"), "storage.object.delete"),
        (f.delete("/object/files").json(&json!({ "prefixes": ["a"] })), "storage.object.delete_many"),
        (f.get("/object/authenticated/files/a"), "storage.object.get_authenticated"),
        (f.get("/object/files/a"), "storage.object.get_authenticated"),
        (f.get("/object/info/files/a"), "object.get_authenticated_info"),
        (f.get("/object/info/authenticated/files/a"), "object.head_authenticated_info"),
        (f.post("/object/sign/files/a").json(&json!({ "expiresIn": 60 })), "storage.object.sign"),
        (f.post("/object/sign/files").json(&json!({ "paths": ["a"], "expiresIn": 60 })), "storage.object.sign_many"),
        (f.post("/object/upload/sign/files/b"), "storage.object.sign_upload_url"),
        (f.post("/object/list/files").json(&json!({ "prefix": "" })), "storage.object.list"),
        (f.post("/object/list-v2/files").json(&json!({})), "storage.object.list_v2"),
        (f.get("/render/image/authenticated/files/a"), "storage.render.image_authenticated"),
    ] {
        assert_error(&alice.sends(request).send().await, 400, "403", "AccessDenied", operation);
    }
}

#[tokio::test]
async fn a_policy_that_recurses_is_a_schema_error_and_public_objects_stay_readable() {
    let f = Files::with_buckets().await;
    f.store("site/a", "x").await.expect(200);
    f.store("files/a", "x").await.expect(200);
    f.t.migrate("create policy loop on storage.objects for select to authenticated using (exists (select from storage.objects as o where o.name = objects.name))").await;
    let alice = f.t.member("alice@example.com").await;
    let failed = alice.sends(f.get("/object/files/a")).send().await;
    let message = "The database schema is invalid or incompatible.";
    assert_error(&failed, 400, "503", "DatabaseInvalidObjectDefinition", message);
    assert_eq!(alice.sends(f.get("/object/site/a")).send().await.expect(200).text(), "x");
}

/// Sends every call that names an object of `bucket`, and returns the responses as text.
async fn every_call(
    f: &Files,
    caller: &portico_testkit::Member<'_>,
    bucket: &str,
    hidden: &str,
    own: &str,
) -> Vec<(String, String)> {
    let object = format!("{bucket}/{hidden}");
    let relocate = |source: &str, destination: &str| json!({ "bucketId": bucket, "sourceKey": source, "destinationKey": destination });
    let requests = [
        ("get", f.get(&format!("/object/{object}"))),
        ("authenticated", f.get(&format!("/object/authenticated/{object}"))),
        ("info", f.get(&format!("/object/info/{object}"))),
        ("public", f.get(&format!("/object/public/{object}"))),
        ("upload", f.post(&format!("/object/{object}")).body("overwritten")),
        ("upsert", f.post(&format!("/object/{object}")).header("x-upsert", "true").body("overwritten")),
        ("put", f.put(&format!("/object/{object}")).body("overwritten")),
        ("sign", f.post(&format!("/object/sign/{object}")).json(&json!({ "expiresIn": 60 }))),
        ("sign many", f.post(&format!("/object/sign/{bucket}")).json(&json!({ "expiresIn": 60, "paths": [hidden] }))),
        ("sign upload", f.post(&format!("/object/upload/sign/{object}")).header("x-upsert", "true")),
        ("move", f.post("/object/move").json(&relocate(hidden, &format!("{own}-moved")))),
        ("copy", f.post("/object/copy").json(&relocate(hidden, &format!("{own}-copy")))),
        ("move onto", f.post("/object/move").json(&relocate(own, hidden))),
        ("copy onto", f.post("/object/copy").header("x-upsert", "true").json(&relocate(own, hidden))),
        ("delete", f.delete(&format!("/object/{object}"))),
        ("delete many", f.delete(&format!("/object/{bucket}")).json(&json!({ "prefixes": [hidden] }))),
        ("list", f.post(&format!("/object/list/{bucket}")).json(&json!({ "prefix": hidden.split('/').next() }))),
        ("page", f.post(&format!("/object/list-v2/{bucket}")).json(&json!({ "prefix": "" }))),
        (
            "folders",
            f.post(&format!("/object/list-v2/{bucket}")).json(&json!({ "prefix": "", "with_delimiter": true })),
        ),
        (
            "times",
            f.post(&format!("/object/list-v2/{bucket}"))
                .json(&json!({ "prefix": "", "with_delimiter": true, "sortBy": { "column": "created_at" } })),
        ),
    ];
    let mut responses = Vec::new();
    for (name, request) in requests {
        let response = caller.sends(request).send().await;
        let text = response.text().replace(hidden, "HIDDEN").replace(hidden.split('/').next().unwrap(), "FOLDER");
        responses.push((name.to_owned(), format!("{} {text}", response.status)));
    }
    responses
}

#[tokio::test]
async fn no_call_reaches_an_object_of_another_user() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    let (alice, bob) = (f.t.member("alice@example.com").await, f.t.member("bob@example.com").await);
    let hidden = own(&bob, "secret.txt");
    for (member, name) in [(&bob, &hidden), (&alice, &own(&alice, "mine.txt"))] {
        member
            .sends(f.post(&format!("/object/files/{name}")).header("content-type", "text/plain").body("the content"))
            .send()
            .await
            .expect(200);
    }
    let before: Vec<(String, Option<String>, Value)> =
        f.t.query("select name, version, metadata from storage.objects order by name")
            .await
            .iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect();
    // A call for a hidden object gets the response of one for an object that does not exist
    let of_hidden = every_call(&f, &alice, "files", &hidden, &own(&alice, "mine.txt")).await;
    let of_missing =
        every_call(&f, &alice, "files", &format!("{}x/secret.txt", bob.id()), &own(&alice, "mine.txt")).await;
    for ((name, hidden), (_, missing)) in of_hidden.iter().zip(&of_missing) {
        assert!(!hidden.contains("the content") && !hidden.contains(bob.id()), "{name}: {hidden}");
        // Tokens differ in their times
        let text = |response: &str| response.split("mine.txt").next().unwrap().to_owned();
        assert_eq!(text(hidden), text(missing), "{name}");
    }
    let after: Vec<(String, Option<String>, Value)> =
        f.t.query("select name, version, metadata from storage.objects order by name")
            .await
            .iter()
            .map(|row| (row.get(0), row.get(1), row.get(2)))
            .collect();
    assert_eq!(before, after);
    assert_eq!(bob.sends(f.get(&format!("/object/files/{hidden}"))).send().await.expect(200).text(), "the content");
    f.has_files(2).await;
}

#[tokio::test]
async fn requests_of_many_callers_at_once_never_mix() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    let mut members = Vec::new();
    for n in 0..4 {
        let member = f.t.member(&format!("user{n}@example.com")).await;
        let path = format!("/object/files/{}", own(&member, "a"));
        member.sends(f.post(&path).body(format!("content of {n}"))).send().await.expect(200);
        members.push(member);
    }
    let calls = (0..200).map(|call| {
        let (reader, owner) = (call % 4, call / 4 % 4);
        let path = format!("/object/files/{}", own(&members[owner], "a"));
        let request = members[reader].sends(f.get(&path)).send();
        async move { (reader, owner, request.await) }
    });
    for (reader, owner, response) in futures_util::future::join_all(calls).await {
        if reader == owner {
            assert_eq!(response.expect(200).text(), format!("content of {owner}"));
        } else {
            assert_error(&response, 400, "404", "NoSuchKey", "Object not found");
        }
    }
}
