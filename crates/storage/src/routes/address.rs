//! The routes: methods and paths to what they address.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::error::{Result, StorageError};
use crate::name::ObjectPath;
use crate::resumable::ResumableTarget;

/// The longest bucket id or object name in a path, in characters.
const MAX_PARAMETER: usize = 2500;

/// The object or bucket that a request addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RestAddress {
    Status,
    Version,
    Health,
    Purge,
    /// Analytics buckets, which are switched off.
    Iceberg,
    Resumable(ResumableTarget),
    Bucket(BucketAddress),
    Object(ObjectAddress),
    Render(RenderAddress),
}

/// A route below `/render/image`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RenderAddress {
    Public(ObjectPath),
    Authenticated(ObjectPath),
    Signed(ObjectPath),
}

/// A route below `/bucket`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BucketAddress {
    Create,
    List,
    Get(String),
    Update(String),
    Delete(String),
    Empty(String),
}

/// A route below `/object`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectAddress {
    Upload(ObjectPath),
    Replace(ObjectPath),
    Get(ObjectPath),
    GetAuthenticated(ObjectPath),
    GetPublic(ObjectPath),
    GetSigned(ObjectPath),
    Info(ObjectPath),
    InfoAuthenticated(ObjectPath),
    InfoPublic(ObjectPath),
    List(String),
    ListPage(String),
    Move,
    Copy,
    Delete(ObjectPath),
    DeleteMany(String),
    Sign(ObjectPath),
    SignMany(String),
    SignUpload(ObjectPath),
    UploadSigned(ObjectPath),
}

impl RestAddress {
    /// Parses a method and a path; `None` if there is no such route.
    ///
    /// # Errors
    /// When the path is not UTF-8 in percent encoding.
    pub fn parse(method: &Method, path: &str) -> Result<Option<Self>> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (first, rest) = match path.split_once('/') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let is_whole = rest.is_none_or(str::is_empty);
        Ok(match first {
            "status" if is_read && is_whole => Some(Self::Status),
            "version" if is_read && is_whole => Some(Self::Version),
            "health" if is_read && is_whole => Some(Self::Health),
            "cdn" if *method == Method::DELETE => Some(Self::Purge),
            "upload" => rest.and_then(ResumableTarget::parse).map(Self::Resumable),
            "iceberg" => Some(Self::Iceberg),
            "bucket" => BucketAddress::parse(method, rest.unwrap_or_default())?.map(Self::Bucket),
            "object" => ObjectAddress::parse(method, rest.unwrap_or_default())?.map(Self::Object),
            "render" if is_read => RenderAddress::parse(rest.unwrap_or_default())?.map(Self::Render),
            _ => None,
        })
    }
}

impl RestAddress {
    /// Returns the pattern of the path, for the log.
    pub fn pattern(&self) -> &'static str {
        match self {
            Self::Status => "/status",
            Self::Version => "/version",
            Self::Health => "/health",
            Self::Purge => "/cdn/{path}",
            Self::Iceberg => "/iceberg",
            Self::Resumable(ResumableTarget { is_signed: false, id: None }) => "/upload/resumable",
            Self::Resumable(ResumableTarget { is_signed: false, .. }) => "/upload/resumable/{id}",
            Self::Resumable(ResumableTarget { id: None, .. }) => "/upload/resumable/sign",
            Self::Resumable(_) => "/upload/resumable/sign/{id}",
            Self::Bucket(BucketAddress::Create | BucketAddress::List) => "/bucket",
            Self::Bucket(BucketAddress::Empty(_)) => "/bucket/{id}/empty",
            Self::Bucket(_) => "/bucket/{id}",
            Self::Object(address) => address.pattern(),
            Self::Render(RenderAddress::Public(_)) => "/render/image/public/{bucket}/{name}",
            Self::Render(RenderAddress::Authenticated(_)) => "/render/image/authenticated/{bucket}/{name}",
            Self::Render(RenderAddress::Signed(_)) => "/render/image/sign/{bucket}/{name}",
        }
    }
}

