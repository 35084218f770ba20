//! The static files of the web app, and the rules under which a browser runs them.
//!
//! Promises: only files of the set or folder are served; hashed assets may be cached for ever,
//! pages are revalidated each time; a file that the browser has is not sent again. A path without
//! an extension is a page: `/sign-in` is the file `sign-in.html`, and an unknown path is `404.html`
//! with that status. An application without `404.html` routes unknown paths itself, in
//! `index.html`.

mod asset;
mod filled_page;
mod policy;
mod slots;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;

use crate::request::encoding::{self, Encoding};
use crate::request::rejection::Rejection;
use asset::{Asset, AssetContent, AssetSource, Document};
use filled_page::FilledPage;

/// The path of the page's configuration.
const CONFIG_PATH: &str = "portico/config.json";
const INDEX: &str = "index.html";
/// The page of unknown paths.
const NOT_FOUND: &str = "404.html";

/// The static files of the web app.
#[derive(Debug, Clone)]
pub struct WebApp {
    source: Arc<AssetSource>,
    /// Files that are made when the server starts, by path. They come before those of the source.
    documents: HashMap<String, Arc<Document>>,
    /// Pages that are filled in when the server starts, by path. They come before those of the
    /// source.
    pages: HashMap<&'static str, Arc<FilledPage>>,
    /// The targets of redirects, by path.
    redirects: HashMap<&'static str, HeaderValue>,
    development: bool,
    origins: Vec<String>,
    /// The headers of pages; set by `seal`.
    page_headers: HeaderMap,
}

/// The reasons for which a web app cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebAppError {
    /// There is no `index.html`.
    #[error("{0} has no index.html: build the web app first (make build)")]
    NoIndex(String),
    /// An origin for the content security policy is malformed.
    #[error("{0:?} is not an origin like https://example.com")]
    Origin(String),
}

impl WebApp {
    /// Serves embedded files: paths without a leading slash (`"index.html"`), and their content.
    /// Siblings that end in `.br` and `.gz` are precompressed forms.
    pub fn from_files(files: &'static [(&'static str, &'static [u8])]) -> Result<Self, WebAppError> {
        Self::new(AssetSource::embedded(files)).ok_or_else(|| WebAppError::NoIndex("the program".to_owned()))
    }

    /// Serves the files of a folder. They are read at each request, so a new build shows at once.
    pub fn from_dir(folder: impl Into<PathBuf>) -> Result<Self, WebAppError> {
        let folder = folder.into();
        let name = folder.display().to_string();
        Self::new(AssetSource::Folder(folder)).ok_or(WebAppError::NoIndex(name))
    }

    fn new(source: AssetSource) -> Option<Self> {
        source.has_index().then(|| Self {
            source: Arc::new(source),
            documents: HashMap::new(),
            pages: HashMap::new(),
            redirects: HashMap::new(),
            development: false,
            origins: Vec::new(),
            page_headers: HeaderMap::new(),
        })
    }

    /// Sets the document at `/portico/config.json`, which the page reads when it starts. It is
    /// public.
    #[must_use]
    pub fn with_config(self, config: &Value) -> Self {
        self.with_document(CONFIG_PATH, config.to_string())
    }

    /// Adds a file, by its path without a leading slash.
    #[must_use]
    pub fn with_document(mut self, path: &str, content: String) -> Self {
        self.documents.insert(path.to_owned(), Arc::new(Document::new(content.into())));
        self
    }

    /// Redirects a path to another one. A target that cannot be a header's value is ignored.
    #[must_use]
    pub fn with_redirect(mut self, path: &'static str, target: &str) -> Self {
        if let Ok(target) = HeaderValue::from_str(target) {
            self.redirects.insert(path, target);
        }
        self
    }

