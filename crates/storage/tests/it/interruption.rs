//! Uploads that are interrupted, and what others do while one is being received.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;

use crate::helper::{Files, streamed};

/// Waits until a condition holds.
async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.expect("the condition holds in time");
}

fn entries(f: &Files, folder: &str) -> usize {
    std::fs::read_dir(f.t.files().join(folder)).map_or(0, |entries| entries.flatten().count())
}

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
    assert_eq!((entries(&f, "objects/files/a"), entries(&f, "journal")), (1, 1));
    let body = json!({ "bucketId": "files", "sourceKey": "old", "destinationKey": "new" });
    assert_ne!(alice.sends(f.post("/object/move").json(&body)).send().await.status, 200);
    assert_eq!((entries(&f, "objects/files/new"), entries(&f, "journal")), (1, 3));
    f.t.storage().clean_up(Duration::ZERO).await;
    assert_eq!((f.content("files/old").await, f.file_count()), ("kept".into(), 1));
}

#[tokio::test]
async fn a_cancelled_upload_stays_in_the_journal_until_the_clean_up() {
    let f = Files::with_buckets().await;
    let stalled = futures_util::stream::iter([vec![b'x'; 1000]]).chain(futures_util::stream::pending());
    let request = f.service(f.post("/object/files/a").body(streamed(stalled))).send();
    let received = until(|| entries(&f, "incoming") == 1);
    tokio::select! {
        answer = request => panic!("{answer:?}"),
        () = received => {}
    }
    until(|| entries(&f, "incoming") == 0).await;
    // The write that was cancelled could still have moved its file
    f.store("files/b", "x").await.expect(200);
    f.has_files(2).await;
    assert_eq!(entries(&f, "journal"), 1);
    let place = f.t.files().join("objects/files/a");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("00000000-0000-4000-8000-000000000001"), "late").unwrap();
    f.t.storage().clean_up(Duration::ZERO).await;
    f.has_files(1).await;
}
