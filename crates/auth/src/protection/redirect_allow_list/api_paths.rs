//! The paths of the server's own API, to which no browser is redirected.

use url::Url;

use super::target::RedirectTarget;

/// The origin and base path of the server's own services.
#[derive(Debug, Clone)]
pub(super) struct ApiPaths {
    origin: RedirectTarget,
    /// The path before those of the services, with `/` at its end.
    base: String,
}

impl ApiPaths {
    pub(super) fn new(external_url: &str) -> Option<Self> {
        let origin = RedirectTarget::parse(external_url).filter(RedirectTarget::is_web)?;
        let path = Url::parse(external_url).ok()?.path().trim_end_matches('/').to_owned();
        Some(Self { origin, base: format!("{}/", path.strip_suffix("/auth/v1").unwrap_or_default()) })
    }

    /// Returns true if the target is a path of the API, or could be read as one.
    pub(super) fn contains(&self, target: &RedirectTarget, url: &str) -> bool {
        let is_own_origin = target.is_web()
            && (target.host() == self.origin.host() || (target.is_this_machine() && self.origin.is_this_machine()))
            && (target.port() == self.origin.port() || (target.has_web_port() && self.origin.has_web_port()));
        // As browsers send it, without dot segments
        let Some(path) = Url::parse(url).ok().filter(|_| is_own_origin).map(|url| url.path().to_owned()) else {
            return false;
        };
        let path = percent_encoding::percent_decode_str(&path).decode_utf8_lossy().to_lowercase();
        let below_base = path.strip_prefix(&self.base.to_lowercase());
        below_base.into_iter().chain([&*path]).any(is_service_path)
    }
}

/// Returns true for `auth/v1/…`, `/rest-admin/v1`, `portico/google/…`: a segment and a version, or
/// a reserved name.
fn is_service_path(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let (first, second) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    let is_version = second
        .strip_prefix('v')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    is_version || matches!(first, "portico" | "pg" | "mcp" | ".well-known")
}