    /// Replaces the content of slots, such as `<!--slot:name-->Portico<!--/slot-->`, in every
    /// embedded page. The content is HTML. Pages of a folder keep the default content.
    #[must_use]
    pub fn with_slots(mut self, slots: &[(&str, String)]) -> Self {
        for (path, page) in self.source.pages() {
            self.pages.insert(path, Arc::new(FilledPage::new(slots::filled(page, slots))));
        }
        self
    }

    /// Allows the page to connect to, frame and show images of every port of this machine (mailbox,
    /// emulators). Never outside development.
    #[must_use]
    pub fn development(mut self, development: bool) -> Self {
        self.development = development;
        self
    }

    /// Allows the page to load scripts from, frame and connect to `origin`
    /// (`https://eu.posthog.com`): for an analytics adapter, a captcha, or an API on another
    /// origin.
    pub fn allow_origin(mut self, origin: &str) -> Result<Self, WebAppError> {
        if !policy::is_origin(origin) {
            return Err(WebAppError::Origin(origin.to_owned()));
        }
        self.origins.push(origin.trim_end_matches('/').to_owned());
        Ok(self)
    }

    /// Computes the headers once all settings are known.
    pub(crate) fn seal(mut self, https: bool) -> Self {
        self.page_headers = policy::page_headers(&self.source.scripts(), &self.origins, self.development, https);
        self
    }

    /// Responds to a request to a path without a service.
    pub(crate) async fn respond(&self, request: Request) -> Response {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Rejection::MethodNotAllowed.response();
        }
        if let Some(target) = self.redirects.get(request.uri().path()) {
            return redirect(target.clone());
        }
        let mut response = match self.find(request.uri().path(), request.headers()).await {
            Some(found) => found.render(request.headers()),
            None => {
                let mut response = Response::new(Body::from("Not found\n"));
                *response.status_mut() = StatusCode::NOT_FOUND;
                let headers = response.headers_mut();
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
                headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
                response
            }
        };
        let is_page =
            response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/html"));
        if is_page {
            response.headers_mut().extend(self.page_headers.clone());
        }
        policy::harden(response.headers_mut());
        if request.method() == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        response
    }

    async fn find(&self, path: &str, headers: &HeaderMap) -> Option<FoundAsset> {
        let path = clean(path)?;
        let path = if path.is_empty() { INDEX.to_owned() } else { path };
        let accepted = encoding::accepted(headers.get_all(header::ACCEPT_ENCODING));
        let is_page = !path.rsplit('/').next().unwrap_or_default().contains('.');
        if !is_page {
            // The other pages have addresses without an extension
            return if path == INDEX || !path.ends_with(".html") { self.load(&path, &accepted).await } else { None };
        }
        if let Some(found) = self.load(&path, &accepted).await {
            return Some(found);
        }
        if is_fetch(headers) {
            return None;
        }
        if let Some(page) = self.load(&format!("{}.html", path.trim_end_matches('/')), &accepted).await {
            return Some(page);
        }
        match self.load(NOT_FOUND, &accepted).await {
            Some(page) => Some(FoundAsset { status: StatusCode::NOT_FOUND, ..page }),
            None => self.load(INDEX, &accepted).await,
        }
    }

    /// Returns a file in the encoding that the client prefers.
    async fn load(&self, path: &str, accepted: &[Encoding]) -> Option<FoundAsset> {
        // The precompressed forms are not files of their own
        if Encoding::of_path(path) != Encoding::Identity {
            return None;
        }
        for encoding in accepted.iter().copied().chain([Encoding::Identity]) {
            if let Some(asset) = self.load_encoded(path, encoding).await {
                return Some(FoundAsset { asset, path: path.to_owned(), encoding, status: StatusCode::OK });
            }
        }
        None
    }

    async fn load_encoded(&self, path: &str, encoding: Encoding) -> Option<Asset> {
        // Encodings of the source are encodings of another content
        if let Some(document) = self.documents.get(path) {
            return (encoding == Encoding::Identity).then(|| document.asset(encoding));
        }
        match self.pages.get(path) {
            Some(page) => page.load(encoding).await,
            None => self.source.load(path, encoding).await,
        }
    }
}

