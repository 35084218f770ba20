//! Reads as the owner of the tables: public objects and signed URLs.
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
async fn public_and_signed_downloads_are_read_as_the_owner_and_no_others() {
    let (f, url) = Files::with_a_public_and_a_signed_object().await;
    let alice = f.t.member("alice@example.com").await;
    assert_error(&alice.sends(f.get("/object/files/a")).send().await, 400, "404", "NoSuchKey", "Object not found");
    assert_eq!(f.content("files/a").await, "private");
    assert_eq!(f.owner_sessions().await, 0);
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
    f.t.execute("update storage.buckets set public = false where id = 'site'").await;
    let closed = f.get("/object/public/site/b").send().await;
    assert_error(&closed, 400, "404", "NoSuchBucket", "Bucket not found");
    f.service(f.delete("/object/files/a")).send().await.expect(200);
    assert_error(&f.get(&url).send().await, 400, "404", "NoSuchKey", "Object not found");
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
    for table in ["storage.objects", "storage.buckets"] {
        f.t.execute(&format!("alter table {table} force row level security")).await;
        // Nothing changes for those whose right is not a policy
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
