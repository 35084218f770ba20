//! Uploads that are interrupted, and what others do while one is being received.

use std::time::Duration;

use portico_testkit::{Member, TestResponse};
use serde_json::json;
use tokio::sync::mpsc;

use super::helper::{Files, assert_error, streamed};

#[tokio::test]
async fn content_stays_until_the_outcome_of_its_commit_is_known() {
    let f = Files::with_buckets().await;
    f.store("files/old", "kept").await.expect(200);
    f.has_files(1).await;
    f.t.migrate(
        "create function public.end_session() returns trigger language plpgsql security definer as $$ begin
           if current_setting('role') = 'service_role' then perform pg_terminate_backend(pg_backend_pid()); end if;
           return new;
         end $$;
         create constraint trigger end_session after insert or update on storage.objects
           deferrable initially deferred for each row execute function public.end_session();
         create policy all_insert on storage.objects for insert to authenticated with check (true);
         create policy all_select on storage.objects for select to authenticated using (true);
         create policy all_update on storage.objects for update to authenticated using (true)",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    let failed = alice.sends(f.post("/object/files/a").body("x")).send().await;
    assert_ne!(failed.status, 200);
    assert_eq!((f.versions("files/a").await.len(), f.journal_entries()), (1, 1));
    let body = json!({ "bucketId": "files", "sourceKey": "old", "destinationKey": "new" });
    assert_ne!(alice.sends(f.post("/object/move").json(&body)).send().await.status, 200);
    assert_eq!((f.versions("files/new").await.len(), f.journal_entries()), (1, 3));
    f.t.storage().clean_up(Duration::ZERO).await;
    assert_eq!((f.content("files/old").await, f.file_count().await), ("kept".into(), 1));
}

/// Policies that let everyone write new objects, and replace their own.
const OWN_UPDATE: &str = "
    create policy all_insert on storage.objects for insert to authenticated with check (true);
    create policy all_select on storage.objects for select to authenticated using (true);
    create policy own_update on storage.objects for update to authenticated using (owner_id = (select auth.uid())::text)";
const DENIED: &str = "new row violates row-level security policy";

impl Files {
    /// Replaces an object with content that has not ended before `meanwhile`, which begins when the
    /// test of the permission is over.
    async fn replace_slowly(
        &self,
        sender: &Member<'_>,
        object: &str,
        meanwhile: impl Future<Output = ()>,
    ) -> TestResponse {
        self.has_journal_entries(0).await;
        let (bytes, chunks) = mpsc::unbounded_channel::<Vec<u8>>();
        bytes.send(b"slow".to_vec()).unwrap();
        let chunks = futures_util::stream::unfold(chunks, |mut chunks| async { Some((chunks.recv().await?, chunks)) });
        let slow = sender.sends(self.put(&format!("/object/{object}")).body(streamed(chunks))).send();
        let meanwhile = async {
            self.has_journal_entries(1).await;
            meanwhile.await;
            drop(bytes);
        };
        futures_util::future::join(slow, meanwhile).await.0
    }
}

#[tokio::test]
async fn a_slow_upload_does_not_replace_an_object_that_its_sender_may_not_change() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_UPDATE).await;
    let (alice, mallory) = (f.t.member("alice@example.com").await, f.t.member("mallory@example.com").await);
    let upload = async || {
        alice.sends(f.post("/object/files/new").body("alice")).send().await.expect(200);
    };
    let denied = f.replace_slowly(&mallory, "files/new", upload()).await;
    assert_error(&denied, 400, "403", "AccessDenied", DENIED);
    assert_eq!(f.content("files/new").await, "alice");
    let row = &f.t.query("select owner_id from storage.objects").await[0];
    assert_eq!(row.get::<_, &str>(0), alice.id());
    f.has_files(1).await;
    mallory.sends(f.put("/object/files/own").body("one")).send().await.expect(200);
    mallory.sends(f.put("/object/files/own").body("two")).send().await.expect(200);
    assert_eq!(f.content("files/own").await, "two");
    f.has_files(2).await;
    // Not even an object that was its sender's when the upload began
    let give = format!("update storage.objects set owner_id = '{}' where name = 'own'", alice.id());
    let denied = f.replace_slowly(&mallory, "files/own", f.t.execute(&give)).await;
    assert_error(&denied, 400, "403", "AccessDenied", DENIED);
    assert_eq!(f.content("files/own").await, "two");
    f.t.execute(&format!("update storage.objects set owner_id = '{}'", mallory.id())).await;
    let replace = async {
        f.service(f.delete("/object/files/own")).send().await.expect(200);
        alice.sends(f.post("/object/files/own").body("alice")).send().await.expect(200);
    };
    let denied = f.replace_slowly(&mallory, "files/own", replace).await;
    assert_error(&denied, 400, "403", "AccessDenied", DENIED);
    assert_eq!(f.content("files/own").await, "alice");
    f.has_files(2).await;
    // Not even one that is changed while the commit of the upload waits for the row
    f.t.execute(&format!("update storage.objects set owner_id = '{}'", mallory.id())).await;
    let give = format!("begin; {give}");
    let slow = f.replace_slowly(&mallory, "files/own", f.t.execute(&give));
    let commit = async {
        f.waits_for_lock().await;
        f.t.execute("commit").await;
    };
    assert_error(&futures_util::future::join(slow, commit).await.0, 400, "403", "AccessDenied", DENIED);
    assert_eq!(f.content("files/own").await, "alice");
    f.has_files(2).await;
}

