//! The callers of a test and the requests that many tests send.

use futures_util::StreamExt;
use portico_storage::StorageSettings;
use portico_testkit::{Member, Request, TestResponse, TestServer};
use serde_json::{Value, json};

use super::place::{Place, count};

/// A server with the storage service.
pub struct Files {
    pub t: TestServer,
    pub place: Place,
}

/// The policies that give every user the folder of its own id in every bucket.
pub const OWN_FOLDER: &str = "
    create policy own_select on storage.objects for select to authenticated using ((storage.foldername(name))[1] = (select auth.uid())::text);
    create policy own_insert on storage.objects for insert to authenticated with check ((storage.foldername(name))[1] = (select auth.uid())::text);
    create policy own_update on storage.objects for update to authenticated using ((storage.foldername(name))[1] = (select auth.uid())::text);
    create policy own_delete on storage.objects for delete to authenticated using ((storage.foldername(name))[1] = (select auth.uid())::text)";

impl Files {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut StorageSettings)) -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut settings = StorageSettings::in_folder(files.path());
        let place = Place::prepare(&mut settings).await;
        // However busy the machine is
        settings.look_up_patience = std::time::Duration::from_secs(60);
        change(&mut settings);
        Self { t: TestServer::with_storage_in(files, settings).await, place }
    }

    /// Starts a server with the private bucket `files` and the public one `site`.
    pub async fn with_buckets() -> Self {
        let files = Self::start().await;
        files.bucket("files", json!({})).await;
        files.bucket("site", json!({ "public": true })).await;
        files
    }

    /// Adds the token of the service.
    pub fn service(&self, request: Request) -> Request {
        request.bearer(self.t.api_keys().service_role_jwt())
    }

    /// Adds the token of a visitor.
    pub fn anon(&self, request: Request) -> Request {
        request.bearer(self.t.api_keys().anon_jwt())
    }

    pub fn get(&self, path: &str) -> Request {
        self.t.get(&format!("/storage/v1{path}"))
    }

    pub fn post(&self, path: &str) -> Request {
        self.t.post(&format!("/storage/v1{path}"))
    }

    pub fn put(&self, path: &str) -> Request {
        self.t.put(&format!("/storage/v1{path}"))
    }

    pub fn delete(&self, path: &str) -> Request {
        self.t.delete(&format!("/storage/v1{path}"))
    }

    pub fn head(&self, path: &str) -> Request {
        self.t.request(http::Method::HEAD, &format!("/storage/v1{path}"))
    }

    /// Creates a bucket as the service.
    pub async fn bucket(&self, name: &str, mut options: Value) {
        options["name"] = name.into();
        self.service(self.post("/bucket").json(&options)).send().await.expect(200);
    }

    /// Stores a text as the service.
    pub async fn store(&self, path: &str, content: &str) -> TestResponse {
        let request = self.post(&format!("/object/{path}")).header("content-type", "text/plain");
        self.service(request.body(content.to_owned())).send().await
    }

    /// Returns the content of an object as the service reads it.
    pub async fn content(&self, path: &str) -> String {
        self.service(self.get(&format!("/object/{path}"))).send().await.expect(200).text()
    }

    /// Returns the number of files and objects at the place of the content, whatever they are.
    pub async fn file_count(&self) -> usize {
        self.place.count().await
    }

    /// Returns the paths of the content of one object.
    pub async fn versions(&self, object: &str) -> Vec<String> {
        let is_version = |path: &String| path.rsplit_once('/').is_some_and(|(folder, _)| folder == object);
        self.place.paths().await.into_iter().filter(is_version).collect()
    }

    /// Returns the number of entries of the journal.
    pub fn journal_entries(&self) -> usize {
        count(&self.t.files().join("journal"))
    }

    /// Waits until the journal has this number of entries.
    pub async fn has_journal_entries(&self, wanted: usize) {
        self.settles(async || self.journal_entries() == wanted).await;
    }

    /// Waits until a session waits for a lock that the superuser's session holds.
    pub async fn waits_for_lock(&self) {
        let waiting =
            "select count(*) from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))";
        self.settles(async || self.t.count(waiting).await > 0).await;
    }

    /// Returns the statements that take and return the lock of an object's writers.
    pub fn lock_of(object: &str) -> (String, String) {
        let key = format!("hashtextextended('{object}', 0)");
        (format!("select pg_advisory_lock({key})"), format!("select pg_advisory_unlock({key})"))
    }

    /// Sends a request, and runs statements of the superuser while it waits for a lock of that
    /// session.
    pub async fn send_during(&self, request: Request, statements: &str) -> TestResponse {
        let during = async {
            self.waits_for_lock().await;
            self.t.execute(statements).await;
        };
        tokio::join!(request.send(), during).0
    }

    async fn settles(&self, is_settled: impl AsyncFn() -> bool) {
        let settled = async {
            while !is_settled().await {
                tokio::task::yield_now().await;
            }
        };
        let outcome = tokio::time::timeout(std::time::Duration::from_secs(30), settled).await;
        assert!(outcome.is_ok(), "{} files: {:?}", self.file_count().await, self.place.paths().await);
    }

    /// Waits until the place of the content has this number of files: content that is no longer
    /// used is deleted after the response.
    pub async fn has_files(&self, wanted: usize) {
        self.settles(async || self.file_count().await == wanted).await;
    }
}

/// Asserts that a response is an error of the service: nearly every one has the HTTP status 400.
#[track_caller]
pub fn assert_error(response: &TestResponse, http: u16, status: &str, code: &str, message: &str) {
    let body = response.json();
    let seen = (response.status, body["statusCode"].as_str(), body["code"].as_str(), body["message"].as_str());
    assert_eq!(seen, (http, Some(status), Some(code), Some(message)), "{response:?}");
}

/// Returns the folder of a member and a path in it.
pub fn own(member: &Member<'_>, name: &str) -> String {
    format!("{}/{name}", member.id())
}

/// Returns a body without a declared length.
pub fn streamed(chunks: impl futures_util::Stream<Item = Vec<u8>> + Send + Sync + 'static) -> reqwest::Body {
    let frames =
        chunks.map(|chunk| Ok::<_, std::convert::Infallible>(http_body::Frame::data(bytes::Bytes::from(chunk))));
    reqwest::Body::wrap(http_body_util::StreamBody::new(frames))
}
