//! The mark of another product: `[web.brand] mark` of the configuration as a file that the web app
//! shows.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

use anyhow::{Context, bail};
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use portico_gateway::{AccessRules, image_media_type};

use super::service::Service;

const PREFIX: &str = "/portico/brand";
/// The largest file, in bytes. A mark is shown at 26 pixels: a larger file was not made for the
/// web.
const MAX_BYTES: u64 = 512 * 1024;

/// An image that stands for the product, and the name under which the server serves it.
#[derive(Debug, Clone)]
pub struct Mark {
    name: String,
    media_type: &'static str,
    content: Bytes,
}

impl Mark {
    /// Reads the configured image. Without one the web app shows Portico's own mark.
    ///
    /// # Errors
    /// When the file cannot be read, is larger than 512 KiB, or is by its extension no image that
    /// browsers show.
    pub fn read(path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(|path| {
            Self::of(path).with_context(|| format!("[web.brand] mark in supabase/portico.toml: {}", path.display()))
        })
        .transpose()
    }

    fn of(path: &Path) -> anyhow::Result<Self> {
        let extension = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default().to_ascii_lowercase();
        let Some(media_type) = image_media_type(&extension) else {
            bail!("expected an image: .svg, .png, .webp, .avif, .jpg, .gif or .ico");
        };
        let size = std::fs::metadata(path)?.len();
        if size == 0 || size > MAX_BYTES {
            bail!("expected at most {} KiB and at least one byte, found {size} bytes", MAX_BYTES / 1024);
        }
        let content = Bytes::from(std::fs::read(path)?);
        // The name contains a hash of the content, so that browsers can cache it for ever
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Ok(Self { name: format!("mark-{:016x}.{extension}", hasher.finish()), media_type, content })
    }

    /// Returns the path at which the server serves the image.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{PREFIX}/{}", self.name)
    }

    /// Returns the route of the image.
    pub(super) fn service(self) -> Service {
        let Self { name, media_type, content } = self;
        let respond = async move || {
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
                (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
                (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
                // An SVG that is opened by itself is a document: it may have styles, and must not
                // run scripts
                (
                    header::CONTENT_SECURITY_POLICY,
                    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox"),
                ),
                (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
            ];
            (headers, content.clone()).into_response()
        };
        Service::new().mount(PREFIX, Router::new().route(&format!("/{name}"), get(respond)), AccessRules::open())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_named_by_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("Mark.SVG");
        std::fs::write(&file, "<svg xmlns='http://www.w3.org/2000/svg'/>").expect("writable");
        let read = || Mark::read(Some(&file)).expect("readable").expect("configured");
        let first = read();
        assert!(first.path().starts_with("/portico/brand/mark-") && first.path().ends_with(".svg"), "{}", first.path());
        assert_eq!((first.path(), first.media_type), (read().path(), "image/svg+xml"));
        std::fs::write(&file, "<svg xmlns='http://www.w3.org/2000/svg' width='1'/>").expect("writable");
        assert_ne!(first.path(), read().path());
        assert!(Mark::read(None).expect("nothing to read").is_none());
    }

    #[test]
    fn a_file_that_is_no_image_is_named_in_the_error() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content) in
            [("mark.html", "x".repeat(9)), ("mark.png", String::new()), ("big.png", "x".repeat(600_000))]
        {
            let file = folder.path().join(name);
            std::fs::write(&file, content).expect("writable");
            let error = format!("{:#}", Mark::read(Some(&file)).expect_err("no mark"));
            assert!(error.contains("[web.brand] mark") && error.contains(name), "{error}");
        }
        assert!(Mark::read(Some(&folder.path().join("absent.png"))).is_err());
    }
}
