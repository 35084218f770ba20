//! Resumable uploads whose requests, server or commit are interrupted.

use std::time::Duration;

use futures_util::StreamExt;
use http::Method;
use tokio::sync::mpsc;

use super::helper::{Files, streamed};
use super::resumable::{assert_refused, url_of};

/// Waits until a condition holds.
async fn until(condition: impl AsyncFn() -> bool) {
    let reached = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.expect("the condition holds in time");
}

/// Returns a body that a test sends in pieces, and the sender of the pieces.
fn piecewise() -> (mpsc::UnboundedSender<Vec<u8>>, reqwest::Body) {
    let (sender, chunks) = mpsc::unbounded_channel::<Vec<u8>>();
    let chunks = futures_util::stream::unfold(chunks, |mut chunks| async { Some((chunks.recv().await?, chunks)) });
    (sender, streamed(chunks))
}

/// Returns the size of the only file with bytes.
fn received(f: &Files) -> u64 {
    let entries = std::fs::read_dir(f.t.files().join("resumable")).unwrap().flatten();
    let bytes = entries.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "bytes"));
    bytes.map(|entry| entry.metadata().unwrap().len()).sum()
}

async fn offset(f: &Files, url: &str) -> String {
    let head = f.service(f.tus(Method::HEAD, url)).send().await.expect(200);
    head.header("upload-offset").unwrap().to_owned()
}

#[tokio::test]
async fn a_restart_of_the_server_loses_no_offset() {
    let mut f = Files::with_buckets().await;
    let url = f.created("a", 15).await;
    f.service(f.patch(&url, 0, "hello")).send().await.expect(204);
    f.t.restart().await;
    assert_eq!(offset(&f, &url).await, "5");
    f.service(f.patch(&url, 5, " hell")).send().await.expect(204);
    f.t.restart().await;
    f.service(f.patch(&url, 10, "o you")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "hello hello you");
    let row = &f.t.query("select metadata ->> 'eTag' from storage.objects").await[0];
    assert_eq!(row.get::<_, &str>(0), "\"0d492f28c6c2e7625ceab370de833071\"");
    f.t.restart().await;
    assert_eq!(offset(&f, &url).await, "15");
}

#[tokio::test]
async fn bytes_before_a_dropped_connection_are_kept() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 10).await;
    let (sender, body) = piecewise();
    sender.send(b"01234".to_vec()).unwrap();
    let dropped = async {
        until(async || received(&f) == 5).await;
    };
    tokio::select! {
        answered = f.service(f.patch(&url, 0, body)).try_send() => panic!("{answered:?}"),
        () = dropped => {}
    }
    drop(sender);
    assert_eq!(offset(&f, &url).await, "5");
    f.service(f.patch(&url, 5, "56789")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "0123456789");
}

#[tokio::test]
async fn a_newer_request_takes_over_from_one_that_waits_for_bytes() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 10).await;
    let (sender, body) = piecewise();
    sender.send(b"01234".to_vec()).unwrap();
    let stale = f.service(f.patch(&url, 0, body)).send();
    let resumed = async {
        until(async || received(&f) == 5).await;
        // The stale connection is open all the time
        assert_eq!(offset(&f, &url).await, "5");
        f.service(f.patch(&url, 5, "56789")).send().await.expect(204);
        drop(sender);
    };
    let (stale, ()) = futures_util::future::join(stale, resumed).await;
    assert_refused(&stale, 423, "A newer request works on this upload");
    assert_eq!(f.content("files/a").await, "0123456789");
    f.has_files(2).await;
}

#[tokio::test]
async fn a_request_that_sends_nothing_more_is_ended_and_keeps_its_bytes() {
    let f = Files::with(|settings| settings.idle_timeout = Duration::from_millis(200)).await;
    f.bucket("files", serde_json::json!({})).await;
    let url = f.created("a", 10).await;
    let silent = futures_util::stream::iter([b"01234".to_vec()]).chain(futures_util::stream::pending());
    let ended = f.service(f.patch(&url, 0, streamed(silent))).send().await;
    assert_refused(&ended, 408, "The upload sent nothing for too long");
    assert_eq!(offset(&f, &url).await, "5");
}

