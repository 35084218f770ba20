//! `/bucket`

use serde_json::json;

use super::helper::{Files, assert_error};

#[tokio::test]
async fn a_bucket_is_created_listed_changed_and_deleted() {
    let f = Files::start().await;
    let body = json!({
        "id": "avatars", "name": "avatars", "public": false, "file_size_limit": "5MB", "allowed_mime_types": ["image/*", ""],
    });
    let created = f.service(f.post("/bucket").json(&body)).send().await.expect(200);
    assert_eq!(created.json(), json!({ "name": "avatars" }));

    let listed =
        f.service(f.get("/bucket/?search=VAT&limit=1&sortColumn=name&sortOrder=desc")).send().await.expect(200).json();
    let mut bucket = listed[0].clone();
    for time in ["created_at", "updated_at"] {
        let text = bucket[time].take();
        let text = text.as_str().unwrap();
        assert!(text.len() == 24 && text.ends_with('Z'), "{text}");
    }
    let expected = json!({
        "id": "avatars", "name": "avatars", "owner": "", "public": false, "type": "STANDARD", "file_size_limit": 5_000_000,
        "allowed_mime_types": ["image/*"], "created_at": null, "updated_at": null,
    });
    assert_eq!(bucket, expected);
    let none = f.service(f.get("/bucket?search=%25")).send().await.expect(200);
    assert_eq!(none.json(), json!([]), "a percent sign is no wildcard");

    let changes = json!({ "id": "avatars", "public": true, "file_size_limit": null });
    let changed = f.service(f.put("/bucket/avatars").json(&changes)).send().await.expect(200);
    assert_eq!(changed.json(), json!({ "message": "Successfully updated" }));
    let bucket = f.service(f.get("/bucket/avatars")).send().await.expect(200).json();
    assert_eq!((&bucket["public"], &bucket["file_size_limit"]), (&json!(true), &json!(null)));
    assert_eq!(bucket["allowed_mime_types"], json!(["image/*"]), "what is not given stays");
    assert!(bucket.get("type").is_none());

    let deleted = f.service(f.delete("/bucket/avatars").json(&json!({}))).send().await.expect(200);
    assert_eq!(deleted.json(), json!({ "message": "Successfully deleted" }));
    assert_error(&f.service(f.get("/bucket/avatars")).send().await, 400, "404", "NoSuchBucket", "Bucket not found");
}

#[tokio::test]
async fn a_bucket_that_cannot_be_created_says_why() {
    let f = Files::start().await;
    f.bucket("taken", json!({})).await;
    let create = async |body| f.service(f.post("/bucket").json(&body)).send().await;
    let taken = create(json!({ "name": "taken" })).await;
    assert_error(&taken, 400, "409", "BucketAlreadyExists", "The resource already exists");
    assert_eq!(taken.json()["error"], "Duplicate");
    for name in
        [json!("a/b"), json!(" a"), json!("ü"), json!(""), json!("x".repeat(101)), json!("x--table-s3"), json!("a\0b")]
    {
        assert_error(&create(json!({ "name": name })).await, 400, "400", "InvalidBucketName", "Bucket name invalid");
    }
    let other_id = create(json!({ "name": "fine", "id": "ü/x" })).await;
    assert_error(&other_id, 400, "400", "InvalidBucketName", "Bucket name invalid");
    let missing = create(json!({})).await;
    assert_error(&missing, 400, "400", "InvalidRequest", "body must have required property 'name'");
    let large = create(json!({ "name": "large", "file_size_limit": "1GB" })).await;
    assert_error(&large, 400, "413", "EntityTooLarge", "The object exceeded the maximum allowed size");
    let kind = create(json!({ "name": "kind", "allowed_mime_types": ["image"] })).await;
    assert_error(&kind, 400, "415", "InvalidMimeType", "mime type image is not supported");
    let nothing = f.service(f.post("/bucket").header("content-type", "application/json")).send().await;
    assert_eq!(nothing.json()["error"], "FastifyError");
    let broken = f.service(f.post("/bucket").header("content-type", "application/json").body("{")).send().await;
    assert_eq!(broken.json()["message"], "Body is not valid JSON but content-type is set to 'application/json'");
    let unchanged = f.service(f.put("/bucket/taken").json(&json!({ "name": "x" }))).send().await;
    assert_eq!(unchanged.json()["code"], "InvalidRequest");
}