fn redirect(target: HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, target);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

struct FoundAsset {
    asset: Asset,
    path: String,
    encoding: Encoding,
    status: StatusCode,
}

impl FoundAsset {
    fn render(self, asked: &HeaderMap) -> Response {
        let tag = self.asset.tag.clone();
        let unchanged = self.status == StatusCode::OK
            && asked.get_all(header::IF_NONE_MATCH).iter().any(|value| matches(value, &tag));
        let length = self.asset.length();
        let mut response = if unchanged {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            let body = match self.asset.content {
                AssetContent::Memory(bytes) => Body::from(bytes),
                AssetContent::File(file, _) => Body::from_stream(tokio_util::io::ReaderStream::new(file)),
            };
            let mut response = Response::new(body);
            *response.status_mut() = self.status;
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            if let Some(name) = self.encoding.name() {
                response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(name));
            }
            response
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(&self.path)));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control(&self.path)));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }
}

/// Returns the file name for a request path: decoded, without the leading slash. `None`: no file
/// can have it.
fn clean(path: &str) -> Option<String> {
    let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    let path = path.trim_start_matches('/');
    let harmless = |segment: &str| segment != ".." && segment != "." && !segment.contains(['\\', '\0', ':']);
    path.split('/').all(harmless).then(|| path.to_owned())
}

/// Returns true if a script sends the request, not a user who navigates to a page. Old browsers and
/// tools do not say.
fn is_fetch(headers: &HeaderMap) -> bool {
    headers.get("sec-fetch-mode").is_some_and(|mode| mode != "navigate")
}

/// Compares entity tags weakly (RFC 9110, 13.1.2).
fn matches(value: &HeaderValue, tag: &str) -> bool {
    let value = value.to_str().unwrap_or_default();
    value == "*" || value.split(',').any(|entry| entry.trim().trim_start_matches("W/") == tag)
}

/// Returns the `Cache-Control` of a file. The bundler names files in `assets/` by their content.
fn cache_control(path: &str) -> &'static str {
    if path.starts_with("assets/") {
        "public, max-age=31536000, immutable"
    } else if Path::new(path).extension().is_some_and(|kind| kind == "html" || kind == "json") {
        "no-cache"
    } else {
        "public, max-age=3600"
    }
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json; charset=utf-8",
        "webmanifest" => "application/manifest+json; charset=utf-8",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        "xml" => "application/xml; charset=utf-8",
        "pdf" => "application/pdf",
        extension => image_media_type(extension).unwrap_or("application/octet-stream"),
    }
}

/// Returns the media type of an image that browsers show, by the extension of its name in lower
/// case; `None` for other extensions.
pub fn image_media_type(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "gif" => "image/gif",
        "ico" => "image/x-icon",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_never_leaves_the_folder() {
        for bad in ["/../x", "/a/../x", "/a/%2e%2e/x", "/..%2fx", "/a\\..\\x", "/a%00", "/c:/x", "/%ff", "/./x"] {
            assert_eq!(clean(bad), None, "{bad}");
        }
        assert_eq!(clean("/").as_deref(), Some(""));
        assert_eq!(clean("/assets/a%20b.js").as_deref(), Some("assets/a b.js"));
    }

    proptest! {
        #[test]
        fn no_path_ever_leaves_the_folder(path in "\\PC{0,40}") {
            if let Some(path) = clean(&path) {
                let inside = Path::new(&path).components().all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(inside, "{path}");
            }
        }
    }

    #[test]
    fn tags_are_compared_weakly() {
        let value = |text: &'static str| HeaderValue::from_static(text);
        assert!(matches(&value("\"a\""), "\"a\""));
        assert!(matches(&value("W/\"a\", \"b\""), "\"a\""));
        assert!(matches(&value("*"), "\"a\""));
        assert!(!matches(&value("\"ab\""), "\"a\""));
    }
}
