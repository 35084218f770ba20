//! The content of a test's server: a bucket of an independent S3 server (moto), one server for all
//! tests.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use portico_base::Secret;
use portico_storage::{BackendSettings, S3StoreCredentials, S3StoreKey, S3StoreSettings, StorageSettings};
use reqwest::{Method, Response};

/// The program of the server. It ends with its input, so with the tests.
const SERVER: &str = "import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
print('http://%s:%d' % server.get_host_and_port(), flush=True)
sys.stdin.read()
";

/// The header that makes a request one of the owner. The server does not check signatures.
const OWNER: &str =
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";

/// Returns the URL of the server.
pub fn server_url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../node_modules/.portico/moto");
        let server = Command::new("python3")
            .args(["-c", SERVER])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut server = server.expect("python3 is installed");
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("http"), "moto is missing: `scripts/setup test` installs it");
        // Its input stays open as long as this process lives
        std::mem::forget(server);
        line.trim().to_owned()
    })
}

/// The bucket of a test's server.
pub struct Place {
    bucket: String,
    http: reqwest::Client,
    /// The folder with the journal.
    folder: PathBuf,
}

impl Place {
    /// True if other servers may have content there.
    pub const IS_SHARED: bool = true;

    /// Makes a bucket and writes it into the settings.
    pub async fn prepare(settings: &mut StorageSettings) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let bucket = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = settings.backend.folder().to_owned();
        let credentials = S3StoreCredentials::Key(S3StoreKey {
            access_key_id: "test".into(),
            secret_access_key: Secret::new("test-secret"),
            session_token: None,
        });
        let store = S3StoreSettings {
            endpoint: Some(server_url().to_owned()),
            prefix: "project".into(),
            path_style: true,
            part_size: 5 * 1024 * 1024,
            ..S3StoreSettings::new(&bucket, "us-east-1", credentials)
        };
        settings.backend = BackendSettings::S3 { store, folder: folder.clone() };
        let place = Self { bucket, http: reqwest::Client::new(), folder };
        place.send(Method::PUT, "", "").await;
        place
    }

    async fn send(&self, method: Method, path: &str, body: &str) -> Response {
        let url = format!("{}/{}{path}", server_url(), self.bucket);
        let request = self.http.request(method, url).header("authorization", OWNER).body(body.to_owned());
        request.send().await.unwrap().error_for_status().unwrap()
    }

    /// Returns the number of objects, of uploads in progress, and of files of the journal.
    pub async fn count(&self) -> usize {
        let uploads = self.send(Method::GET, "?uploads", "").await.text().await.unwrap();
        self.paths().await.len() + uploads.matches("<UploadId>").count() + count(&self.folder)
    }

    /// Returns the paths of all content: `<bucket>/<name>/<version>`.
    pub async fn paths(&self) -> Vec<String> {
        let listed = self.send(Method::GET, "?list-type=2", "").await.text().await.unwrap();
        assert!(!listed.contains("<IsTruncated>true"), "a test has few objects");
        let keys = listed.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap());
        // The mark of an upload in parts is no content
        let keys = keys.filter(|key| !key.contains("/%parts/") || !key.ends_with("/upload"));
        keys.map(|key| key.strip_prefix("project/").unwrap().to_owned()).collect()
    }

    /// Returns content.
    pub async fn read(&self, path: &str) -> Vec<u8> {
        self.send(Method::GET, &format!("/project/{path}"), "").await.bytes().await.unwrap().to_vec()
    }

    /// Stores content past the service.
    pub async fn write(&self, path: &str, content: &str) {
        self.send(Method::PUT, &format!("/project/{path}"), content).await;
    }

    /// Deletes content past the service.
    pub async fn remove(&self, path: &str) {
        self.send(Method::DELETE, &format!("/project/{path}"), "").await;
    }

    /// Leaves the object of a process that crashed during an upload.
    pub async fn interrupt_upload(&self) {
        let path = "/project/files/gone/00000000-0000-4000-8000-000000000003";
        let begun = self.send(Method::POST, &format!("{path}?uploads"), "").await.text().await.unwrap();
        let (_, id) = begun.split_once("<UploadId>").unwrap();
        let id = id.split('<').next().unwrap();
        self.send(Method::PUT, &format!("{path}?partNumber=1&uploadId={id}"), "half").await;
    }
}

/// Returns the number of files below a folder. Those of closed entries of the journal, which are
/// used again, do not count.
pub fn count(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let is_journal = folder.ends_with("journal");
    let is_closed = |file: &Path| is_journal && std::fs::read(file).is_ok_and(|text| text.starts_with(b"-"));
    let count_of = |path: PathBuf| if path.is_dir() { count(&path) } else { usize::from(!is_closed(&path)) };
    entries.flatten().map(|entry| count_of(entry.path())).sum()
}