#[tokio::test]
async fn policies_decide_about_buckets_and_hidden_ones_do_not_exist() {
    let f = Files::with_buckets().await;
    f.store("files/a.txt", "x").await.expect(200);
    let alice = f.t.member("alice@example.com").await;
    let denied = alice.sends(f.post("/bucket").json(&json!({ "name": "mine" }))).send().await;
    assert_error(&denied, 400, "403", "AccessDenied", "new row violates row-level security policy");
    assert_eq!(alice.sends(f.get("/bucket")).send().await.expect(200).json(), json!([]));
    for response in [
        alice.sends(f.get("/bucket/files")).send().await,
        alice.sends(f.put("/bucket/files").json(&json!({ "public": true }))).send().await,
        // Not that it has objects
        alice.sends(f.delete("/bucket/files")).send().await,
        f.service(f.delete("/bucket/nothing")).send().await,
    ] {
        assert_error(&response, 400, "404", "NoSuchBucket", "Bucket not found");
    }
    let not_empty = f.service(f.delete("/bucket/files")).send().await;
    assert_error(&not_empty, 400, "409", "ResourceNotEmpty", "The bucket you tried to delete is not empty");

    f.t.migrate("create policy make on storage.buckets for insert to authenticated with check (owner_id = (select auth.uid()::text)); create policy see on storage.buckets for select to authenticated using (owner = (select auth.uid()))").await;
    alice.sends(f.post("/bucket").json(&json!({ "name": "mine" }))).send().await.expect(200);
    let seen = alice.sends(f.get("/bucket")).send().await.expect(200).json();
    assert_eq!((seen[0]["name"].as_str(), seen[0]["owner"].as_str()), (Some("mine"), Some(alice.id())));
    assert_eq!(seen.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_bucket_is_emptied_by_the_service_only() {
    let f = Files::with_buckets().await;
    for name in ["a", "b/c"] {
        f.store(&format!("files/{name}"), "x").await.expect(200);
    }
    f.store("site/stays", "x").await.expect(200);
    let denied = f.anon(f.post("/bucket/files/empty").json(&json!({}))).send().await;
    assert_error(&denied, 403, "403", "AccessDenied", "Access denied: Invalid role");
    let denied = f.post("/bucket/files/empty").send().await;
    assert_error(&denied, 403, "403", "AccessDenied", "Access denied: JWT is not authenticated");
    let emptied = f.service(f.post("/bucket/files/empty").json(&json!({}))).send().await.expect(200).json();
    assert_eq!(emptied["message"], "Empty bucket has been queued. Completion may take up to an hour.");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
    f.has_files(1).await;
    f.service(f.delete("/bucket/files")).send().await.expect(200);
}

#[tokio::test]
async fn a_bucket_with_too_many_objects_is_not_emptied() {
    let f = Files::with(|settings| settings.empty_bucket_limit = 2).await;
    f.bucket("files", json!({})).await;
    f.t.execute(
        "insert into storage.objects (bucket_id, name) select 'files', 'o' || n from generate_series(1, 3) as n",
    )
    .await;
    let refused = f.service(f.post("/bucket/files/empty")).send().await;
    let message = "Unable to empty the bucket because it contains too many objects";
    assert_error(&refused, 400, "409", "InvalidRequest", message);
}

#[tokio::test]
async fn objects_that_a_trigger_keeps_do_not_stop_the_emptying() {
    let f = Files::with_buckets().await;
    f.t.execute(
        "insert into storage.objects (bucket_id, name)
           select 'files', kind || n from unnest(array['kept', 'other']) as kind, generate_series(1, 600) as n;
         create function public.keep() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger keep before delete on storage.objects for each row
           when (old.name like 'kept%') execute function public.keep()",
    )
    .await;
    f.service(f.post("/bucket/files/empty").json(&json!({}))).send().await.expect(200);
    let names = f.t.query("select distinct left(name, 4) from storage.objects").await;
    assert_eq!(names.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>(), ["kept"]);
}
