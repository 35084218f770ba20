//! Client data: what the browser says of a ceremony (WebAuthn level 3, section 5.8.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use url::Url;

use super::CeremonyError;

/// The ceremony that the browser performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ceremony {
    Registration,
    Assertion,
}

impl Ceremony {
    fn name(self) -> &'static str {
        match self {
            Self::Registration => "webauthn.create",
            Self::Assertion => "webauthn.get",
        }
    }
}

#[derive(Deserialize)]
struct ClientData {
    #[serde(rename = "type")]
    ceremony: String,
    challenge: String,
    origin: String,
}

/// Checks that the client data is of this ceremony, answers this challenge, and comes from one of the
/// origins.
///
/// # Errors
/// [`CeremonyError`] names the first check that failed.
pub(super) fn check(
    bytes: &[u8],
    ceremony: Ceremony,
    challenge: &[u8],
    origins: &[String],
) -> Result<(), CeremonyError> {
    let data: ClientData = serde_json::from_slice(bytes).map_err(|_| CeremonyError::ClientData)?;
    if data.ceremony != ceremony.name() {
        return Err(CeremonyError::Ceremony);
    }
    let answered =
        URL_SAFE_NO_PAD.decode(data.challenge.trim_end_matches('=')).map_err(|_| CeremonyError::Challenge)?;
    if !bool::from(answered.ct_eq(challenge)) {
        return Err(CeremonyError::Challenge);
    }
    match origins.iter().any(|allowed| is_same_origin(allowed, &data.origin)) {
        true => Ok(()),
        false => Err(CeremonyError::Origin),
    }
}

/// Returns whether two origins are the same. Those of pages are compared by scheme, host and port;
/// others, such as those of Android apps, as texts.
fn is_same_origin(allowed: &str, origin: &str) -> bool {
    let page = |text: &str| {
        let url = Url::parse(text).ok()?;
        let is_bare =
            url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        (is_bare && matches!(url.scheme(), "http" | "https")).then(|| url.origin())
    };
    match (page(allowed), page(origin)) {
        (Some(allowed), Some(origin)) => allowed == origin,
        (None, None) => allowed == origin,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_by_scheme_host_and_port() {
        assert!(is_same_origin("https://app.example", "https://APP.example"));
        assert!(is_same_origin("https://app.example/", "https://app.example:443"));
        assert!(is_same_origin("android:apk-key-hash:abc", "android:apk-key-hash:abc"));
        for (allowed, origin) in [
            ("https://app.example", "http://app.example"),
            ("https://app.example", "https://app.example:8443"),
            ("https://app.example", "https://app.example.evil.example"),
            ("https://app.example", "https://evil@app.example"),
            ("https://app.example", "https://app.example/path"),
            ("https://app.example", ""),
            ("android:apk-key-hash:abc", "android:apk-key-hash:ABC"),
        ] {
            assert!(!is_same_origin(allowed, origin), "{allowed} {origin}");
        }
    }
}
