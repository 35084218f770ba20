//! id_tokens (OpenID Connect Core, 3.1.3.7): the check of their signature, issuer, times and access
//! token.
//!
//! Claims are not to be trusted before [`Issuers::verify`] has returned them.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portico_tokens::{Algorithm, MAX_TOKEN_BYTES, TokenError, TokenHeader};
use serde_json::Value;
use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;

use super::discovery::{Issuer, IssuerError, Issuers};
use crate::model::JsonObject;

/// The time by which an issuer's clock may be ahead of this server's, in seconds: for `iat` and
/// `nbf`. A token ends at its `exp`.
const JWT_LEEWAY_SECS: i64 = 60;

/// The reason why an id_token is not valid. Texts are for the log.
#[derive(Debug, thiserror::Error)]
pub enum IdTokenError {
    /// The issuer's keys cannot be read.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// Not three parts, not JSON, no claims.
    #[error("the id_token is malformed")]
    Malformed,
    /// No key of the issuer made this signature.
    #[error("the id_token is not signed by a key of its issuer")]
    Signature,
    /// `iss` is another issuer.
    #[error("the id_token is of another issuer")]
    OtherIssuer,
    /// `exp`, `iat` or `nbf`.
    #[error("the id_token is expired or not yet valid")]
    Time,
    /// `at_hash` is of another access token.
    #[error("the id_token belongs to another access token")]
    AccessToken,
}

impl Issuers {
    /// Returns the claims of `token` if `issuer` signed it and it is valid now. The caller checks
    /// the audience and the nonce. `access_token` is compared with `at_hash` if both are present.
    ///
    /// # Errors
    /// [`IdTokenError`] for the first check that fails.
    pub async fn verify(
        &self,
        issuer: &Issuer,
        token: &str,
        access_token: Option<&str>,
        now: OffsetDateTime,
    ) -> Result<JsonObject, IdTokenError> {
        let header = TokenHeader::read(token).map_err(|_| IdTokenError::Malformed)?;
        let keys = self.keys(issuer, header.key_id.as_deref()).await?;
        let keys = keys.as_ref().as_ref().ok_or(IdTokenError::Signature)?;
        let claims = keys.verify_signature(token).map_err(|error| match error {
            TokenError::UnreadableClaims(_) => IdTokenError::Malformed,
            _ => IdTokenError::Signature,
        })?;
        let claims = claims.values().clone();
        if !claims.get("iss").and_then(Value::as_str).is_some_and(|iss| issuer.is_named(iss)) {
            return Err(IdTokenError::OtherIssuer);
        }
        check_time(&claims, now.unix_timestamp())?;
        if let (Some(hash), Some(access_token)) = (claims.get("at_hash"), access_token)
            && !hash.as_str().is_some_and(|hash| is_hash_of(hash, access_token, header.algorithm))
        {
            return Err(IdTokenError::AccessToken);
        }
        Ok(claims)
    }
}

/// Returns the claims of a token without any check: only for choosing the issuer to verify against.
#[must_use]
pub fn unverified_claims(token: &str) -> Option<JsonObject> {
    if token.len() > MAX_TOKEN_BYTES {
        return None;
    }
    let mut parts = token.split('.');
    let payload = parts.nth(1)?;
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
}

fn check_time(claims: &JsonObject, now: i64) -> Result<(), IdTokenError> {
    let seconds = |key| claims.get(key).map(|value| value.as_f64().map(|seconds| seconds as i64));
    let expires = seconds("exp").flatten().ok_or(IdTokenError::Time)?;
    let not_future = |at: Option<Option<i64>>| match at {
        None => true,
        Some(Some(at)) => at <= now.saturating_add(JWT_LEEWAY_SECS),
        Some(None) => false,
    };
    if expires <= now || !not_future(seconds("iat")) || !not_future(seconds("nbf")) {
        return Err(IdTokenError::Time);
    }
    Ok(())
}

/// Returns true if `aud` has one of `accepted`, and of several audiences `azp` is one as well.
#[must_use]
pub fn has_audience(claims: &JsonObject, accepted: &[String]) -> bool {
    let is_accepted =
        |audience: &Value| audience.as_str().is_some_and(|audience| accepted.iter().any(|id| id == audience));
    match claims.get("aud") {
        Some(Value::Array(audiences)) => {
            audiences.iter().any(is_accepted) && (audiences.len() == 1 || claims.get("azp").is_none_or(is_accepted))
        }
        Some(audience) => is_accepted(audience),
        None => false,
    }
}

/// Compares `at_hash`: the left half of the hash that the algorithm uses (OpenID Connect Core,
/// 3.1.3.6).
fn is_hash_of(hash: &str, access_token: &str, algorithm: Algorithm) -> bool {
    use Algorithm::{EdDsa, Es256, Es384, Es512, Hs256, Hs384, Hs512, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
    let function = match algorithm {
        Hs256 | Rs256 | Ps256 | Es256 => &digest::SHA256,
        Hs384 | Rs384 | Ps384 | Es384 => &digest::SHA384,
        Hs512 | Rs512 | Ps512 | Es512 | EdDsa => &digest::SHA512,
    };
    let whole = digest::digest(function, access_token.as_bytes());
    let (half, _) = whole.as_ref().split_at(whole.as_ref().len() / 2);
    URL_SAFE_NO_PAD.encode(half).as_bytes().ct_eq(hash.as_bytes()).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn object(value: Value) -> JsonObject {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn audiences_may_be_one_or_many() {
        let own = ["web".to_owned(), "ios".to_owned()];
        for (claims, expected) in [
            (json!({"aud": "web"}), true),
            (json!({"aud": ["ios"]}), true),
            (json!({"aud": ["other", "ios"]}), true),
            (json!({"aud": ["other", "ios"], "azp": "other"}), false),
            (json!({"aud": "other"}), false),
            (json!({"aud": 5}), false),
            (json!({"aud": []}), false),
            (json!({}), false),
        ] {
            assert_eq!(has_audience(&object(claims.clone()), &own), expected, "{claims}");
        }
    }

    #[test]
    fn times_are_checked_against_our_clock() {
        for (claims, expected) in [
            (json!({"exp": 1001}), true),
            (json!({"exp": 1000}), false),
            (json!({"exp": 2000, "iat": 1050, "nbf": 990}), true),
            (json!({"exp": 2000, "iat": 1070}), false),
            (json!({"exp": 2000, "nbf": 1070}), false),
            (json!({"exp": 2000, "nbf": "soon"}), false),
            (json!({"exp": "2000"}), false),
            (json!({}), false),
        ] {
            assert_eq!(check_time(&object(claims.clone()), 1000).is_ok(), expected, "{claims}");
        }
    }

    #[test]
    fn the_access_token_hash_of_the_standard_matches() {
        // OpenID Connect Core, appendix A.3
        assert!(is_hash_of("77QmUPtjPfzWtF2AnpK9RQ", "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y", Algorithm::Rs256));
        assert!(!is_hash_of("77QmUPtjPfzWtF2AnpK9RQ", "another", Algorithm::Rs256));
    }

    proptest! {
        #[test]
        fn no_token_panics(token in "[A-Za-z0-9_.-]{0,200}") {
            let _ = unverified_claims(&token);
        }
    }
}