#[tokio::test]
async fn many_requests_for_one_upload_at_once_never_mix_their_bytes() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 40_000).await;
    // Every sender sends the bytes that the server wants, until the whole is there
    let sender = |letter: u8| {
        let (f, url) = (&f, &url);
        async move {
            for _ in 0..400 {
                let head = f.service(f.tus(Method::HEAD, url)).send().await;
                let at: usize = match head.header("upload-offset") {
                    Some(at) => at.parse().unwrap(),
                    None => continue,
                };
                if at == 40_000 {
                    return;
                }
                let patched = f.service(f.patch(url, at, vec![letter; 1000])).send().await;
                assert!(matches!(patched.status, 204 | 409 | 423 | 503), "{patched:?}");
            }
        }
    };
    futures_util::future::join_all([b'a', b'b', b'c', b'd'].map(sender)).await;
    until(async || offset(&f, &url).await == "40000").await;
    let content = f.content("files/a").await.into_bytes();
    assert_eq!(content.len(), 40_000);
    for chunk in content.chunks(1000) {
        assert!(chunk.iter().all(|byte| *byte == chunk[0]), "a chunk of two requests");
    }
}

/// Ends the session of every commit, so that its outcome is unknown to the server.
const END_SESSIONS: &str =
    "create function public.end_session() returns trigger language plpgsql security definer as $$ begin
       if current_setting('role') = 'service_role' then perform pg_terminate_backend(pg_backend_pid()); end if;
       return new;
     end $$;
     create constraint trigger end_session after insert or update on storage.objects
       deferrable initially deferred for each row execute function public.end_session()";

#[tokio::test]
async fn an_upload_whose_commit_fails_is_not_complete_and_can_be_completed_later() {
    let f = Files::with_buckets().await;
    f.t.migrate("create policy anyone on storage.objects for insert to authenticated with check (true)").await;
    let alice = f.t.member("alice@example.com").await;
    let url = url_of(&alice.sends(f.creation("a", 10)).send().await.expect(201));
    alice.sends(f.patch(&url, 0, "01234")).send().await.expect(204);
    f.t.migrate(END_SESSIONS).await;
    for _ in 0..2 {
        let failed = alice.sends(f.patch(&url, 5, "56789")).send().await;
        assert!(failed.status >= 500, "{failed:?}");
        let head = alice.sends(f.tus(Method::HEAD, &url)).send().await.expect(200);
        assert_eq!((head.header("upload-offset"), head.header("upload-length")), (Some("5"), Some("10")));
    }
    f.t.migrate("drop trigger end_session on storage.objects").await;
    alice.sends(f.patch(&url, 5, "56789")).send().await.expect(204);
    assert_eq!(f.content("files/a").await, "0123456789");
    f.t.storage().clean_up(Duration::ZERO).await;
    assert_eq!(f.content("files/a").await, "0123456789");
    // The object, and the record of the upload
    f.has_files(2).await;
}

#[tokio::test]
async fn a_commit_that_the_server_did_not_record_is_found_by_the_row() {
    let mut f = Files::with_buckets().await;
    let url = f.created("a", 5).await;
    f.service(f.patch(&url, 0, "hello")).send().await.expect(204);
    // As a crash between the commit and the record of it leaves it
    let folder = f.t.files().join("resumable");
    let record = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let mut fields: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    fields["is_finished"] = false.into();
    fields["progress"]["offset"] = 0.into();
    std::fs::write(&record, fields.to_string()).unwrap();
    f.t.restart().await;
    assert_eq!(offset(&f, &url).await, "5");
    let again = f.service(f.patch(&url, 5, "").header("x-upsert", "true")).send().await.expect(204);
    assert_eq!(again.header("tus-complete"), Some("1"));
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
}

#[tokio::test]
async fn an_object_that_another_request_stores_meanwhile_is_not_replaced() {
    let f = Files::with_buckets().await;
    let url = f.created("a", 10).await;
    let (sender, body) = piecewise();
    sender.send(b"01234".to_vec()).unwrap();
    let slow = f.service(f.patch(&url, 0, body)).send();
    let meanwhile = async {
        until(async || received(&f) == 5).await;
        f.store("files/a", "other").await.expect(200);
        sender.send(b"56789".to_vec()).unwrap();
        drop(sender);
    };
    let (refused, ()) = futures_util::future::join(slow, meanwhile).await;
    assert_refused(&refused, 409, "The resource already exists");
    assert_eq!(f.content("files/a").await, "other");
}
