//! Moves and copies.

use serde_json::{Value, json};

use super::helper::{Files, OWN_FOLDER, assert_error, own};

fn body(source: &str, destination: &str) -> Value {
    json!({ "bucketId": "files", "sourceKey": source, "destinationKey": destination })
}

#[tokio::test]
async fn a_move_keeps_the_row_and_the_content() {
    let f = Files::with_buckets().await;
    let request = f.post("/object/files/a").header("x-robots-tag", "noindex").header("content-type", "text/plain");
    let stored = f.service(request.body("hello")).send().await.expect(200).json();
    let moved = f.service(f.post("/object/move").json(&body("a", "b/c"))).send().await.expect(200);
    assert_eq!(moved.json(), json!({ "message": "Successfully moved" }));
    let info = f.service(f.get("/object/info/files/b/c")).send().await.expect(200).json();
    assert_eq!(info["id"], stored["Id"]);
    let sent = f.service(f.get("/object/files/b/c")).send().await.expect(200);
    assert_eq!((sent.text().as_str(), sent.header("x-robots-tag")), ("hello", Some("noindex")));
    assert_error(&f.service(f.get("/object/files/a")).send().await, 400, "404", "NoSuchKey", "Object not found");
    f.has_files(1).await;

    let mut elsewhere = body("b/c", "d");
    elsewhere["destinationBucket"] = "site".into();
    f.service(f.post("/object/move").json(&elsewhere)).send().await.expect(200);
    assert_eq!(f.get("/object/public/site/d").send().await.expect(200).text(), "hello");
    f.service(f.post("/object/move").json(&json!({ "bucketId": "site", "sourceKey": "d", "destinationKey": "d" })))
        .send()
        .await
        .expect(200);
    f.has_files(1).await;
}

#[tokio::test]
async fn a_copy_is_an_object_of_its_own() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    let copied = f.service(f.post("/object/copy").json(&body("a", "b"))).send().await.expect(200).json();
    assert_eq!((&copied["Key"], &copied["Id"], &copied["name"]), (&json!("files/b"), &copied["id"], &json!("b")));
    assert_eq!(
        (&copied["owner"], &copied["metadata"]["size"], &copied["user_metadata"]),
        (&json!(""), &json!(5), &json!({}))
    );
    f.service(f.put("/object/files/a").body("changed")).send().await.expect(200);
    assert_eq!(f.content("files/b").await, "hello");
    let taken = f.service(f.post("/object/copy").json(&body("a", "b"))).send().await;
    assert_error(&taken, 400, "409", "KeyAlreadyExists", "The resource already exists");
    let mut changed = body("a", "b");
    changed["copyMetadata"] = false.into();
    changed["metadata"] = json!({ "mimetype": "image/png" });
    let copied =
        f.service(f.post("/object/copy").header("x-upsert", "true").json(&changed)).send().await.expect(200).json();
    assert_eq!(
        (&copied["metadata"]["mimetype"], &copied["metadata"]["cacheControl"]),
        (&json!("image/png"), &json!("no-cache"))
    );
    f.t.execute("update storage.objects set user_metadata = '{\"album\":\"x\"}' where name = 'a'").await;
    let kept = f.service(f.post("/object/copy").json(&body("a", "kept"))).send().await.expect(200).json();
    assert_eq!(kept["user_metadata"], json!({ "album": "x" }));
    let copied =
        f.service(f.post("/object/copy").header("x-upsert", "true").json(&changed)).send().await.expect(200).json();
    assert_eq!(copied["user_metadata"], json!(null), "the source's metadata do not belong to the copy");
    assert_eq!(f.content("files/b").await, "changed");
    f.has_files(3).await;
}

#[tokio::test]
async fn a_move_or_copy_that_cannot_be_done_changes_nothing() {
    let f = Files::with_buckets().await;
    f.bucket("images", json!({ "allowed_mime_types": ["image/*"], "file_size_limit": 3 })).await;
    f.store("files/a", "hello").await.expect(200);
    f.store("files/b", "other").await.expect(200);
    for route in ["/object/move", "/object/copy"] {
        let send = |body: Value| f.service(f.post(route).json(&body)).send();
        let to = |bucket: &str| {
            let mut body = body("a", "x");
            body["destinationBucket"] = bucket.into();
            body
        };
        assert_error(&send(body("nothing", "x")).await, 400, "404", "NoSuchKey", "Object not found");
        assert_error(&send(body("a", "ü")).await, 400, "400", "InvalidKey", "Invalid key: ü");
        assert_error(&send(body("a", "../x")).await, 400, "400", "InvalidKey", "Invalid key: ../x");
        assert_error(&send(to("nothing")).await, 400, "404", "InvalidRequest", "The related resource does not exist");
        let large = "The object exceeded the maximum allowed size";
        assert_error(&send(to("images")).await, 400, "413", "EntityTooLarge", large);
        let taken = send(body("a", "b")).await;
        assert_eq!(
            (taken.json()["statusCode"].as_str(), taken.json()["error"].as_str()),
            (Some("409"), Some("Duplicate"))
        );
        assert_eq!(
            send(json!({ "bucketId": "files" })).await.json()["message"],
            "body must have required property 'sourceKey'"
        );
    }
    assert_eq!((f.content("files/a").await, f.content("files/b").await), ("hello".into(), "other".into()));
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 2);
    f.has_files(2).await;
}

