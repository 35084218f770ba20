//! The buckets and files of a project folder.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use portico_storage::{ExistingBuckets, SeedBucket, SeedError};

use super::helper::Files;

impl Files {
    /// Makes a bucket with the files of a folder, as a start does. Returns the lines of progress.
    async fn seed(&self, bucket: &SeedBucket) -> (Vec<String>, Result<(), SeedError>) {
        let lines: Mutex<Vec<String>> = Mutex::default();
        let progress = |line: String| lines.lock().unwrap().push(line);
        let buckets = std::slice::from_ref(bucket);
        let outcome = self.t.storage().seed(buckets, ExistingBuckets::Keep, Path::new("/"), &progress).await;
        (lines.into_inner().unwrap(), outcome)
    }
}

fn bucket(folder: &Path, types: &[&str]) -> SeedBucket {
    let allowed_mime_types = types.iter().map(|&kind| kind.to_owned()).collect();
    SeedBucket { name: "docs".into(), allowed_mime_types, objects: Some(folder.to_owned()), ..SeedBucket::default() }
}

#[tokio::test]
async fn a_bucket_whose_files_were_not_all_stored_is_continued_at_the_next_start() {
    let f = Files::start().await;
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects");
    let bucket = bucket(&objects, &["text/*"]);
    let (_, failed) = f.seed(&bucket).await;
    assert!(matches!(failed, Err(SeedError::Read { .. })), "{failed:?}");

    fs::create_dir(&objects).unwrap();
    for name in ["a.txt", "b.wasm", "c.txt", "d.wasm"] {
        fs::write(objects.join(name), name).unwrap();
    }
    let (lines, failed) = f.seed(&bucket).await;
    assert_eq!((&*lines[0], lines.len()), ("Continuing Storage bucket: docs", 5));
    let failed = failed.unwrap_err().to_string();
    assert!(failed.contains("b.wasm") && failed.contains("d.wasm"), "{failed}");
    assert_eq!((f.content("docs/a.txt").await, f.content("docs/c.txt").await), ("a.txt".into(), "c.txt".into()));

    // An object that is there stays, and one that is deleted after the last file is stored too
    f.service(f.put("/object/docs/a.txt").header("content-type", "text/plain")).body("own").send().await.expect(200);
    for name in ["b.wasm", "d.wasm"] {
        fs::rename(objects.join(name), objects.join(name).with_extension("txt")).unwrap();
    }
    f.seed(&bucket).await.1.unwrap();
    assert_eq!((f.content("docs/a.txt").await, f.content("docs/b.txt").await), ("own".into(), "b.wasm".into()));
    f.service(f.delete("/object/docs/c.txt")).send().await.expect(200);
    let (lines, outcome) = f.seed(&bucket).await;
    assert!(lines.is_empty() && outcome.is_ok(), "{lines:?}");
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 3);
}

#[tokio::test]
async fn a_path_of_one_file_is_an_object_with_its_name() {
    let f = Files::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("terms.txt");
    fs::write(&file, "terms").unwrap();
    f.seed(&bucket(&file, &[])).await.1.unwrap();
    assert_eq!(f.content("docs/terms.txt").await, "terms");
}

#[tokio::test]
async fn a_text_has_the_form_of_its_type_that_the_bucket_allows() {
    let f = Files::start().await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "a").unwrap();
    fs::write(folder.path().join("b.html"), "b").unwrap();
    f.seed(&bucket(folder.path(), &["text/plain", "text/html; charset=utf-8"])).await.1.unwrap();
    let types = f.t.query("select metadata ->> 'mimetype' from storage.objects order by name").await;
    let types: Vec<String> = types.iter().map(|row| row.get(0)).collect();
    assert_eq!(types, ["text/plain", "text/html; charset=utf-8"]);
}