impl RenderAddress {
    /// Parses a path below `/render`.
    fn parse(rest: &str) -> Result<Option<Self>> {
        let words: RenderWords =
            &[("public/", Self::Public), ("authenticated/", Self::Authenticated), ("sign/", Self::Signed)];
        let Some(rest) = rest.strip_prefix("image/") else { return Ok(None) };
        for (word, address) in words {
            let Some((bucket, name)) = rest.strip_prefix(word).and_then(|rest| rest.split_once('/')) else { continue };
            if bucket.is_empty() {
                return Ok(None);
            }
            return Ok(match (parameter(bucket)?, parameter(name)?) {
                (Some(bucket), Some(name)) => Some(address(ObjectPath { bucket, name })),
                _ => None,
            });
        }
        Ok(None)
    }
}

impl BucketAddress {
    fn parse(method: &Method, rest: &str) -> Result<Option<Self>> {
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.is_empty() {
            return Ok(match *method {
                Method::POST => Some(Self::Create),
                Method::GET | Method::HEAD => Some(Self::List),
                _ => None,
            });
        }
        let (bucket, action) = rest.split_once('/').map_or((rest, None), |(bucket, action)| (bucket, Some(action)));
        let Some(bucket) = parameter(bucket)? else { return Ok(None) };
        Ok(match (method, action) {
            (&Method::GET | &Method::HEAD, None) => Some(Self::Get(bucket)),
            (&Method::PUT, None) => Some(Self::Update(bucket)),
            (&Method::DELETE, None) => Some(Self::Delete(bucket)),
            (&Method::POST, Some("empty")) => Some(Self::Empty(bucket)),
            _ => None,
        })
    }
}

/// Makes the address of an object.
type OfObject = fn(ObjectPath) -> ObjectAddress;
/// Makes the address of a bucket.
type OfBucket = fn(String) -> ObjectAddress;
/// The words before the addresses of images, and what they make of them.
type RenderWords = &'static [(&'static str, fn(ObjectPath) -> RenderAddress)];
/// The words before the addresses of objects, and what they make of them.
type ObjectWords = &'static [(&'static str, OfObject)];
/// The words before the ids of buckets, and what they make of them.
type BucketWords = &'static [(&'static str, OfBucket)];

impl ObjectAddress {
    fn pattern(&self) -> &'static str {
        match self {
            Self::Upload(_) | Self::Replace(_) | Self::Get(_) | Self::Delete(_) => "/object/{bucket}/{name}",
            Self::GetAuthenticated(_) => "/object/authenticated/{bucket}/{name}",
            Self::GetPublic(_) => "/object/public/{bucket}/{name}",
            Self::GetSigned(_) | Self::Sign(_) => "/object/sign/{bucket}/{name}",
            Self::Info(_) => "/object/info/{bucket}/{name}",
            Self::InfoAuthenticated(_) => "/object/info/authenticated/{bucket}/{name}",
            Self::InfoPublic(_) => "/object/info/public/{bucket}/{name}",
            Self::List(_) => "/object/list/{bucket}",
            Self::ListPage(_) => "/object/list-v2/{bucket}",
            Self::Move => "/object/move",
            Self::Copy => "/object/copy",
            Self::DeleteMany(_) => "/object/{bucket}",
            Self::SignMany(_) => "/object/sign/{bucket}",
            Self::SignUpload(_) | Self::UploadSigned(_) => "/object/upload/sign/{bucket}/{name}",
        }
    }

    /// Parses a path below `/object`. Fixed words precede buckets of the same name, where the rest
    /// of the path fits.
    fn parse(method: &Method, rest: &str) -> Result<Option<Self>> {
        let (of_objects, of_buckets): (ObjectWords, BucketWords) = match *method {
            Method::GET | Method::HEAD => (
                &[
                    ("info/public/", Self::InfoPublic),
                    ("info/authenticated/", Self::InfoAuthenticated),
                    ("info/", Self::Info),
                    ("public/", Self::GetPublic),
                    ("authenticated/", Self::GetAuthenticated),
                    ("sign/", Self::GetSigned),
                    ("", Self::Get),
                ],
                &[],
            ),
            Method::POST => (
                &[("upload/sign/", Self::SignUpload), ("sign/", Self::Sign), ("", Self::Upload)],
                &[("list/", Self::List), ("list-v2/", Self::ListPage), ("sign/", Self::SignMany)],
            ),
            Method::PUT => (&[("upload/sign/", Self::UploadSigned), ("", Self::Replace)], &[]),
            Method::DELETE => (&[("", Self::Delete)], &[("", Self::DeleteMany)]),
            _ => (&[], &[]),
        };
        if *method == Method::POST {
            match rest {
                "move" | "move/" => return Ok(Some(Self::Move)),
                "copy" | "copy/" => return Ok(Some(Self::Copy)),
                _ => {}
            }
        }
        for (word, address) in of_buckets {
            let Some(bucket) = rest.strip_prefix(word) else { continue };
            let bucket = bucket.strip_suffix('/').unwrap_or(bucket);
            if !bucket.is_empty() && !bucket.contains('/') {
                return Ok(parameter(bucket)?.map(address));
            }
        }
        for (word, address) in of_objects {
            let Some((bucket, name)) = rest.strip_prefix(word).and_then(|rest| rest.split_once('/')) else { continue };
            if bucket.is_empty() {
                continue;
            }
            return Ok(match (parameter(bucket)?, parameter(name)?) {
                (Some(bucket), Some(name)) => Some(address(ObjectPath { bucket, name })),
                _ => None,
            });
        }
        Ok(None)
    }
}

