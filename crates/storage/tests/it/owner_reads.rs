//! Reads as the owner of the tables: public objects, signed URLs, and whether a bucket is public.
//!
//! Their sessions have no reset, so nothing of a request may reach them and no code of a project
//! may run there. The attacks leave an advisory lock of the session, which only a reset would
//! release.

use serde_json::json;

use super::helper::{Files, assert_error};

impl Files {
    /// Stores `site/a` and `files/a`. Returns the signed URL of the second, which is not public.
    async fn with_a_public_and_a_signed_object() -> (Self, String) {
        let f = Self::with_buckets().await;
        f.store("site/a", "public").await.expect(200);
        f.store("files/a", "private").await.expect(200);
        let url = f.signed_url("files/a").await;
        (f, url)
    }

    /// Returns the number of sessions that act as the owner.
    async fn owner_sessions(&self) -> i64 {
        let sessions = "select count(*) from pg_stat_activity \
            where usename = 'supabase_storage_admin' and datname = current_database()";
        self.t.query(sessions).await[0].get(0)
    }

    /// Returns the advisory locks that these sessions hold.
    async fn owner_locks(&self) -> Vec<i64> {
        let locks = "select distinct objid::bigint from pg_locks join pg_stat_activity using (pid) \
            where locktype = 'advisory' and usename = 'supabase_storage_admin' and datname = current_database() order by 1";
        self.t.query(locks).await.iter().map(|row| row.get(0)).collect()
    }

