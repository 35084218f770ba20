//! The security headers of pages and files.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Returns true if `text` is `scheme://host[:port]` and can be part of a content security policy.
pub(super) fn is_origin(text: &str) -> bool {
    let text = text.trim_end_matches('/');
    let Ok(url) = url::Url::parse(text) else {
        return false;
    };
    matches!(url.scheme(), "https" | "http" | "wss" | "ws")
        && url.host_str().is_some_and(|host| !host.is_empty())
        // Nothing may follow the host. Compared as text, since a policy is text
        && text.split_once("://").is_some_and(|(_, host)| {
            host.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b':' | b'[' | b']'))
        })
}

/// Returns the headers of every page. `scripts` are those beside the pages; all others of the web
/// app are in `/assets/`.
pub(super) fn page_headers(scripts: &[String], origins: &[String], development: bool, https: bool) -> HeaderMap {
    let local = if development { " http://127.0.0.1:* http://localhost:*" } else { "" };
    let others: String = origins.iter().map(|origin| format!(" {origin}")).collect();
    let upgrade = if https { "; upgrade-insecure-requests" } else { "" };
    // Identity providers keep profile pictures at any host
    let policy = format!(
        "default-src 'self'; script-src 'self'{others}; style-src 'self'; font-src 'self'; \
         img-src 'self' data: blob: https:{local}; connect-src 'self'{others}{local}; \
         frame-src 'self'{others}{local}; worker-src 'none'; manifest-src 'self'; object-src 'none'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'{upgrade}"
    );
    // Users store files on this origin, which must not run as its scripts or format its pages. A
    // source with a path names a host, and the server has several: so a second policy, which holds
    // beside the first one, names the path at any host
    let scripts: String = scripts.iter().map(|name| format!(" *:*/{name}")).collect();
    let policy = format!("{policy}, script-src *:*/assets/{scripts}{others}; style-src *:*/assets/");
    let mut headers = HeaderMap::new();
    // The origins are checked, so the text is a valid header value
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static(
            "accelerometer=(), camera=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), \
             payment=(), usb=(), publickey-credentials-get=(self), publickey-credentials-create=(self)",
        ),
    );
    // A sign-in window of a provider may talk to the page that opened it; windows of other origins
    // may not
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin-allow-popups"),
    );
    headers
}

/// Adds the headers of every file.
pub(super) fn harden(headers: &mut HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Addresses of pages carry one-time codes: they go to this server at most
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_origins_get_into_the_policy() {
        for good in ["https://eu.posthog.com", "https://example.com/", "http://127.0.0.1:54321", "wss://[::1]:8080"] {
            assert!(is_origin(good), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "https://a.b/path",
            "https://a.b; script-src *",
            "javascript:alert(1)",
            "https://*",
            "https://a b",
        ] {
            assert!(!is_origin(bad), "{bad}");
        }
    }

    #[test]
    fn other_origins_and_ports_of_this_machine_are_open_only_when_asked_for() {
        let policy = |origins: &[String], development| {
            let headers = page_headers(&["theme.js".to_owned()], origins, development, false);
            headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned()
        };
        let strict = policy(&[], false);
        assert!(strict.contains("script-src 'self';"));
        assert!(strict.contains("frame-ancestors 'none'"));
        assert!(strict.contains("require-trusted-types-for 'script'"));
        assert!(strict.ends_with(", script-src *:*/assets/ *:*/theme.js; style-src *:*/assets/"));
        assert!(!strict.contains("unsafe") && !strict.contains("http:") && !strict.contains("127.0.0.1"));
        let open = policy(&["https://p.example".to_owned()], true);
        assert!(open.contains("script-src 'self' https://p.example;"));
        assert!(open.contains(", script-src *:*/assets/ *:*/theme.js https://p.example;"));
        assert!(open.contains("connect-src 'self' https://p.example http://127.0.0.1:* http://localhost:*;"));
    }
}
