//! The static files and their headers.

use portico_gateway::{AccessRules, WebApp, WebAppError};
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::json;

use crate::{Server, echo};

static FILES: &[(&str, &[u8])] = &[
    ("index.html", b"<!doctype html><title>Portico</title>"),
    ("index.html.br", b"index in brotli"),
    ("index.html.gz", b"index in gzip"),
    ("assets/app-abc123.js", b"console.log(1)"),
    ("assets/app-abc123.js.br", b"script in brotli"),
    ("assets/font-abc123.woff2", b"font"),
    ("favicon.svg", b"<svg/>"),
];

/// An application with a file for each page.
static PAGES: &[(&str, &[u8])] = &[
    ("index.html", b"start of <!--slot:name-->Portico<!--/slot-->"),
    ("index.html.br", b"index in brotli"),
    ("sign-in.html", b"sign in to <!--slot:name-->Portico<!--/slot-->"),
    ("app/security.html", b"security of <!--slot:name-->Portico<!--/slot-->"),
    ("404.html", b"no page of <!--slot:name-->Portico<!--/slot-->"),
];

async fn server() -> Server {
    Server::start(|gateway| {
        let app = WebApp::from_files(FILES).unwrap().with_config(&json!({ "anonKey": "k" }));
        gateway.web_app(app).mount("/auth/v1", echo(), AccessRules::keyed())
    })
    .await
}