/// Decodes a parameter in a path; `None` if it is too long.
fn parameter(raw: &str) -> Result<Option<String>> {
    let decoded = percent_decode_str(raw)
        .decode_utf8()
        .map_err(|_| StorageError::InvalidRequest(format!("'{raw}' is not a valid url component")))?;
    Ok((decoded.chars().count() <= MAX_PARAMETER).then(|| decoded.into_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(method: Method, path: &str) -> Option<RestAddress> {
        RestAddress::parse(&method, path).unwrap()
    }

    fn object(bucket: &str, name: &str) -> ObjectPath {
        ObjectPath { bucket: bucket.into(), name: name.into() }
    }

    #[test]
    fn an_address_has_the_pattern_of_its_path() {
        let patterns = [
            (Method::GET, "/status"),
            (Method::GET, "/version"),
            (Method::GET, "/health"),
            (Method::DELETE, "/cdn/{path}"),
            (Method::GET, "/iceberg"),
            (Method::POST, "/upload/resumable"),
            (Method::PATCH, "/upload/resumable/{id}"),
            (Method::POST, "/upload/resumable/sign"),
            (Method::PATCH, "/upload/resumable/sign/{id}"),
            (Method::POST, "/bucket"),
            (Method::GET, "/bucket"),
            (Method::GET, "/bucket/{id}"),
            (Method::POST, "/bucket/{id}/empty"),
            (Method::POST, "/object/{bucket}/{name}"),
            (Method::PUT, "/object/{bucket}/{name}"),
            (Method::GET, "/object/{bucket}/{name}"),
            (Method::DELETE, "/object/{bucket}/{name}"),
            (Method::GET, "/object/public/{bucket}/{name}"),
            (Method::GET, "/object/authenticated/{bucket}/{name}"),
            (Method::GET, "/object/sign/{bucket}/{name}"),
            (Method::POST, "/object/sign/{bucket}/{name}"),
            (Method::POST, "/object/sign/{bucket}"),
            (Method::GET, "/object/info/{bucket}/{name}"),
            (Method::GET, "/object/info/authenticated/{bucket}/{name}"),
            (Method::GET, "/object/info/public/{bucket}/{name}"),
            (Method::POST, "/object/list/{bucket}"),
            (Method::POST, "/object/list-v2/{bucket}"),
            (Method::POST, "/object/move"),
            (Method::POST, "/object/copy"),
            (Method::DELETE, "/object/{bucket}"),
            (Method::POST, "/object/upload/sign/{bucket}/{name}"),
            (Method::PUT, "/object/upload/sign/{bucket}/{name}"),
            (Method::GET, "/render/image/public/{bucket}/{name}"),
            (Method::GET, "/render/image/authenticated/{bucket}/{name}"),
            (Method::GET, "/render/image/sign/{bucket}/{name}"),
        ];
        for (method, pattern) in patterns {
            assert_eq!(parse(method.clone(), pattern).unwrap().pattern(), pattern, "{method}");
        }
    }

    #[test]
    fn paths_address_buckets_and_objects() {
        use ObjectAddress::*;
        for (method, path, address) in [
            (Method::GET, "/object/b/a/c.png", Get(object("b", "a/c.png"))),
            (Method::HEAD, "/object/b/a%2Fc.png", Get(object("b", "a/c.png"))),
            (Method::GET, "/object/public/b/x", GetPublic(object("b", "x"))),
            (Method::GET, "/object/info/public/b/x", InfoPublic(object("b", "x"))),
            (Method::GET, "/object/info/b/x", Info(object("b", "x"))),
            (Method::GET, "/object/sign/b//x", GetSigned(object("b", "/x"))),
            (Method::GET, "/object/public/x", Get(object("public", "x"))),
            (Method::GET, "/object/list/x", Get(object("list", "x"))),
            (Method::POST, "/object/b/", Upload(object("b", ""))),
            (Method::POST, "/object/move", Move),
            (Method::POST, "/object/list/b/", List("b".into())),
            (Method::POST, "/object/list/b/x", Upload(object("list", "b/x"))),
            (Method::POST, "/object/sign/b", SignMany("b".into())),
            (Method::POST, "/object/sign/b/x", Sign(object("b", "x"))),
            (Method::POST, "/object/upload/sign/b/x", SignUpload(object("b", "x"))),
            (Method::PUT, "/object/upload/sign/b/x", UploadSigned(object("b", "x"))),
            (Method::DELETE, "/object/b", DeleteMany("b".into())),
            (Method::DELETE, "/object/b/a//", Delete(object("b", "a//"))),
        ] {
            assert_eq!(parse(method.clone(), path), Some(RestAddress::Object(address)), "{method} {path}");
        }
        for (path, address) in [
            ("/render/image/public/b/a/c.png", RenderAddress::Public(object("b", "a/c.png"))),
            ("/render/image/authenticated/b/x%20y", RenderAddress::Authenticated(object("b", "x y"))),
            ("/render/image/sign/b/x", RenderAddress::Signed(object("b", "x"))),
        ] {
            assert_eq!(parse(Method::GET, path), Some(RestAddress::Render(address.clone())), "{path}");
            assert_eq!(parse(Method::HEAD, path), Some(RestAddress::Render(address)), "{path}");
            assert_eq!(parse(Method::POST, path), None, "{path}");
        }
        assert_eq!(parse(Method::GET, "/bucket/"), Some(RestAddress::Bucket(BucketAddress::List)));
        assert_eq!(
            parse(Method::POST, "/bucket/b%20c/empty"),
            Some(RestAddress::Bucket(BucketAddress::Empty("b c".into())))
        );
        for (path, is_signed, id) in [
            ("/upload/resumable", false, None),
            ("/upload/resumable/", false, None),
            ("/upload/resumable/abc", false, Some("abc")),
            ("/upload/resumable/signal", false, Some("signal")),
            ("/upload/resumable/sign", true, None),
            ("/upload/resumable/sign/", true, None),
            ("/upload/resumable/sign/a/b", true, Some("a/b")),
        ] {
            let target = ResumableTarget { is_signed, id: id.map(str::to_owned) };
            assert_eq!(parse(Method::PATCH, path), Some(RestAddress::Resumable(target)), "{path}");
        }
        for (method, path) in [
            (Method::GET, "/nothing"),
            (Method::POST, "/upload"),
            (Method::POST, "/upload/resumables"),
            (Method::GET, "/object/onlybucket"),
            (Method::GET, "/render/image/public/b"),
            (Method::GET, "/render/image/public//x"),
            (Method::GET, "/render/image/b/x"),
            (Method::PATCH, "/object/b/x"),
            (Method::PUT, "/object/b"),
            (Method::GET, "/bucket/a/b"),
            (Method::GET, &format!("/object/b/{}", "x".repeat(2501))),
        ] {
            assert_eq!(parse(method, path), None, "{path}");
        }
        assert!(RestAddress::parse(&Method::GET, "/object/b/%ff").is_err());
    }

    proptest! {
        #[test]
        fn every_path_is_an_address_or_none(path in "[ -~]{0,40}|(/object|/bucket)(/|public|sign|%2f|%|a){0,12}") {
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                let _ = RestAddress::parse(&method, &path);
            }
        }
    }
}
