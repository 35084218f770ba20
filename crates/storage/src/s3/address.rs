//! The path of a request: the service, a bucket, or an object in it.

use percent_encoding::percent_decode_str;

use crate::error::{Result, S3Error};
use crate::name::ObjectPath;

/// The longest bucket name or key, in characters.
const MAX_NAME: usize = 2500;

/// The subject of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum S3Address {
    Service,
    Bucket(String),
    Object(ObjectPath),
}

impl S3Address {
    /// Returns the pattern of the path, for the log.
    pub fn pattern(&self) -> &'static str {
        match self {
            Self::Service => "/s3",
            Self::Bucket(_) => "/s3/{bucket}",
            Self::Object(_) => "/s3/{bucket}/{key}",
        }
    }

    /// Parses a path in path style: `/bucket/key`. A slash behind a bucket means the bucket.
    ///
    /// # Errors
    /// When it is too long or not UTF-8 in percent encoding.
    pub fn parse(path: &str) -> Result<Self> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let bucket = decode(bucket)?;
        Ok(match (bucket.is_empty(), key.is_empty()) {
            (true, true) => Self::Service,
            (true, false) => return Err(S3Error::invalid("The bucket name is empty").into()),
            (false, true) => Self::Bucket(bucket),
            (false, false) => Self::Object(ObjectPath { bucket, name: decode(key)? }),
        })
    }

    /// Parses the source of a copy: `bucket/key`, with or without a slash before it, encoded.
    ///
    /// # Errors
    /// When it names no object, or a version of it.
    pub fn parse_source(source: &str) -> Result<ObjectPath> {
        let (path, version) = source.split_once("?versionId=").unwrap_or((source, "null"));
        if version != "null" {
            return Err(S3Error::NOT_IMPLEMENTED.into());
        }
        // Some clients encode the slash between bucket and key too
        let decoded = decode(path)?;
        let path = decoded.strip_prefix('/').unwrap_or(&decoded);
        match path.split_once('/') {
            Some((bucket, name)) if !bucket.is_empty() && !name.is_empty() => {
                Ok(ObjectPath { bucket: bucket.to_owned(), name: name.to_owned() })
            }
            _ => Err(S3Error::invalid_argument("x-amz-copy-source").into()),
        }
    }
}

fn decode(raw: &str) -> Result<String> {
    let decoded = percent_decode_str(raw).decode_utf8();
    let decoded = decoded.map_err(|_| S3Error::invalid("The path is not UTF-8"))?;
    if decoded.chars().count() > MAX_NAME {
        return Err(S3Error::KEY_TOO_LONG.into());
    }
    if decoded.contains('\0') {
        return Err(crate::error::StorageError::InvalidKey(decoded.into_owned()));
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(bucket: &str, name: &str) -> ObjectPath {
        ObjectPath { bucket: bucket.into(), name: name.into() }
    }

    #[test]
    fn a_path_addresses_the_service_a_bucket_or_an_object() {
        for (path, address) in [
            ("", S3Address::Service),
            ("/", S3Address::Service),
            ("/b", S3Address::Bucket("b".into())),
            ("/b%20c/", S3Address::Bucket("b c".into())),
            ("/b/a/c%2Fd+e", S3Address::Object(object("b", "a/c/d+e"))),
            ("/b//a/", S3Address::Object(object("b", "/a/"))),
        ] {
            assert_eq!(S3Address::parse(path), Ok(address), "{path}");
        }
        for path in ["//a", "/b/%ff", "/b/%00", &format!("/b/{}", "x".repeat(2501))] {
            assert!(S3Address::parse(path).is_err(), "{path}");
        }
    }

    #[test]
    fn the_source_of_a_copy_is_an_object() {
        for source in ["b/a c", "/b/a%20c", "b%2Fa%20c", "b/a c?versionId=null"] {
            assert_eq!(S3Address::parse_source(source), Ok(object("b", "a c")), "{source}");
        }
        for source in ["", "b", "b/", "/b", "b/a?versionId=7"] {
            assert!(S3Address::parse_source(source).is_err(), "{source}");
        }
    }
}
