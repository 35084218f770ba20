//! A disk without space: the error, and what is left.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use portico_storage::BackendSettings;
use serde_json::json;
use tempfile::TempDir;

use crate::helper::{Files, assert_error};
use crate::place::count;

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
        let mut answer = [0; 8];
        let mounted = process.stdout.as_mut().unwrap().read_exact(&mut answer);
        mounted.expect("this machine must permit user namespaces, for a disk that can be filled");
        let path = Path::new("/proc").join(process.id().to_string()).join("root");
        let path = path.join(folder.path().strip_prefix("/").unwrap());
        Self { process, path, _folder: folder }
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
        while count(&disk.path) > before {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(f.t.count("select count(*) from storage.objects").await, 1);
    assert_eq!(f.content("files/a").await, "before");
    f.store("files/b", "after").await.expect(200);
    assert_eq!(f.content("files/b").await, "after");
}
