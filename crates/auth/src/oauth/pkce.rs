//! PKCE (RFC 7636): the proof key of the code flow between an app and this server.
//!
//! The app sends a challenge when a flow starts and the matching verifier when it exchanges the
//! code, so a code that was intercepted in a redirect is useless.

use crate::error::ContractError;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

/// The method that makes a challenge from its verifier. The text is the label of
/// `auth.code_challenge_method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChallengeMethod {
    /// `base64url(sha256(verifier))`.
    S256,
    /// The verifier itself.
    Plain,
}

impl ChallengeMethod {
    /// Reads the parameter or the column, in any case of letters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.eq_ignore_ascii_case("s256") {
            Some(Self::S256)
        } else if text.eq_ignore_ascii_case("plain") {
            Some(Self::Plain)
        } else {
            None
        }
    }

    /// Returns the label of the database type.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::S256 => "s256",
            Self::Plain => "plain",
        }
    }
}

/// The challenge that an app sent at the start of a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    method: ChallengeMethod,
    value: String,
}

impl Challenge {
    /// Reads the two request parameters. Empty and absent are the same; `Ok(None)` is an implicit
    /// flow.
    ///
    /// # Errors
    /// 400 `validation_failed` for an incomplete or malformed challenge.
    pub fn from_request(challenge: Option<&str>, method: Option<&str>) -> Result<Option<Self>, ContractError> {
        let given = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let (value, method) = match (given(challenge), given(method)) {
            (None, None) => return Ok(None),
            (Some(value), Some(method)) => (value, method),
            _ => return Err(ContractError::ChallengeIncomplete),
        };
        if !(43..=128).contains(&value.len()) {
            return Err(ContractError::ChallengeLength);
        }
        if !value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) {
            return Err(ContractError::ChallengeCharacters);
        }
        let method = ChallengeMethod::parse(&method).ok_or(ContractError::ChallengeMethodUnknown)?;
        Ok(Some(Self { method, value }))
    }

    /// Restores a stored challenge.
    #[must_use]
    pub fn from_row(method: &str, value: String) -> Option<Self> {
        ChallengeMethod::parse(method).map(|method| Self { method, value })
    }

    /// Returns how it was made.
    #[must_use]
    pub fn method(&self) -> ChallengeMethod {
        self.method
    }

    /// Returns its text.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Returns true if the challenge was made from `verifier`. In constant time.
    #[must_use]
    pub fn is_met_by(&self, verifier: &str) -> bool {
        match self.method {
            ChallengeMethod::S256 => s256(verifier).as_bytes().ct_eq(self.value.as_bytes()).into(),
            ChallengeMethod::Plain => verifier.as_bytes().ct_eq(self.value.as_bytes()).into(),
        }
    }
}

/// Returns the `S256` challenge of a verifier.
#[must_use]
pub fn s256(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    // RFC 7636, appendix B
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn the_example_of_the_standard_verifies() {
        let challenge = Challenge::from_request(Some(CHALLENGE), Some("S256")).unwrap().unwrap();
        assert!(challenge.is_met_by(VERIFIER));
        assert!(!challenge.is_met_by(CHALLENGE));
        assert!(!challenge.is_met_by(""));
    }

    #[test]
    fn a_plain_challenge_is_the_verifier() {
        let challenge = Challenge::from_request(Some(VERIFIER), Some("plain")).unwrap().unwrap();
        assert!(challenge.is_met_by(VERIFIER));
        assert!(!challenge.is_met_by(&VERIFIER[1..]));
    }

    #[test]
    fn parameters_are_checked_in_order() {
        let long = "a".repeat(129);
        type Parameter<'a> = Option<&'a str>;
        let cases: [(Parameter<'_>, Parameter<'_>, Result<(), ContractError>); 9] = [
            (None, None, Ok(())),
            (Some(""), Some(""), Ok(())),
            (Some(CHALLENGE), None, Err(ContractError::ChallengeIncomplete)),
            (None, Some("s256"), Err(ContractError::ChallengeIncomplete)),
            (Some("short"), Some("s256"), Err(ContractError::ChallengeLength)),
            (Some(&long), Some("nonsense"), Err(ContractError::ChallengeLength)),
            (
                Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM"),
                Some("s256"),
                Err(ContractError::ChallengeCharacters),
            ),
            (Some(CHALLENGE), Some("s512"), Err(ContractError::ChallengeMethodUnknown)),
            (Some(CHALLENGE), Some("S256"), Ok(())),
        ];
        for (challenge, method, expected) in cases {
            assert_eq!(Challenge::from_request(challenge, method).map(|_| ()), expected, "{challenge:?} {method:?}");
        }
    }
}