#[tokio::test]
async fn the_mark_of_an_empty_folder_does_not_bypass_the_limits() {
    let f = Files::with_buckets().await;
    f.bucket("images", json!({ "allowed_mime_types": ["image/*"], "file_size_limit": 3 })).await;
    f.store("files/a", "hello").await.expect(200);
    f.store("images/.emptyFolderPlaceholder", "").await.expect(200);
    let mark = "x/.emptyFolderPlaceholder";
    for route in ["/object/move", "/object/copy"] {
        let send = |body: Value| f.service(f.post(route).json(&body)).send();
        let mut across = body("a", mark);
        across["destinationBucket"] = "images".into();
        for filled in [across, body("a", mark)] {
            let large = "The object exceeded the maximum allowed size";
            assert_error(&send(filled).await, 400, "413", "EntityTooLarge", large);
        }
        let mut renamed = body(".emptyFolderPlaceholder", "page.txt");
        renamed["bucketId"] = "images".into();
        let kind = "mime type text/plain is not supported";
        assert_error(&send(renamed).await, 400, "415", "InvalidMimeType", kind);
        let mut other = body(".emptyFolderPlaceholder", &format!("{}/.emptyFolderPlaceholder", &route[8..]));
        other["bucketId"] = "images".into();
        send(other).await.expect(200);
        f.service(f.put("/object/images/.emptyFolderPlaceholder").header("content-type", "text/plain").body(""))
            .send()
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn a_user_moves_and_copies_within_its_rights() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_FOLDER).await;
    let alice = f.t.member("alice@example.com").await;
    let source = own(&alice, "a");
    alice.sends(f.post(&format!("/object/files/{source}")).body("x")).send().await.expect(200);
    for route in ["/object/move", "/object/copy"] {
        let denied = alice.sends(f.post(route).json(&body(&source, "elsewhere/a"))).send().await;
        assert_error(&denied, 400, "403", "AccessDenied", "new row violates row-level security policy");
    }
    alice.sends(f.post("/object/copy").json(&body(&source, &own(&alice, "b")))).send().await.expect(200);
    alice.sends(f.post("/object/move").json(&body(&source, &own(&alice, "c")))).send().await.expect(200);
    let owners = f.t.count(&format!("select count(*) from storage.objects where owner_id = '{}'", alice.id())).await;
    assert_eq!(owners, 2);
}

#[tokio::test]
async fn an_object_that_is_moved_or_deleted_during_its_move_is_not_found() {
    let f = Files::with_buckets().await;
    f.t.migrate("create policy everything on storage.objects for all using (true) with check (true)").await;
    let alice = f.t.member("alice@example.com").await;
    // The other request has not committed yet
    for other in [
        "update storage.objects set name = 'other' where name = 'a'",
        "set local storage.allow_delete_query = 'true'; delete from storage.objects where name = 'a'",
    ] {
        f.store("files/a", "hello").await.expect(200);
        f.t.execute(&format!("begin; {other}")).await;
        let moved = f.send_during(alice.sends(f.post("/object/move").json(&body("a", "b"))), "commit").await;
        assert_error(&moved, 400, "404", "NoSuchKey", "Object not found");
    }
    assert_eq!(f.t.count("select count(*) from storage.objects where name = 'b'").await, 0);
}

#[tokio::test]
async fn an_object_that_is_replaced_during_its_move_is_moved_as_it_is_then() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    let version = "00000000-0000-4000-8000-000000000001";
    f.place.write(&format!("files/a/{version}"), "changed").await;
    let (lock, unlock) = Files::lock_of("files/a");
    f.t.execute(&lock).await;
    let replaced = format!("update storage.objects set version = '{version}' where name = 'a'; {unlock}");
    let moved = f.send_during(f.service(f.post("/object/move").json(&body("a", "b"))), &replaced).await;
    moved.expect(200);
    assert_eq!(f.content("files/b").await, "changed");
}

#[tokio::test]
async fn a_move_to_a_key_that_is_taken_meanwhile_names_the_resource() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    let (lock, unlock) = Files::lock_of("files/b");
    f.t.execute(&lock).await;
    let taken = format!("insert into storage.objects (bucket_id, name) values ('files', 'b'); {unlock}");
    let moved = f.send_during(f.service(f.post("/object/move").json(&body("a", "b"))), &taken).await;
    assert_error(&moved, 400, "409", "ResourceAlreadyExists", "The resource already exists");
    assert_eq!(f.content("files/a").await, "hello");
    f.has_files(1).await;
}

#[tokio::test]
async fn an_object_that_is_replaced_during_its_copy_is_copied_as_it_is_then() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    // The copy waits for the verdict on its key, and has read the row of its source
    f.t.execute("begin; insert into storage.objects (bucket_id, name) values ('files', 'b')").await;
    let copy = f.service(f.post("/object/copy").json(&body("a", "b"))).send();
    let replace = async {
        f.waits_for_lock().await;
        f.service(f.put("/object/files/a").body("changed")).send().await.expect(200);
        f.has_files(1).await;
        f.t.execute("rollback").await;
    };
    tokio::join!(copy, replace).0.expect(200);
    assert_eq!(f.content("files/b").await, "changed");
}

#[tokio::test]
async fn an_object_does_not_get_a_key_that_no_route_reaches() {
    let f = Files::with_buckets().await;
    f.store("files/a", "hello").await.expect(200);
    let (longest, longer) = ("k".repeat(2500), "k".repeat(2501));
    for route in ["/object/copy", "/object/move"] {
        let refused = f.service(f.post(route).json(&body("a", &longer))).send().await;
        assert_error(&refused, 400, "400", "InvalidKey", &format!("Invalid key: {longer}"));
    }
    f.service(f.post("/object/copy").json(&body("a", &longest))).send().await.expect(200);
    assert_eq!(f.content(&format!("files/{longest}")).await, "hello");
}
