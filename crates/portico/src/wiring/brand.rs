//! The mark of another product: `[web.brand] mark` as a file that the page can show.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::Path;

use anyhow::{Context, bail};
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use portico_gateway::Access;

use crate::Mount;

const PREFIX: &str = "/portico/brand";
/// A mark is shown at 26 pixels; what is larger than this was not made for the web.
const LARGEST: u64 = 512 * 1024;

/// An image that stands for the product, and where the server shows it.
#[derive(Debug, Clone)]
pub struct Mark {
    name: String,
    kind: &'static str,
    content: Bytes,
}

impl Mark {
    /// Reads the configured image, once. Nothing is configured: nothing is shown but our own arch.
    ///
    /// # Errors
    /// When the file can not be read, is larger than 512 KiB, or its name ends like no image a browser shows.
    pub fn read(path: Option<&Path>) -> anyhow::Result<Option<Self>> {
        path.map(|path| {
            Self::of(path).with_context(|| format!("[web.brand] mark in supabase/portico.toml: {}", path.display()))
        })
        .transpose()
    }

    fn of(path: &Path) -> anyhow::Result<Self> {
        let extension = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default().to_ascii_lowercase();
        let kind = match extension.as_str() {
            "svg" => "image/svg+xml",
            "png" => "image/png",
            "jpg" | "jpeg" => "image/jpeg",
            "webp" => "image/webp",
            "avif" => "image/avif",
            "gif" => "image/gif",
            "ico" => "image/x-icon",
            _ => bail!("expected an image: .svg, .png, .webp, .avif, .jpg, .gif or .ico"),
        };
        let size = std::fs::metadata(path)?.len();
        if size == 0 || size > LARGEST {
            bail!("expected at most {} KiB and at least one byte, found {size} bytes", LARGEST / 1024);
        }
        let content = Bytes::from(std::fs::read(path)?);
        // Named by its content, so that browsers keep it until it changes
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Ok(Self { name: format!("mark-{:016x}.{extension}", hasher.finish()), kind, content })
    }

    /// The path at which pages find it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{PREFIX}/{}", self.name)
    }

    /// What answers at that path.
    #[must_use]
    pub fn mount(self) -> Mount {
        let Self { name, kind, content } = self;
        let answer = async move || {
            let headers = [
                (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
                (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
                (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
                // Opened by itself an SVG is a document: it may look as it likes and do nothing
                (
                    header::CONTENT_SECURITY_POLICY,
                    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox"),
                ),
                (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
            ];
            (headers, content.clone()).into_response()
        };
        Mount {
            prefix: PREFIX.to_owned(),
            router: Router::new().route(&format!("/{name}"), get(answer)),
            access: Access::open(),
        }
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
        assert_eq!((first.path(), first.kind), (read().path(), "image/svg+xml"));
        std::fs::write(&file, "<svg xmlns='http://www.w3.org/2000/svg' width='1'/>").expect("writable");
        assert_ne!(first.path(), read().path());
        assert!(Mark::read(None).expect("nothing to read").is_none());
    }

    #[test]
    fn what_is_no_image_is_named_in_the_error() {
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