struct PageResponse {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl PageResponse {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

async fn ask(server: &Server, method: Method, path: &str, headers: &[(&str, &str)]) -> PageResponse {
    let mut request = server.client.request(method, server.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    PageResponse {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        body: response.text().await.unwrap(),
    }
}

async fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> PageResponse {
    ask(server, Method::GET, path, headers).await
}

#[tokio::test]
async fn every_page_path_serves_the_index_and_is_revalidated() {
    let server = server().await;
    for path in ["/", "/index.html", "/app", "/sign-in?next=/app", "/deep/er/still", "/nowhere"] {
        let page = get(&server, path, &[("accept", "text/html"), ("sec-fetch-mode", "navigate")]).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.body.contains("<title>Portico</title>"));
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(page.header("cache-control"), "no-cache");
        assert_eq!(page.header("vary"), "Accept-Encoding");
    }
}

async fn server_of_pages() -> Server {
    Server::start(|gateway| {
        let app = WebApp::from_files(PAGES)
            .unwrap()
            .with_slots(&[("name", "Shop &amp; Co".to_owned())])
            .with_document("site.webmanifest", "{}".to_owned())
            .with_redirect("/.well-known/change-password", "/update-password");
        gateway.web_app(app).mount("/auth/v1", echo(), AccessRules::keyed())
    })
    .await
}

#[tokio::test]
async fn each_page_has_its_own_file_and_unknown_paths_have_the_status_404() {
    let server = server_of_pages().await;
    for (path, status, body) in [
        ("/", 200, "start of Shop &amp; Co"),
        ("/sign-in?next=/app", 200, "sign in to Shop &amp; Co"),
        ("/sign-in/", 200, "sign in to Shop &amp; Co"),
        ("/app/security", 200, "security of Shop &amp; Co"),
        ("/nope", 404, "no page of Shop &amp; Co"),
        ("/app", 404, "no page of Shop &amp; Co"),
    ] {
        let page = get(&server, path, &[("sec-fetch-mode", "navigate")]).await;
        assert_eq!((page.status, page.body.as_str()), (status, body), "{path}");
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(page.header("cache-control"), "no-cache");
        assert!(page.header("content-security-policy").contains("frame-ancestors 'none'"));
        // A page that does not exist is never "unchanged"
        let again = get(&server, path, &[("if-none-match", page.header("etag"))]).await;
        assert_eq!(again.status, if status == 200 { 304 } else { 404 }, "{path}");
    }
    // A page has one address
    assert_eq!(get(&server, "/sign-in.html", &[]).await.status, 404);
    assert_eq!(get(&server, "/nope", &[("sec-fetch-mode", "cors")]).await.body, "Not found\n");
}

#[tokio::test]
async fn a_filled_page_is_compressed_anew() {
    let server = server_of_pages().await;
    for encoding in ["br", "gzip"] {
        let page = get(&server, "/", &[("accept-encoding", encoding)]).await;
        assert_eq!((page.status, page.header("content-encoding")), (200, encoding));
        assert_ne!(page.body, "index in brotli");
    }
}

#[tokio::test]
async fn documents_and_redirects_of_the_web_app() {
    let server = server_of_pages().await;
    let manifest = get(&server, "/site.webmanifest", &[]).await;
    assert_eq!((manifest.status, manifest.body.as_str()), (200, "{}"));
    assert_eq!(manifest.header("content-type"), "application/manifest+json; charset=utf-8");
    let page = get(&server, "/.well-known/change-password", &[]).await;
    assert_eq!((page.status, page.header("location")), (302, "/update-password"));
    assert_eq!(get(&server, "/.well-known/other", &[("accept", "text/html")]).await.status, 404);
}

#[tokio::test]
async fn pages_run_under_a_strict_policy() {
    let server = server().await;
    let page = get(&server, "/", &[]).await;
    let policy = page.header("content-security-policy");
    for rule in [
        "default-src 'self'",
        "script-src 'self';",
        // Of the files of this origin, only those of the web app
        ", script-src *:*/assets/; style-src *:*/assets/",
        "worker-src 'none'",
        "style-src 'self';",
        "object-src 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "img-src 'self' data: blob: https:;",
    ] {
        assert!(policy.contains(rule), "{rule} is not in {policy}");
    }
    assert!(!policy.contains("unsafe"));
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "same-origin");
    assert_eq!(page.header("x-frame-options"), "DENY");
    assert!(page.header("permissions-policy").contains("camera=()"));
    // Over http a browser must not be bound to https
    assert_eq!(page.header("strict-transport-security"), "");
}

#[tokio::test]
async fn responses_behind_https_set_strict_transport_security() {
    let server = Server::start(|gateway| {
        gateway.https(true).web_app(WebApp::from_files(FILES).unwrap()).mount("/auth/v1", echo(), AccessRules::open())
    })
    .await;
    for path in ["/", "/auth/v1/user"] {
        assert_eq!(get(&server, path, &[]).await.header("strict-transport-security"), "max-age=31536000");
    }
    assert!(get(&server, "/", &[]).await.header("content-security-policy").contains("upgrade-insecure-requests"));
}

#[tokio::test]
async fn hashed_assets_are_cached_for_ever_and_others_for_an_hour() {
    let server = server().await;
    let script = get(&server, "/assets/app-abc123.js", &[]).await;
    assert_eq!(script.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!(script.header("content-type"), "text/javascript; charset=utf-8");
    assert_eq!(script.header("x-content-type-options"), "nosniff");
    assert_eq!(get(&server, "/favicon.svg", &[]).await.header("cache-control"), "public, max-age=3600");
}

#[tokio::test]
async fn a_file_has_the_encoding_that_the_client_prefers() {
    let server = server().await;
    for (accepted, encoding, body) in [
        ("gzip, deflate, br", "br", "index in brotli"),
        ("gzip", "gzip", "index in gzip"),
        ("br;q=0.1, gzip;q=0.9", "gzip", "index in gzip"),
        ("identity", "", "<!doctype html><title>Portico</title>"),
        ("br;q=0", "", "<!doctype html><title>Portico</title>"),
    ] {
        let page = get(&server, "/", &[("accept-encoding", accepted)]).await;
        assert_eq!((page.header("content-encoding"), page.body.as_str()), (encoding, body), "{accepted}");
        assert_eq!(page.header("content-length"), body.len().to_string());
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    }
    // A file in one encoding only is served in that one
    let font = get(&server, "/assets/font-abc123.woff2", &[("accept-encoding", "br, gzip")]).await;
    assert_eq!((font.header("content-encoding"), font.body.as_str()), ("", "font"));
    let script = get(&server, "/assets/app-abc123.js", &[("accept-encoding", "gzip, br")]).await;
    assert_eq!(script.header("content-encoding"), "br");
}

#[tokio::test]
async fn a_cached_file_is_not_sent_again() {
    let server = server().await;
    let first = get(&server, "/", &[("accept-encoding", "br")]).await;
    let tag = first.header("etag").to_owned();
    assert!(tag.starts_with('"') && tag.ends_with("-br\""));
    let again = get(&server, "/", &[("accept-encoding", "br"), ("if-none-match", &tag)]).await;
    assert_eq!((again.status, again.body.as_str(), again.header("etag")), (304, "", tag.as_str()));
    assert_eq!(again.header("cache-control"), "no-cache");
    // Another encoding is another content
    assert_eq!(get(&server, "/", &[("accept-encoding", "gzip"), ("if-none-match", &tag)]).await.status, 200);
}

#[tokio::test]
async fn missing_files_and_script_requests_get_no_page() {
    let server = server().await;
    for path in ["/assets/gone-000.js", "/app/x.png", "/index.html.br", "/..%2f..%2fetc/passwd", "/a/%2e%2e/b.txt"] {
        let response = get(&server, path, &[("accept", "text/html")]).await;
        assert_eq!(response.status, 404, "{path}");
        assert!(!response.body.contains("Portico"));
        assert_eq!(response.header("cache-control"), "no-store");
    }
    assert_eq!(get(&server, "/app", &[("sec-fetch-mode", "cors")]).await.status, 404);
    // Paths of services are never pages
    let response = get(&server, "/rest/v1/todos", &[("accept", "text/html")]).await;
    assert_eq!((response.status, response.header("content-type")), (404, "application/json; charset=utf-8"));
    let response = ask(&server, Method::POST, "/app", &[]).await;
    assert_eq!((response.status, response.header("allow")), (405, "GET, HEAD"));
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let server = server().await;
    let head = ask(&server, Method::HEAD, "/assets/app-abc123.js", &[]).await;
    assert_eq!((head.status, head.body.as_str(), head.header("content-length")), (200, "", "14"));
    assert!(!head.header("etag").is_empty());
}

#[tokio::test]
async fn the_page_can_read_its_configuration() {
    let server = server().await;
    let config = get(&server, "/portico/config.json", &[("sec-fetch-mode", "cors")]).await;
    assert_eq!((config.status, config.body.as_str()), (200, r#"{"anonKey":"k"}"#));
    assert_eq!(config.header("content-type"), "application/json; charset=utf-8");
    assert_eq!(config.header("cache-control"), "no-cache");
    let tag = config.header("etag").to_owned();
    assert_eq!(get(&server, "/portico/config.json", &[("if-none-match", &tag)]).await.status, 304);
}

#[tokio::test]
async fn a_folder_is_served_in_its_present_state() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    assert!(matches!(WebApp::from_dir(folder.path()), Err(WebAppError::NoIndex(_))));
    write("index.html", "one");
    write("index.html.gz", "one in gzip");
    std::fs::create_dir(folder.path().join("assets")).unwrap();
    let server = Server::start(|gateway| gateway.web_app(WebApp::from_dir(folder.path()).unwrap())).await;

    let first = get(&server, "/app", &[]).await;
    assert_eq!((first.status, first.body.as_str(), first.header("content-length")), (200, "one", "3"));
    assert_eq!(get(&server, "/", &[("accept-encoding", "gzip")]).await.header("content-encoding"), "gzip");
    let tag = first.header("etag").to_owned();
    assert_eq!(get(&server, "/", &[("if-none-match", &tag)]).await.status, 304);

    write("index.html", "second");
    let second = get(&server, "/", &[("if-none-match", &tag)]).await;
    assert_eq!((second.status, second.body.as_str()), (200, "second"));
    // A folder is not a file
    assert_eq!(get(&server, "/assets", &[]).await.body, "second");
    assert_eq!(get(&server, "/..%2f", &[]).await.status, 404);
}

#[test]
fn a_malformed_origin_for_the_policy_is_rejected() {
    let app = WebApp::from_files(FILES).unwrap();
    assert!(app.clone().allow_origin("https://eu.posthog.com").is_ok());
    assert!(matches!(app.allow_origin("https://x; script-src *"), Err(WebAppError::Origin(_))));
}
