//! The comparison of all rows with all content.

use std::time::Duration;

use portico_storage::{GcOptions, GcSummary};

use super::helper::Files;
use super::place::Place;

const ORPHAN: &str = "files/a/00000000-0000-4000-8000-000000000001";

async fn gc(f: &Files, grace: Duration, delete_content: bool, delete_rows: bool) -> GcSummary {
    let options = GcOptions { grace, delete_content, delete_rows };
    f.t.storage().collect_garbage(options, &|_| {}).await.unwrap()
}

/// Stores two objects, loses the content of the second, and leaves content without a row.
async fn damaged() -> Files {
    let f = Files::with_buckets().await;
    f.store("files/a", "kept").await.expect(200);
    f.store("files/Lost/x", "lost").await.expect(200);
    f.has_files(2).await;
    let paths = f.place.paths().await;
    f.place.remove(paths.iter().find(|path| !path.starts_with("files/a/")).unwrap()).await;
    f.place.write(ORPHAN, "orphan").await;
    f.place.write("files/notes.txt", "of another program").await;
    f.place.interrupt_upload().await;
    f
}

#[tokio::test]
async fn a_collection_finds_what_does_not_fit_together_and_changes_nothing() {
    let f = damaged().await;
    let found = gc(&f, Duration::ZERO, false, false).await;
    assert_eq!((found.rows, found.files, found.bytes), (2, 3, 28));
    assert_eq!((found.lost, found.lost_objects.as_slice()), (1, &["files/Lost/x".to_owned()][..]));
    assert_eq!((found.orphans, found.orphan_bytes, found.young, found.interrupted), (1, 6, 0, 1));
    assert!(found.orphan_paths[0].ends_with(ORPHAN), "{found:?}");
    assert!(!found.deleted_content && found.deleted_rows == 0);
    let young = gc(&f, Duration::from_secs(3600), true, false).await;
    assert_eq!((young.lost, young.orphans, young.young, young.interrupted), (1, 0, 1, 0));
    assert_eq!((f.file_count().await, f.t.count("select count(*) from storage.objects").await), (4, 2));
}

#[tokio::test]
async fn a_collection_deletes_what_it_may_and_nothing_else() {
    let f = damaged().await;
    let found = gc(&f, Duration::ZERO, true, false).await;
    assert!(found.deleted_content && found.orphans == 1 && found.deleted_rows == 0);
    assert_eq!((f.file_count().await, f.t.count("select count(*) from storage.objects").await), (2, 2));
    assert_eq!(gc(&f, Duration::ZERO, true, true).await.deleted_rows, 1);
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
    assert_eq!(f.content("files/a").await, "kept");
    let clean = gc(&f, Duration::ZERO, true, true).await;
    assert_eq!((clean.rows, clean.files, clean.lost, clean.orphans, clean.interrupted), (1, 2, 0, 0, 0));
}

#[tokio::test]
async fn the_content_of_an_earlier_database_is_discarded_whatever_its_age() {
    let f = damaged().await;
    let unfinished = f.created("a/film.mp4", 10).await;
    f.service(f.patch(&unfinished, 0, "hello")).send().await.expect(204);
    f.t.storage().discard_earlier_content().await.unwrap();
    assert_eq!((f.file_count().await, f.unfinished()), (if Place::IS_SHARED { 4 } else { 2 }, 0));
    f.service(f.tus(http::Method::HEAD, &unfinished)).send().await.expect(404);
    assert_eq!(f.content("files/a").await, "kept");
}