#[tokio::test]
async fn a_row_that_a_trigger_prevents_leaves_nothing_and_the_object_stays() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_UPDATE).await;
    f.t.migrate(
        "create table public.seen (version text);
         grant all on public.seen to authenticated, service_role;
         create function public.prevent() returns trigger language plpgsql as $$ begin
           insert into public.seen values (new.version);
           if new.metadata ->> 'mimetype' = 'text/prevented' and current_user = 'service_role' then return null; end if;
           return new;
         end $$;
         create trigger prevent before insert on storage.objects for each row execute function public.prevent()",
    )
    .await;
    let alice = f.t.member("alice@example.com").await;
    let upload = |kind: &str| alice.sends(f.put("/object/files/a").header("content-type", kind).body("new")).send();
    upload("text/plain").await.expect(200);
    upload("text/plain").await.expect(200);
    assert_eq!(f.t.count("select count(*) from public.seen").await, 2, "one for each row that was written");
    let before = f.t.query("select version from storage.objects").await[0].get::<_, String>(0);
    assert_ne!(upload("text/prevented").await.status, 200);
    f.has_files(1).await;
    assert_eq!(f.t.query("select version from storage.objects").await[0].get::<_, String>(0), before);
    assert_eq!(f.content("files/a").await, "new");
}

#[tokio::test]
async fn an_upsert_does_not_mistake_the_row_of_another_table_for_its_own() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_UPDATE).await;
    let (alice, mallory) = (f.t.member("alice@example.com").await, f.t.member("mallory@example.com").await);
    // The test inserts: the conflict is one with the table alone
    f.t.execute("create table public.more () inherits (storage.objects)").await;
    f.t.execute(&format!(
        "insert into public.more (bucket_id, name, version, owner_id) values ('files', 'a', 'more', '{}')",
        mallory.id()
    ))
    .await;
    let upload = async {
        alice.sends(f.post("/object/files/a").body("alice")).send().await.expect(200);
    };
    let denied = f.replace_slowly(&mallory, "files/a", upload).await;
    assert_error(&denied, 400, "403", "AccessDenied", DENIED);
    assert_eq!(f.t.count("select count(*) from only storage.objects where version = 'more'").await, 0);
    f.has_files(1).await;
}

#[tokio::test]
async fn an_upsert_is_tested_again_only_if_the_row_is_another_one() {
    let f = Files::with_buckets().await;
    f.t.migrate(OWN_UPDATE).await;
    let alice = f.t.member("alice@example.com").await;
    for content in ["one", "two"] {
        alice.sends(f.put("/object/files/a").body(content)).send().await.expect(200);
    }
    let id = f.t.query("select id::text from storage.objects").await[0].get::<_, String>(0);
    let policies = async |role: &str| {
        f.t.execute(&format!("alter policy own_update on storage.objects to {role}")).await;
    };
    // The row is that of the test, which has allowed it
    let stored = f.replace_slowly(&alice, "files/a", policies("anon")).await.expect(200);
    assert_eq!((stored.json()["Id"].as_str(), f.content("files/a").await.as_str()), (Some(id.as_str()), "slow"));
    f.has_files(1).await;
    // Changed by others, but still to be replaced by its owner, or not
    let touch = "update storage.objects set last_accessed_at = now()";
    for (role, outcome) in [("authenticated", Ok(())), ("anon", Err(()))] {
        policies("authenticated").await;
        let change = async {
            f.t.execute(touch).await;
            policies(role).await;
        };
        let replaced = f.replace_slowly(&alice, "files/a", change).await;
        match outcome {
            Ok(()) => _ = replaced.expect(200),
            Err(()) => assert_error(&replaced, 400, "403", "AccessDenied", DENIED),
        }
        f.has_files(1).await;
    }
    // Deleted: the upsert inserts, if the policies allow that
    policies("authenticated").await;
    let delete = async || {
        f.service(f.delete("/object/files/a")).send().await.expect(200);
    };
    f.replace_slowly(&alice, "files/a", delete()).await.expect(200);
    let forbid = async {
        delete().await;
        f.t.execute("alter policy all_insert on storage.objects to anon").await;
    };
    assert_error(&f.replace_slowly(&alice, "files/a", forbid).await, 400, "403", "AccessDenied", DENIED);
    f.has_files(0).await;
}

#[tokio::test]
async fn an_upload_that_does_not_get_the_lock_of_its_key_leaves_nothing() {
    let f = Files::with_buckets().await;
    let (lock, unlock) = Files::lock_of("files/a");
    f.t.execute(&lock).await;
    let refused = f.store("files/a", "x").await;
    assert_error(&refused, 400, "503", "LockTimeout", "acquiring lock timeout");
    f.t.execute(&unlock).await;
    f.has_files(0).await;
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
}

#[tokio::test]
async fn a_commit_waits_for_the_disk_whatever_a_trigger_sets() {
    let f = Files::with_buckets().await;
    f.t.migrate(
        "create table public.written (at pg_lsn);
         grant all on public.written to service_role;
         create function public.hurry() returns trigger language plpgsql as $$ begin
           perform set_config('synchronous_commit', 'off', true);
           return new;
         end $$;
         create function public.see() returns trigger language plpgsql as $$ begin
           insert into public.written values (pg_current_wal_insert_lsn());
           return new;
         end $$;
         create trigger hurry before insert on storage.objects for each row execute function public.hurry();
         create constraint trigger hurry_later after insert on storage.objects
           deferrable initially deferred for each row execute function public.hurry();
         create constraint trigger see after insert on storage.objects
           deferrable initially deferred for each row execute function public.see()",
    )
    .await;
    // Commits of other tests may flush a commit that has not waited, but not each of many
    for number in 0..20 {
        f.store(&format!("files/{number}"), "x").await.expect(200);
        let flushed = f.t.query("select count(*) from public.written where at <= pg_current_wal_flush_lsn()").await;
        assert_eq!(flushed[0].get::<_, i64>(0), number + 1);
    }
}
