//! What a verified token says.

use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::token::TokenError;

/// The claims of a token whose signature was verified.
///
/// Only [`crate::KeyRing::verify`] makes one, so whoever holds a `Claims` need not ask where it comes from.
#[derive(Debug)]
pub struct Claims {
    text: Box<str>,
    values: Map<String, Value>,
    expires_at: Option<OffsetDateTime>,
    not_before: Option<OffsetDateTime>,
}

impl Claims {
    /// Reads the payload of a token. The times must be numbers when they are there.
    pub(crate) fn parse(payload: Vec<u8>) -> Result<Self, TokenError> {
        let text = String::from_utf8(payload).map_err(|_| TokenError::Malformed("the claims are not UTF-8"))?;
        let values: Map<String, Value> =
            serde_json::from_str(&text).map_err(|_| TokenError::Malformed("could not JSON decode claim"))?;
        let expires_at = time(&values, "exp", TokenError::InvalidClaims("exp is invalid"))?;
        let not_before = time(&values, "nbf", TokenError::InvalidClaims("nbf is invalid"))?;
        Ok(Self { text: text.into(), values, expires_at, not_before })
    }

    /// Whether the token may be used at `now`: valid from `nbf` on and before `exp`, without leeway.
    pub(crate) fn check_times(&self, now: OffsetDateTime) -> Result<(), TokenError> {
        if self.expires_at.is_some_and(|end| now >= end) {
            return Err(TokenError::Expired);
        }
        if self.not_before.is_some_and(|begin| now < begin) {
            return Err(TokenError::NotYetValid);
        }
        Ok(())
    }

    /// The value of one claim.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// All claims, in the order of the token.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// The JSON as it was signed, byte for byte.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// `sub`: the user's id.
    pub fn subject(&self) -> Option<&str> {
        self.string("sub")
    }

    /// `role`: the database role that the token asks for. An empty one counts as absent.
    pub fn role(&self) -> Option<&str> {
        self.string("role").filter(|role| !role.is_empty())
    }

    /// `session_id`: the session that the token belongs to.
    pub fn session_id(&self) -> Option<&str> {
        self.string("session_id")
    }

    /// `iss`: who issued the token.
    pub fn issuer(&self) -> Option<&str> {
        self.string("iss")
    }

    /// `aud`, when it is one string or a list whose first entry is one.
    pub fn audience(&self) -> Option<&str> {
        match self.get("aud")? {
            Value::String(audience) => Some(audience),
            Value::Array(list) => list.first().and_then(Value::as_str),
            _ => None,
        }
    }

    /// `aal`: the assurance level, `aal1` or `aal2`.
    pub fn aal(&self) -> Option<&str> {
        self.string("aal")
    }

    /// `is_anonymous`; absent counts as `false`.
    pub fn is_anonymous(&self) -> bool {
        self.get("is_anonymous").and_then(Value::as_bool).unwrap_or(false)
    }

    /// `exp`. `None`: the token does not end by itself.
    pub fn expires_at(&self) -> Option<OffsetDateTime> {
        self.expires_at
    }

    fn string(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }
}

/// A time claim, in whole seconds since 1970; `null` counts as absent.
fn time(values: &Map<String, Value>, name: &str, wrong: TokenError) -> Result<Option<OffsetDateTime>, TokenError> {
    let seconds = match values.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(seconds), _) => seconds,
            // `as` cuts the fraction and saturates, which is what a time far away needs
            (None, Some(seconds)) => seconds as i64,
            (None, None) => return Err(wrong),
        },
        Some(_) => return Err(wrong),
    };
    let first = OffsetDateTime::new_utc(time::Date::MIN, time::Time::MIDNIGHT).unix_timestamp();
    let last = OffsetDateTime::new_utc(time::Date::MAX, time::Time::MIDNIGHT).unix_timestamp();
    OffsetDateTime::from_unix_timestamp(seconds.clamp(first, last)).map(Some).map_err(|_| wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(json: &str) -> Result<Claims, TokenError> {
        Claims::parse(json.as_bytes().to_vec())
    }

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    #[test]
    fn a_token_ends_exactly_at_exp_and_begins_exactly_at_nbf() {
        let claims = claims(r#"{"exp":200,"nbf":100}"#).unwrap();
        assert_eq!(claims.check_times(at(99)), Err(TokenError::NotYetValid));
        assert_eq!(claims.check_times(at(100)), Ok(()));
        assert_eq!(claims.check_times(at(199)), Ok(()));
        assert_eq!(claims.check_times(at(200)), Err(TokenError::Expired));
    }

    #[test]
    fn times_may_be_absent_null_fractional_or_far_away_but_not_text() {
        assert_eq!(claims("{}").unwrap().check_times(at(0)), Ok(()));
        assert_eq!(claims(r#"{"exp":null}"#).unwrap().check_times(at(0)), Ok(()));
        assert_eq!(claims(r#"{"exp":10.9}"#).unwrap().check_times(at(10)), Err(TokenError::Expired));
        assert_eq!(claims(r#"{"exp":1e300}"#).unwrap().check_times(at(10)), Ok(()));
        assert_eq!(claims(r#"{"exp":-1e300}"#).unwrap().check_times(at(10)), Err(TokenError::Expired));
        assert_eq!(claims(r#"{"exp":"10"}"#).unwrap_err(), TokenError::InvalidClaims("exp is invalid"));
        assert!(claims(r#"{"nbf":{}}"#).is_err());
    }

    #[test]
    fn what_is_not_an_object_is_no_claim_set() {
        for text in ["", "[]", "1", "null", "{", r#"{"a":1}x"#] {
            assert!(claims(text).is_err(), "{text}");
        }
        assert!(Claims::parse(vec![0xff, 0xfe]).is_err());
        assert!(claims(&"[".repeat(10_000)).is_err());
    }
}