    async fn signed_url(&self, object: &str) -> String {
        let request = self.post(&format!("/object/sign/{object}")).json(&json!({ "expiresIn": 60 }));
        let signed = self.service(request).send().await.expect(200).json();
        signed["signedURL"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn what_depends_on_no_caller_is_read_as_the_owner_and_nothing_else() {
    let f = Files::with_buckets().await;
    let alice = f.t.member("alice@example.com").await;
    let request = f.post("/object/sign/files/a").json(&json!({ "expiresIn": 60 }));
    assert_error(&alice.sends(request).send().await, 400, "404", "NoSuchKey", "Object not found");
    alice.sends(f.post("/object/list/files").json(&json!({ "prefix": "" }))).send().await.expect(200);
    assert_eq!(f.owner_sessions().await, 0);
    f.store("site/a", "public").await.expect(200);
    f.store("files/a", "private").await.expect(200);
    let url = f.signed_url("files/a").await;
    assert_error(&alice.sends(f.get("/object/files/a")).send().await, 400, "404", "NoSuchKey", "Object not found");
    assert_eq!(f.content("files/a").await, "private");
    assert_eq!(f.get("/object/public/site/a").send().await.expect(200).text(), "public");
    assert_eq!(f.owner_sessions().await, 1);
    assert_eq!(f.get(&url).send().await.expect(200).text(), "private");
    let hidden = f.get("/object/public/files/a").send().await;
    assert_error(&hidden, 400, "404", "NoSuchBucket", "Bucket not found");
    let missing = f.get("/object/public/site/b").send().await;
    assert_error(&missing, 400, "404", "NoSuchKey", "Object not found");
    // The row decides anew each time
    f.store("site/b", "now").await.expect(200);
    assert_eq!(f.get("/object/public/site/b").send().await.expect(200).text(), "now");
    f.t.execute("update storage.buckets set public = false, file_size_limit = 2 where id = 'site'").await;
    let closed = f.get("/object/public/site/b").send().await;
    assert_error(&closed, 400, "404", "NoSuchBucket", "Bucket not found");
    let message = "The object exceeded the maximum allowed size";
    assert_error(&f.store("site/c", "now").await, 400, "413", "EntityTooLarge", message);
    f.service(f.delete("/object/files/a")).send().await.expect(200);
    assert_error(&f.get(&url).send().await, 400, "404", "NoSuchKey", "Object not found");
}

#[tokio::test]
async fn whether_a_bucket_is_public_is_read_for_each_download() {
    let (f, _) = Files::with_a_public_and_a_signed_object().await;
    let alice = f.t.member("alice@example.com").await;
    let reads = |object: &str| alice.sends(f.get(&format!("/object/authenticated/{object}"))).send();
    for _ in 0..2 {
        for round in 0..3 {
            assert_error(&reads("files/a").await, 400, "404", "NoSuchKey", "Object not found");
            f.t.execute("update storage.buckets set public = true where id = 'files'").await;
            let missing = reads("files/b").await;
            assert_error(&missing, 400, "404", "NoSuchKey", "Object not found");
            let found = reads("files/a").await.expect(200);
            assert_eq!(
                (found.text().as_str(), found.header("cache-control")),
                ("private", Some("no-cache")),
                "{round}"
            );
            f.t.execute("update storage.buckets set public = false where id = 'files'").await;
        }
        // Also in transactions of the caller alone
        f.t.execute("alter table storage.objects force row level security").await;
    }
    f.t.migrate("create policy all_of_them on storage.objects for select to authenticated using (true)").await;
    // The policies allow the object before the bucket is read. So caches that are shared may see
    // later what SQL makes public, and never what it makes private
    for _ in 0..2 {
        let found = reads("files/a").await.expect(200);
        assert_eq!((found.text().as_str(), found.header("cache-control")), ("private", Some("private, no-cache")));
        f.service(f.put("/bucket/files").json(&json!({ "public": true }))).send().await.expect(200);
        let found = reads("files/a").await.expect(200);
        assert_eq!((found.text().as_str(), found.header("cache-control")), ("private", Some("no-cache")));
        f.t.execute("update storage.buckets set public = false where id = 'files'").await;
    }
    f.t.execute("update storage.objects set bucket_id = 'site', name = 'b' where bucket_id = 'files'").await;
    f.t.execute("set storage.allow_delete_query = 'true'; delete from storage.buckets where id = 'files'").await;
    assert_error(&reads("files/a").await, 400, "404", "NoSuchBucket", "Bucket not found");
}

#[tokio::test]
async fn a_caller_gets_the_row_that_the_policies_have_shown_it() {
    let f = Files::with_buckets().await;
    f.store("files/a", "of the owner").await.expect(200);
    // The owner reads the table alone, and callers also those that inherit
    f.t.migrate(
        "create policy shown on storage.objects for select to authenticated using (metadata ->> 'eTag' = '\"shown\"')",
    )
    .await;
    f.t.execute("create table public.more () inherits (storage.objects)").await;
    let alice = f.t.member("alice@example.com").await;
    let info = || alice.sends(f.get("/object/info/files/a")).send();
    assert_error(&info().await, 400, "404", "NoSuchKey", "Object not found");
    f.t.execute(
        "insert into public.more (bucket_id, name, version, metadata) \
         select bucket_id, name, 'shown', metadata || '{\"eTag\": \"\\\"shown\\\"\"}' from storage.objects",
    )
    .await;
    assert_eq!(info().await.expect(200).json()["version"], "shown");
}

#[tokio::test]
async fn policies_do_not_matter_in_a_public_bucket_and_their_errors_come_first_elsewhere() {
    let (f, _) = Files::with_a_public_and_a_signed_object().await;
    f.t.migrate(
        "create function public.fails() returns boolean language plpgsql as $$ \
         begin raise exception 'not today' using errcode = '42501'; end $$; \
         create policy fails on storage.objects for select to authenticated using (public.fails())",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    let reads = |object: &str| alice.sends(f.get(&format!("/object/authenticated/{object}"))).send();
    assert_eq!(reads("site/a").await.expect(200).text(), "public");
    assert_error(&reads("site/b").await, 400, "404", "NoSuchKey", "Object not found");
    assert_error(&reads("files/a").await, 400, "403", "AccessDenied", "not today");
    // There is no row to decide about
    assert_error(&reads("files/b").await, 400, "404", "NoSuchKey", "Object not found");
    assert_error(&reads("none/a").await, 400, "404", "NoSuchBucket", "Bucket not found");
    f.t.migrate(
        "drop policy fails on storage.objects; create policy loop on storage.objects for select to authenticated \
         using (exists (select from storage.objects as o where o.name = objects.name))",
    )
    .await;
    let message = "The database schema is invalid or incompatible.";
    for object in ["files/a", "files/b"] {
        assert_error(&reads(object).await, 400, "503", "DatabaseInvalidObjectDefinition", message);
    }
    assert_error(&reads("none/a").await, 400, "404", "NoSuchBucket", "Bucket not found");
    assert_eq!(reads("site/a").await.expect(200).text(), "public");
}

#[tokio::test]
async fn a_policy_that_is_forced_on_the_owner_never_runs_as_the_owner() {
    let (f, url) = Files::with_a_public_and_a_signed_object().await;
    f.t.migrate(
        "create function public.attack() returns boolean language plpgsql as $$ \
         begin perform pg_advisory_lock_shared(1); return true; end $$; \
         create policy attack on storage.objects using (public.attack()); \
         create policy attack on storage.buckets using (public.attack())",
    )
    .await;
    f.t.execute("update storage.buckets set file_size_limit = 9").await;
    let alice = f.t.member("alice@example.com").await;
    for table in ["storage.objects", "storage.buckets"] {
        f.t.execute(&format!("alter table {table} force row level security")).await;
        // Nothing changes for those whose right is not a policy
        let message = "The object exceeded the maximum allowed size";
        assert_error(&f.store("files/b", "0123456789").await, 400, "413", "EntityTooLarge", message);
        f.store("files/b", "012345678").await.expect(200);
        f.service(f.delete("/object/files/b")).send().await.expect(200);
        assert_eq!(alice.sends(f.get("/object/files/a")).send().await.expect(200).text(), "private");
        assert_eq!(alice.sends(f.get("/object/authenticated/site/a")).send().await.expect(200).text(), "public");
        assert_eq!(f.get("/object/public/site/a").send().await.expect(200).text(), "public");
        assert_eq!(f.get(&url).send().await.expect(200).text(), "private");
        assert_eq!((f.owner_sessions().await, f.owner_locks().await), (1, vec![]), "{table}");
    }
}

#[tokio::test]
async fn a_view_in_the_place_of_a_table_never_runs_as_the_owner() {
    for table in ["objects", "buckets"] {
        let (f, url) = Files::with_a_public_and_a_signed_object().await;
        assert_eq!(f.get("/object/public/site/a").send().await.expect(200).text(), "public");
        assert_eq!(f.owner_sessions().await, 1);
        f.t.migrate(
            "create function public.attack() returns boolean language plpgsql volatile as $$ \
             begin perform pg_advisory_lock_shared(1); return true; end $$",
        )
        .await;
        f.t.execute(&format!("alter table storage.{table} rename to {table}_behind")).await;
        f.t.execute(&format!(
            "create view storage.{table} as select * from storage.{table}_behind where public.attack()"
        ))
        .await;
        f.t.execute(&format!("grant select on storage.{table} to public")).await;
        assert_eq!(f.get("/object/public/site/a").send().await.expect(200).text(), "public");
        assert_eq!(f.get(&url).send().await.expect(200).text(), "private");
        let private = f.service(f.get("/object/authenticated/files/a")).send().await;
        assert_eq!(private.expect(200).text(), "private");
        assert_eq!((f.owner_sessions().await, f.owner_locks().await), (1, vec![]), "{table}");
    }
}

#[tokio::test]
async fn code_that_the_owner_of_the_tables_lets_run_finds_nothing_of_a_request() {
    let (f, url) = Files::with_a_public_and_a_signed_object().await;
    // PostgreSQL computes the predicate of an index while it plans
    f.t.migrate(
        "create function public.try_to_write() returns void language plpgsql as $$ begin \
           insert into storage.buckets (id, name) values (gen_random_uuid()::text, gen_random_uuid()::text); \
           perform pg_advisory_lock_shared(3); \
           exception when others then null; end $$; \
         create function public.attack() returns boolean language plpgsql immutable as $$ begin \
           perform pg_advisory_lock_shared(1); \
           if current_setting('role') <> 'none' or concat(current_setting('request.jwt.claims', true), \
              current_setting('request.headers', true), current_setting('request.path', true), \
              current_setting('storage.operation', true)) <> '' then perform pg_advisory_lock_shared(2); end if; \
           perform public.try_to_write(); \
           return true; end $$; \
         create policy readable on storage.objects for select to authenticated using (true)",
    )
    .await;
    f.t.execute("create index attack on storage.objects (name) where public.attack()").await;
    let alice = f.t.member("alice@example.com").await;
    for _ in 0..3 {
        assert_eq!(alice.sends(f.get("/object/files/a")).send().await.expect(200).text(), "private");
        let public = f.get("/object/public/site/a").header("x-secret", "of this caller");
        assert_eq!(alice.sends(public).send().await.expect(200).text(), "public");
        assert_eq!(f.get(&url).send().await.expect(200).text(), "private");
    }
    assert_eq!(f.owner_locks().await, [1]);
}
