//! The headers of a request of the protocol.

use http::{HeaderMap, Method, header};

use super::metadata::UploadMetadata;
use super::response::{TusError, VERSION};

/// The content type of bytes of an upload.
const OFFSET_STREAM: &str = "application/offset+octet-stream";

/// The headers of a request, checked for their form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TusHeaders {
    pub offset: Option<u64>,
    pub length: Option<u64>,
    /// The length follows later.
    pub defers_length: bool,
    pub metadata: Option<UploadMetadata>,
    /// The body has bytes of the upload.
    pub has_bytes: bool,
    /// The length of the body, if the request declares it.
    pub body_length: Option<u64>,
}

impl TusHeaders {
    /// Parses the headers of a request.
    ///
    /// # Errors
    /// [`TusError::VersionRequired`], and [`TusError::InvalidHeader`] names the first wrong one.
    pub fn parse(method: &Method, headers: &HeaderMap) -> Result<Self, TusError> {
        let version = single(headers, "tus-resumable")?;
        if version != Some(VERSION) && (version.is_some() || method != Method::HEAD) {
            return Err(TusError::VersionRequired);
        }
        if headers.contains_key("upload-concat") {
            return Err(TusError::Concatenation);
        }
        let offset = number(headers, "upload-offset")?;
        let length = number(headers, "upload-length")?;
        let deferral = single(headers, "upload-defer-length")?;
        if deferral.is_some_and(|value| value != "1") {
            return Err(TusError::InvalidHeader("upload-defer-length"));
        }
        let metadata = single(headers, "upload-metadata")?
            .map(|text| UploadMetadata::parse(text).ok_or(TusError::InvalidHeader("upload-metadata")))
            .transpose()?;
        let content_type = single(headers, header::CONTENT_TYPE.as_str())?;
        if content_type.is_some_and(|kind| !kind.eq_ignore_ascii_case(OFFSET_STREAM)) {
            return Err(TusError::InvalidHeader("content-type"));
        }
        let body_length = single(headers, header::CONTENT_LENGTH.as_str())?.and_then(|length| length.parse().ok());
        let (defers_length, has_bytes) = (deferral.is_some(), content_type.is_some());
        Ok(Self { offset, length, defers_length, metadata, has_bytes, body_length })
    }
}

/// Returns the only value of a header.
fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, TusError> {
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    let Some(value) = first else { return Ok(None) };
    let text = value.to_str().ok().filter(|_| second.is_none());
    text.map(Some).ok_or(TusError::InvalidHeader(name))
}

/// Returns the value of a header that is a size in bytes.
fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, TusError> {
    let Some(text) = single(headers, name)? else { return Ok(None) };
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<u64>().ok().filter(|number| is_number && i64::try_from(*number).is_ok());
    number.map(Some).ok_or(TusError::InvalidHeader(name))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn parse(method: &Method, pairs: &[(&'static str, &'static str)]) -> Result<TusHeaders, TusError> {
        let pairs = pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        TusHeaders::parse(method, &pairs.collect())
    }

    const VERSIONED: (&str, &str) = ("tus-resumable", "1.0.0");

    #[test]
    fn every_request_but_head_names_the_version() {
        for method in [Method::POST, Method::PATCH, Method::DELETE] {
            assert_eq!(parse(&method, &[]), Err(TusError::VersionRequired));
            assert_eq!(parse(&method, &[("tus-resumable", "0.2.2")]), Err(TusError::VersionRequired));
            assert_eq!(parse(&method, &[VERSIONED]), Ok(TusHeaders::default()));
        }
        assert_eq!(parse(&Method::HEAD, &[]), Ok(TusHeaders::default()));
        assert_eq!(parse(&Method::HEAD, &[("tus-resumable", "2")]), Err(TusError::VersionRequired));
    }

    #[test]
    fn a_header_of_another_form_is_named() {
        for (name, value) in [
            ("upload-offset", "-1"),
            ("upload-offset", ""),
            ("upload-offset", "+5"),
            ("upload-offset", "1.0"),
            ("upload-offset", "0x10"),
            ("upload-length", "99999999999999999999"),
            ("upload-length", "9223372036854775808"),
            ("upload-length", "NaN"),
            ("upload-defer-length", "0"),
            ("upload-metadata", ""),
            ("upload-metadata", "a YQ==,a YQ=="),
            ("content-type", "application/json"),
            ("content-type", "application/offset+octet-stream; charset=utf-8"),
        ] {
            assert_eq!(
                parse(&Method::PATCH, &[VERSIONED, (name, value)]),
                Err(TusError::InvalidHeader(name)),
                "{value}"
            );
        }
        let mut twice = HeaderMap::new();
        for (name, value) in [VERSIONED, ("upload-offset", "1"), ("upload-offset", "2")] {
            twice.append(name, HeaderValue::from_static(value));
        }
        assert_eq!(TusHeaders::parse(&Method::PATCH, &twice), Err(TusError::InvalidHeader("upload-offset")));
        assert_eq!(parse(&Method::POST, &[VERSIONED, ("upload-concat", "partial")]), Err(TusError::Concatenation));
    }
}
