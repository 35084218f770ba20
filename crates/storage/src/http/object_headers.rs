//! The headers that describe an object, and the range that a request asks for.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use time::OffsetDateTime;

use crate::backend::ByteRange;
use crate::error::{Result, StorageError};
use crate::media_type::OCTETS;
use crate::model::ObjectRow;
use crate::object::condition::last_modified;

/// The characters that `encodeURIComponent` encodes.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

pub(crate) const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// The policy for content that could run scripts if it is opened as a page.
pub(crate) const SANDBOX: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox");

/// The content types that no browser runs scripts of, besides those of images, sound, video and
/// fonts.
const PASSIVE: [&str; 10] = [
    "text/plain",
    "text/css",
    "text/csv",
    "text/markdown",
    "application/json",
    "application/pdf",
    OCTETS,
    "application/zip",
    "application/gzip",
    "application/x-gzip",
];

/// The caching of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// The header that the object states.
    Stored,
    /// The header that the object states, for the caller's own cache only.
    Private,
    /// Until a signed URL expires, in the caller's own cache only.
    Until(OffsetDateTime),
}

/// Returns the headers that describe an object. A stored text that no header can have is left out.
pub(crate) fn describe(row: &ObjectRow, caching: Caching, download: Option<&str>) -> HeaderMap {
    let metadata = &row.metadata;
    let mut headers = HeaderMap::with_capacity(12);
    let stored_type = metadata.mimetype().unwrap_or(OCTETS);
    headers.insert(header::CONTENT_TYPE, sent_type(stored_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !is_passive(stored_type) {
        headers.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
    }
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(etag) = metadata.etag() {
        set(&mut headers, header::ETAG, etag);
    }
    if let Some(modified) = last_modified(row) {
        set(&mut headers, header::LAST_MODIFIED, &http_date(modified));
    }
    set(&mut headers, X_ROBOTS_TAG, metadata.robots_tag().unwrap_or("none"));
    let stored = metadata.cache_control().unwrap_or("no-cache");
    match caching {
        Caching::Stored => set(&mut headers, header::CACHE_CONTROL, stored),
        Caching::Private => {
            set(&mut headers, header::CACHE_CONTROL, &private(stored));
            // The next user of a browser has another token
            headers.insert(header::VARY, HeaderValue::from_static("Authorization, apikey"));
        }
        Caching::Until(end) => {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private"));
            set(&mut headers, header::EXPIRES, &http_date(end));
        }
    }
    if let Some(name) = download {
        set(&mut headers, header::CONTENT_DISPOSITION, &disposition(name));
    }
    headers
}

/// Returns the content type that is sent for a stored one.
pub(crate) fn sent_type(stored: &str) -> HeaderValue {
    let lower = stored.trim().to_ascii_lowercase();
    // No pages are hosted on the origin of the API
    let sent = if lower.contains("text/html") { "text/plain" } else { stored };
    let value = HeaderValue::from_str(sent).ok().filter(|value| value.to_str().is_ok());
    // A browser displays each part of a multipart content as its own type says
    let value = value.filter(|_| lower.contains('/') && !lower.contains("multipart/"));
    value.unwrap_or(HeaderValue::from_static(OCTETS))
}

/// Returns true for a content type that no browser runs scripts of. Everything else is sandboxed.
fn is_passive(stored: &str) -> bool {
    let lower = stored.to_ascii_lowercase();
    let essence = lower.split(';').next().unwrap_or_default().trim();
    // A second type, as in a list, could be the one that a browser uses
    let is_plain = lower.chars().all(|c| c.is_ascii_graphic() || c == ' ') && !lower.contains(',');
    let is_media = ["image/", "audio/", "video/", "font/"].iter().any(|kind| essence.starts_with(kind));
    let is_markup = ["xml", "svg", "html"].iter().any(|word| lower.contains(word));
    is_plain && !is_markup && (is_media || PASSIVE.contains(&essence))
}

/// Adds a header, if its value is possible.
pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Returns true if a value of `Cache-Control` lets shared caches store the response to a request
/// with credentials (RFC 9111, section 3.5).
pub(crate) fn is_for_shared_caches(stored: &str) -> bool {
    stored.split(',').any(|directive| {
        let name = directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(name.as_str(), "public" | "s-maxage" | "must-revalidate")
    })
}

/// Returns a value of `Cache-Control` without the permissions for shared caches.
pub(crate) fn private(stored: &str) -> String {
    let is_own = |directive: &&str| {
        let name = directive.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        !matches!(name.as_str(), "" | "public" | "private" | "s-maxage")
    };
    let own: Vec<&str> = stored.split(',').map(str::trim).filter(is_own).collect();
    ["private"].into_iter().chain(own).collect::<Vec<_>>().join(", ")
}

fn disposition(name: &str) -> String {
    if name.is_empty() {
        return "attachment;".into();
    }
    let encoded = utf8_percent_encode(name, COMPONENT);
    format!("attachment; filename={encoded}; filename*=UTF-8''{encoded}")
}

/// Returns a time as a header has it.
pub(crate) fn http_date(time: OffsetDateTime) -> String {
    // The format has no years before the epoch and after 9999
    let time = time.clamp(OffsetDateTime::UNIX_EPOCH, time::macros::datetime!(9999-12-31 23:59:59 UTC));
    httpdate::fmt_http_date(time.into())
}

/// Returns the requested range.
///
/// # Errors
/// [`StorageError::InvalidRange`] for several ranges and malformed ones.
pub(crate) fn range_of(headers: &HeaderMap) -> Result<Option<ByteRange>> {
    let Some(value) = headers.get(header::RANGE) else { return Ok(None) };
    value.to_str().ok().and_then(parse_range).map(Some).ok_or(StorageError::InvalidRange)
}

fn parse_range(value: &str) -> Option<ByteRange> {
    let (start, end) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| -> Option<u64> {
        let text = text.trim();
        (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (start.trim(), end.trim()) {
        ("", last) => Some(ByteRange::Last(number(last)?)),
        (start, "") => Some(ByteRange::From(number(start)?, None)),
        (start, end) => Some(ByteRange::From(number(start)?, Some(number(end)?))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_range_of_bytes_is_accepted() {
        for (value, range) in [
            ("bytes=0-4", Some(ByteRange::From(0, Some(4)))),
            ("bytes=5-", Some(ByteRange::From(5, None))),
            ("bytes=-3", Some(ByteRange::Last(3))),
            ("bytes=0-99999999999999999999", Some(ByteRange::From(0, Some(u64::MAX)))),
            ("bytes=-", None),
            ("bytes=0-1,3-4", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("items=0-1", None),
            ("bytes", None),
        ] {
            assert_eq!(parse_range(value), range, "{value}");
        }
    }

    #[test]
    fn shared_caches_get_no_permission_for_private_objects() {
        for (stored, sent) in [
            ("max-age=3600", "private, max-age=3600"),
            ("public, max-age=1, s-maxage=5", "private, max-age=1"),
            ("no-cache", "private, no-cache"),
            ("", "private"),
            ("PUBLIC", "private"),
            ("max-age=0, must-revalidate", "private, max-age=0, must-revalidate"),
        ] {
            assert_eq!(private(stored), sent);
        }
        for stored in ["public", "max-age=1,S-MaxAge=5", "max-age=0, Must-Revalidate"] {
            assert!(is_for_shared_caches(stored), "{stored}");
        }
        for stored in ["", "no-cache", "private, max-age=1", "max-age=3600, proxy-revalidate"] {
            assert!(!is_for_shared_caches(stored), "{stored}");
        }
    }

    #[test]
    fn a_file_name_is_encoded_in_the_disposition() {
        assert_eq!(disposition(""), "attachment;");
        assert_eq!(
            disposition("photo one.png"),
            "attachment; filename=photo%20one.png; filename*=UTF-8''photo%20one.png"
        );
        assert_eq!(
            disposition("a\"\r\nb;ä"),
            "attachment; filename=a%22%0D%0Ab%3B%C3%A4; filename*=UTF-8''a%22%0D%0Ab%3B%C3%A4"
        );
    }
    proptest! {
        #[test]
        fn a_range_means_the_positions_that_it_names(first: u64, last: u64, blank in "[ \\t]{0,2}") {
            let of = |text: String| parse_range(&text);
            prop_assert_eq!(of(format!("{blank}bytes={blank}{first}{blank}-{blank}{last}{blank}")), Some(ByteRange::From(first, Some(last))));
            prop_assert_eq!(of(format!("bytes={first}-{blank}")), Some(ByteRange::From(first, None)));
            prop_assert_eq!(of(format!("bytes={blank}-{last}")), Some(ByteRange::Last(last)));
            // A position beyond all content is one
            prop_assert_eq!(of(format!("bytes={first}-{last}00000000000000000000")), Some(ByteRange::From(first, Some(if last == 0 { 0 } else { u64::MAX }))));
        }

        #[test]
        fn any_other_text_is_no_range(value in "(bytes|items)?=?[0-9a-f,+ -]{0,12}|\\PC{0,12}") {
            let written = match parse_range(&value) {
                Some(ByteRange::From(start, end)) => format!("bytes={start}-{}", end.map(|end| end.to_string()).unwrap_or_default()),
                Some(ByteRange::Last(count)) => format!("bytes=-{count}"),
                None => return Ok(()),
            };
            // But for blanks, and zeros before a number
            let plain = |text: &str| {
                let numbers = text.trim().strip_prefix("bytes=").unwrap_or("?").split('-').map(|number| number.trim().trim_start_matches('0').to_owned());
                numbers.collect::<Vec<_>>()
            };
            prop_assert_eq!(plain(&written), plain(&value));
        }
    }
}
