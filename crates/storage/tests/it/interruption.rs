//! Uploads that are interrupted, and what others do while one is being received.

use std::time::Duration;

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

#[tokio::test]
async fn a_slow_upload_does_not_replace_an_object_that_its_sender_may_not_change() {
    let f = Files::with_buckets().await;
    f.t.migrate(
        "create policy all_insert on storage.objects for insert to authenticated with check (true);
         create policy all_select on storage.objects for select to authenticated using (true);
         create policy own_update on storage.objects for update to authenticated using (owner_id = (select auth.uid())::text)",
    )
    .await;
    let (alice, mallory) = (f.t.member("alice@example.com").await, f.t.member("mallory@example.com").await);
    let (sender, chunks) = mpsc::unbounded_channel::<Vec<u8>>();
    sender.send(b"mallory".to_vec()).unwrap();
    let chunks = futures_util::stream::unfold(chunks, |mut chunks| async { Some((chunks.recv().await?, chunks)) });
    let slow = mallory.sends(f.put("/object/files/new").body(streamed(chunks))).send();
    let meanwhile = async {
        // The test of the permission is over
        f.has_journal_entries(1).await;
        alice.sends(f.post("/object/files/new").body("alice")).send().await.expect(200);
        drop(sender);
    };
    let (denied, ()) = futures_util::future::join(slow, meanwhile).await;
    assert_error(&denied, 400, "403", "AccessDenied", "new row violates row-level security policy");
    assert_eq!(f.content("files/new").await, "alice");
    let row = &f.t.query("select owner_id from storage.objects").await[0];
    assert_eq!(row.get::<_, &str>(0), alice.id());
    f.has_files(1).await;
    mallory.sends(f.put("/object/files/own").body("one")).send().await.expect(200);
    mallory.sends(f.put("/object/files/own").body("two")).send().await.expect(200);
    assert_eq!(f.content("files/own").await, "two");
}

#[tokio::test]
async fn a_commit_waits_for_the_disk_whatever_a_trigger_sets() {
    let f = Files::with_buckets().await;
    f.t.migrate(
        "create table public.seen (setting text);
         grant all on public.seen to service_role;
         create function public.hurry() returns trigger language plpgsql as $$ begin
           perform set_config('synchronous_commit', 'off', true);
           return new;
         end $$;
         create function public.see() returns trigger language plpgsql as $$ begin
           insert into public.seen values (current_setting('synchronous_commit'));
           return new;
         end $$;
         create trigger hurry before insert on storage.objects for each row execute function public.hurry();
         create constraint trigger see after insert on storage.objects
           deferrable initially deferred for each row execute function public.see()",
    )
    .await;
    f.store("files/a", "x").await.expect(200);
    let seen = f.t.query("select setting from public.seen").await;
    assert_eq!(seen.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>(), ["local"]);
}
