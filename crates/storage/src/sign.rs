//! Signed URLs: tokens that name one object and one purpose.

use portico_images::Transformation;
use portico_tokens::Claims;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use crate::error::{Result, StorageError};
use crate::identity::{Owner, token_message};
use crate::name::ObjectPath;
use crate::operation::{Actor, JSON_ARRAY, Operation, SqlStep, parse};
use crate::service::StorageService;
use crate::sql;

/// The purpose of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UrlScope {
    Download,
    Upload,
}

impl UrlScope {
    fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }
}

/// A verified token of a URL.
#[derive(Debug, Clone)]
pub(crate) struct UrlToken {
    pub expires_at: OffsetDateTime,
    /// An upload may replace an object.
    pub upsert: bool,
    /// The owner of an upload.
    pub owner: Owner,
    /// The parameters of an image, if the URL is one of an image.
    pub transformation: Option<Transformation>,
}

/// Signs the token of a URL that is valid for `lifetime` seconds. `extra` are claims of the
/// purpose.
///
/// # Errors
/// [`StorageError::InvalidBucketName`], and [`StorageError::Internal`] without a key that signs.
pub(crate) fn sign(
    service: &StorageService,
    path: &ObjectPath,
    scope: UrlScope,
    lifetime: i64,
    extra: Map<String, Value>,
) -> Result<String> {
    let now = service.clock.now().unix_timestamp();
    let url = url_of(path).ok_or(StorageError::InvalidBucketName)?;
    let mut claims = json!({ "url": url, "scope": scope.name() });
    if let Value::Object(claims) = &mut claims {
        claims.extend(extra);
        claims.insert("iat".into(), now.into());
        claims.insert("exp".into(), now.saturating_add(lifetime).into());
    }
    service.keys.ring().sign_with_secret(&claims).map_err(|error| {
        tracing::error!(error = %error, "a URL could not be signed");
        StorageError::Internal
    })
}

/// Verifies the token of a URL for this object and purpose.
///
/// # Errors
/// [`StorageError::InvalidJwt`], [`StorageError::InvalidSignature`]
pub(crate) fn verify(service: &StorageService, token: &str, path: &ObjectPath, scope: UrlScope) -> Result<UrlToken> {
    let claims = service
        .keys
        .verify(token, service.clock.now())
        .map_err(|error| StorageError::InvalidJwt(token_message(&error)))?;
    let wrong_scope = StorageError::InvalidSignature(match scope {
        UrlScope::Download => "Token is not scoped for download",
        UrlScope::Upload => "Token is not scoped for upload",
    });
    // A token of an earlier version has no scope; that of a user is none of a URL
    let is_of_user = claims.get("role").is_some() || claims.get("sub").is_some();
    let has_scope = match (claims.get("scope").and_then(Value::as_str), claims.get("upsert")) {
        (Some(name), _) => name == scope.name(),
        (None, upsert) => claims.get("scope").is_none() && (scope == UrlScope::Upload) == upsert.is_some(),
    };
    if is_of_user || !has_scope {
        return Err(wrong_scope);
    }
    let url = url_of(path);
    if url.is_none() || claims.get("url").and_then(Value::as_str) != url.as_deref() {
        return Err(StorageError::InvalidSignature("Invalid signature"));
    }
    let text = |name| claims.get(name).and_then(Value::as_str);
    Ok(UrlToken {
        expires_at: expiry(&claims),
        upsert: claims.get("upsert") == Some(&Value::Bool(true)),
        transformation: text("transformations").map(|claim| Transformation::from_claim(claim, text("format"))),
        owner: Owner { id: claims.get("owner").and_then(Value::as_str).map(str::to_owned) },
    })
}

/// The last second of the year 9999, in seconds since 1970. HTTP has no form for later times.
const LAST_SECOND: i64 = 253_402_300_799;

/// Returns the end of a token's validity; that of a token without one is in 1970.
fn expiry(claims: &Claims) -> OffsetDateTime {
    let seconds = claims.get("exp").and_then(Value::as_f64).unwrap_or_default() as i64;
    OffsetDateTime::from_unix_timestamp(seconds.clamp(0, LAST_SECOND)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Returns the object as the claim `url` has it; `None` for a bucket whose id contains `/`, which
/// only SQL can create: the text could also name an object of another bucket.
fn url_of(path: &ObjectPath) -> Option<String> {
    (!path.bucket.contains('/')).then(|| format!("{}/{}", path.bucket, path.name))
}

/// Returns those of the names that exist and that the caller can read.
///
/// # Errors
/// Those of PostgreSQL.
pub(crate) async fn readable(operation: &Operation, bucket: &str, names: &[String]) -> Result<Vec<String>> {
    let names: Vec<&String> = names.iter().filter(|name| !name.contains('\0')).collect();
    if bucket.contains('\0') {
        return Ok(Vec::new());
    }
    let list = sql::text_array(&names);
    let values = [Some(bucket.as_bytes()), Some(list.as_bytes())];
    let rows = operation.read(Actor::Caller, SqlStep { text: sql::FIND_NAMES, values: &values }, JSON_ARRAY).await?;
    if rows.joined.rows == 0 { Ok(Vec::new()) } else { parse(&rows.bytes()) }
}
