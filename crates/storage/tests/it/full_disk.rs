//! A disk without space: the error, and what is left.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use http::Method;
use portico_storage::BackendSettings;
use serde_json::json;
use tempfile::TempDir;

use super::helper::{Files, assert_error};
use super::place::count;
use super::resumable;
use super::s3::{self, Signed, request};

/// A file system of 2 MiB in a mount namespace of its own, which ends with its process.
struct SmallDisk {
    process: Child,
    path: PathBuf,
    /// The folder that it is mounted at: without it the file system would end.
    _folder: TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=2m tmpfs \"$0\" && echo mounted && exec cat";
        let mut process = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut response = [0; 8];
        let mounted = process.stdout.as_mut().unwrap().read_exact(&mut response);
        mounted.expect("this machine must permit user namespaces, for a disk that can be filled");
        let path = Path::new("/proc").join(process.id().to_string()).join("root");
        let path = path.join(folder.path().strip_prefix("/").unwrap());
        Self { process, path, _folder: folder }
    }

    /// Writes until there is no space left.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.path.join("filler")).unwrap();
        while file.write_all(&[b'x'; 4096]).is_ok() {}
    }
}

/// Waits until a folder has no more files than before, whatever they are.
async fn has_no_more_files(folder: &Path, before: usize) {
    while count(folder) > before {
        tokio::task::yield_now().await;
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn an_upload_without_space_leaves_nothing_and_the_server_goes_on() {
    let disk = SmallDisk::mount();
    let f = Files::with(|settings| settings.backend = BackendSettings::Folder(disk.path.clone())).await;
    f.bucket("files", json!({})).await;
    f.store("files/a", "before").await.expect(200);
    let before = count(&disk.path);
    let large = vec![b'x'; 4 * 1024 * 1024];
    let form =
        [b"--x\r\ncontent-disposition: form-data; name=\"\"; filename=\"b\"\r\n\r\n", &large[..], b"\r\n--x--\r\n"]
            .concat();
    for request in [
        f.post("/object/files/b").body(large.clone()),
        f.put("/object/files/a").body(large),
        f.post("/object/files/b").header("content-type", "multipart/form-data; boundary=x").body(form),
    ] {
        let refused = f.service(request).send().await;
        assert_error(&refused, 507, "507", "InsufficientStorage", "There is no space left for the object");
        has_no_more_files(&disk.path, before).await;
    }
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
    assert_eq!(f.content("files/a").await, "before");
    f.store("files/b", "after").await.expect(200);
    assert_eq!(f.content("files/b").await, "after");
}

#[tokio::test]
async fn a_resumable_upload_without_space_goes_on_from_its_durable_bytes_when_there_is_space() {
    let disk = SmallDisk::mount();
    let f = Files::with(|settings| settings.backend = BackendSettings::Folder(disk.path.clone())).await;
    f.bucket("files", json!({})).await;
    f.store("files/other", &"x".repeat(1024 * 1024)).await.expect(200);
    let mut content = "0123456789abcdef".repeat(96 * 1024);
    content.push('!');
    let url = f.created("a", content.len()).await;
    let refused = f.service(f.patch(&url, 0, content.clone())).send().await;
    resumable::assert_refused(&refused, 507, "There is no space left for the object");
    let head = f.service(f.tus(Method::HEAD, &url)).send().await.expect(200);
    let offset: usize = head.header("upload-offset").unwrap().parse().unwrap();
    assert!(0 < offset && offset < content.len());
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);

    f.service(f.delete("/object/files/other")).send().await.expect(200);
    while disk.path.join("objects/files/other").exists() {
        tokio::task::yield_now().await;
    }
    let last = f.service(f.patch(&url, offset, content[offset..].to_owned())).send().await.expect(204);
    assert_eq!(last.header("tus-complete"), Some("1"));
    assert_eq!(f.content("files/a").await, content);
}

#[tokio::test]
async fn an_s3_upload_without_space_leaves_nothing_and_the_server_goes_on() {
    let disk = SmallDisk::mount();
    let f = s3::start_with(|settings| settings.backend = BackendSettings::Folder(disk.path.clone())).await;
    f.store("files/b", "before").await.expect(200);
    let before = count(&disk.path);
    let large = vec![b'x'; 4 * 1024 * 1024];
    for path in ["/files/b", "/files/c"] {
        let refused = Signed { body: large.clone(), ..request(Method::PUT, path) }.send(&f).await;
        s3::assert_refused(&refused, 507, "InsufficientStorage");
        has_no_more_files(&disk.path, before).await;
    }
    assert_eq!(f.content("files/b").await, "before");

    // An upload in parts, of which the version does not fit beside its part
    let upload = s3::begin(&f).await;
    let part = format!("partNumber=1&uploadId={upload}");
    let part = |size: usize| Signed { query: &part, body: vec![b'x'; size], ..request(Method::PUT, "/files/a") };
    s3::assert_refused(&part(4 * 1024 * 1024).send(&f).await, 507, "InsufficientStorage");
    has_no_more_files(&disk.path, before).await;
    let other = Signed { body: vec![b'y'; 700 * 1024], ..request(Method::PUT, "/files/other") };
    other.send(&f).await.expect(200);
    part(800 * 1024).send(&f).await.expect(200);
    let (query, etag) = (format!("uploadId={upload}"), s3::etag_of(&f, 1).await);
    let completion = s3::complete(&query, &[(1, &etag)]);
    s3::assert_refused(&completion.send(&f).await, 507, "InsufficientStorage");
    // It is completed once there is space
    request(Method::DELETE, "/files/other").send(&f).await.expect(204);
    while disk.path.join("objects/files/other").exists() {
        tokio::task::yield_now().await;
    }
    completion.send(&f).await.expect(200);
    assert_eq!(f.content("files/a").await.len(), 800 * 1024);
}

#[tokio::test]
async fn objects_can_be_deleted_from_a_full_disk() {
    let disk = SmallDisk::mount();
    let f = Files::with(|settings| settings.backend = BackendSettings::Folder(disk.path.clone())).await;
    f.bucket("files", json!({})).await;
    for name in ["a", "b", "c"] {
        f.store(&format!("files/{name}"), "content").await.expect(200);
    }
    let empty = f.post("/bucket/files/empty").json(&json!({}));
    let many = f.delete("/object/files").json(&json!({ "prefixes": ["b"] }));
    for (request, name) in [(f.delete("/object/files/a"), "a"), (many, "b"), (empty, "c")] {
        disk.fill();
        f.service(request).send().await.expect(200);
        while disk.path.join("objects/files").join(name).exists() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 0);
    f.has_journal_entries(0).await;
}
