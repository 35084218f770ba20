//! Deletion, and the clean-up of content without a row.

use std::time::Duration;

use serde_json::json;

use super::helper::{Files, OWN_FOLDER, assert_error, own};

#[tokio::test]
async fn objects_are_deleted_with_their_content() {
    let f = Files::with_buckets().await;
    for name in ["a", "b/c", "d"] {
        f.store(&format!("files/{name}"), "x").await.expect(200);
    }
    let deleted = f.service(f.delete("/object/files/a")).send().await.expect(200);
    assert_eq!(deleted.json(), json!({ "message": "Successfully deleted" }));
    assert_error(&f.service(f.delete("/object/files/a")).send().await, 400, "404", "NoSuchKey", "Object not found");
    let many = f
        .service(f.delete("/object/files").json(&json!({ "prefixes": ["b/c", "nothing", "d", "\u{0}"] })))
        .send()
        .await
        .expect(200)
        .json();
    let mut names: Vec<_> = many.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["b/c", "d"]);
    let keys: Vec<&String> = many[0].as_object().unwrap().keys().collect();
    let expected = [
        "name",
        "bucket_id",
        "owner",
        "owner_id",
        "version",
        "id",
        "updated_at",
        "created_at",
        "last_accessed_at",
        "metadata",
        "user_metadata",
    ];
    assert_eq!(keys, expected);
    f.has_files(0).await;
    let empty = f.service(f.delete("/object/files").json(&json!({ "prefixes": [] }))).send().await;
    assert_error(&empty, 400, "400", "InvalidRequest", "body/prefixes must NOT have fewer than 1 items");
    let unknown = f.service(f.delete("/object/nothing").json(&json!({ "prefixes": ["a"] }))).send().await.expect(200);
    assert_eq!(unknown.json(), json!([]));
}

#[tokio::test]
async fn a_denied_deletion_reveals_only_visible_objects() {
    let f = Files::with_buckets().await;
    f.store("files/visible/a", "x").await.expect(200);
    f.store("files/hidden/a", "x").await.expect(200);
    f.t.migrate(OWN_FOLDER).await;
    f.t.migrate("create policy visible on storage.objects for select to authenticated using (name like 'visible/%')")
        .await;
    let alice = f.t.member("alice@example.com").await;
    assert_error(
        &alice.sends(f.delete("/object/files/visible/a")).send().await,
        400,
        "403",
        "AccessDenied",
        "Access denied",
    );
    assert_error(
        &alice.sends(f.delete("/object/files/hidden/a")).send().await,
        400,
        "404",
        "NoSuchKey",
        "Object not found",
    );
    let mine = own(&alice, "a");
    alice.sends(f.post(&format!("/object/files/{mine}")).body("x")).send().await.expect(200);
    let body = json!({ "prefixes": ["visible/a", "hidden/a", mine] });
    let deleted = alice.sends(f.delete("/object/files").json(&body)).send().await.expect(200).json();
    assert_eq!(deleted.as_array().unwrap().len(), 1);
    f.has_files(2).await;
}

#[tokio::test]
async fn an_object_that_rows_refer_to_is_not_deleted() {
    let f = Files::with_buckets().await;
    let stored = f.store("files/a", "x").await.expect(200).json();
    f.t.migrate("create table public.uses (object uuid references storage.objects (id))").await;
    f.t.execute(&format!("insert into public.uses values ('{}')", stored["Id"].as_str().unwrap())).await;
    let refused = f.service(f.delete("/object/files/a")).send().await;
    let message = "The resource could not be updated or removed due to a foreign key constraint";
    assert_error(&refused, 400, "409", "ResourceReferenced", message);
    assert_eq!(f.content("files/a").await, "x");
    f.has_files(1).await;
}

#[tokio::test]
async fn the_clean_up_deletes_what_a_crash_has_left_and_nothing_else() {
    let f = Files::with_buckets().await;
    f.store("files/a/b", "kept").await.expect(200);
    f.has_files(1).await;
    // An upload that was stored and not committed, one that was being received, and a deletion
    f.place.write("files/a/b/00000000-0000-4000-8000-000000000001", "orphan").await;
    f.place.write("files/gone/00000000-0000-4000-8000-000000000002", "orphan").await;
    f.place.interrupt_upload().await;
    std::fs::write(f.t.files().join("journal/one"), r#"{"bucket":"files","names":["a/b","gone"]}"#).unwrap();
    std::fs::write(f.t.files().join("journal/two.new"), "{\"buck").unwrap();
    assert_eq!(f.file_count().await, 6);
    f.t.storage().clean_up(Duration::from_secs(3600)).await;
    assert_eq!(f.file_count().await, 6, "all of it is too young");
    f.t.storage().clean_up(Duration::ZERO).await;
    assert_eq!(f.file_count().await, 1);
    assert_eq!(f.content("files/a/b").await, "kept");
}

#[tokio::test]
async fn the_second_of_two_deletions_finds_nothing() {
    let f = Files::with_buckets().await;
    f.t.migrate("create policy everything on storage.objects for all using (true) with check (true)").await;
    let alice = f.t.member("alice@example.com").await;
    // The first one has not committed yet. Another object may follow it
    let delete = "begin; set local storage.allow_delete_query = 'true'; delete from storage.objects where name = 'a'";
    let follow = "insert into storage.objects (bucket_id, name) values ('files', 'a')";
    for first in [delete.to_owned(), format!("{delete}; {follow}")] {
        f.service(f.post("/object/files/a")).header("x-upsert", "true").body("x").send().await.expect(200);
        f.t.execute(&first).await;
        let second = f.send_during(alice.sends(f.delete("/object/files/a")), "commit").await;
        assert_error(&second, 400, "404", "NoSuchKey", "Object not found");
    }
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
}
