//! The claims of a verified token.

use serde_json::{Map, Value};
use time::{Duration, OffsetDateTime};

use crate::token::TokenError;

/// The claims of a token whose signature was verified.
///
/// Only a [`crate::KeyRing`] makes one, so a `Claims` is always verified. Its times are compared
/// with the clock by [`crate::KeyRing::verify`] and not by [`crate::KeyRing::verify_signature`].
#[derive(Debug)]
pub struct Claims {
    text: Box<str>,
    values: Map<String, Value>,
    expires_at: TimeClaim,
    not_before: TimeClaim,
    is_third_party: bool,
}

/// A time claim.
#[derive(Debug, Clone, Copy)]
enum TimeClaim {
    Absent,
    At(OffsetDateTime),
    /// The claim exists and is not a number.
    Wrong,
}

impl Claims {
    /// Parses the payload of a token. Does not check its times.
    pub(crate) fn parse(payload: Vec<u8>) -> Result<Self, TokenError> {
        let text = String::from_utf8(payload).map_err(|_| TokenError::UnreadableClaims("the claims are not UTF-8"))?;
        let values: Map<String, Value> =
            serde_json::from_str(&text).map_err(|_| TokenError::UnreadableClaims("could not JSON decode claim"))?;
        let (expires_at, not_before) = (TimeClaim::read(&values, "exp"), TimeClaim::read(&values, "nbf"));
        Ok(Self { text: text.into(), values, expires_at, not_before, is_third_party: false })
    }

    /// Marks the claims as those of another issuer's token.
    pub(crate) fn mark_third_party(&mut self) {
        self.is_third_party = true;
    }

    /// Returns true if another issuer signed the token, whose users have no account here.
    pub fn is_third_party(&self) -> bool {
        self.is_third_party
    }

    /// Checks that the token may be used at `now`: from `nbf` on and before `exp`, without leeway,
    /// fractions of seconds truncated.
    ///
    /// # Errors
    /// [`TokenError::NotANumber`], [`TokenError::Expired`], [`TokenError::NotYetValid`].
    pub fn check_times(&self, now: OffsetDateTime) -> Result<(), TokenError> {
        let expires_at = self.expires_at.known("exp")?;
        let not_before = self.not_before.known("nbf")?;
        if expires_at.is_some_and(|end| now >= end) {
            return Err(TokenError::Expired);
        }
        if not_before.is_some_and(|begin| now < begin) {
            return Err(TokenError::NotYetValid);
        }
        Ok(())
    }

    /// Checks that the token may be used at `now` by a service whose clock may differ from the
    /// issuer's by `leeway`: `exp`, `nbf` and `iat` in this order, in whole seconds; a number that
    /// is not whole counts as 0.
    ///
    /// # Errors
    /// [`TokenError::NotANumber`], [`TokenError::Expired`], [`TokenError::NotYetValid`],
    /// [`TokenError::IssuedInFuture`].
    pub fn check_times_within(&self, now: OffsetDateTime, leeway: Duration) -> Result<(), TokenError> {
        let (now, leeway) = (now.unix_timestamp(), leeway.whole_seconds());
        if self.whole_seconds("exp")?.is_some_and(|end| now.saturating_sub(leeway) > end) {
            return Err(TokenError::Expired);
        }
        let is_ahead = |time: i64| time > now.saturating_add(leeway);
        if self.whole_seconds("nbf")?.is_some_and(is_ahead) {
            return Err(TokenError::NotYetValid);
        }
        if self.whole_seconds("iat")?.is_some_and(is_ahead) {
            return Err(TokenError::IssuedInFuture);
        }
        Ok(())
    }

    /// Returns a time claim in whole seconds. `null` counts as absent, a value that is not a whole
    /// number of 64 bits as 0.
    fn whole_seconds(&self, name: &'static str) -> Result<Option<i64>, TokenError> {
        /// 2^63: the first number that `i64` cannot hold.
        const BEYOND: f64 = 9_223_372_036_854_775_808.0;
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => Ok(Some(match (number.as_i64(), number.as_f64()) {
                (Some(seconds), _) => seconds,
                (None, Some(seconds)) if seconds.fract() == 0.0 && (-BEYOND..BEYOND).contains(&seconds) => {
                    seconds as i64
                }
                _ => 0,
            })),
            Some(_) => Err(TokenError::NotANumber(name)),
        }
    }

    /// Returns the value of one claim.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Returns all claims, in the order of the token.
    pub fn values(&self) -> &Map<String, Value> {
        &self.values
    }

    /// Returns the JSON as it was signed, byte for byte.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the memory of the claims in bytes: the text, and the parsed values, which can take
    /// many times as much. Rounded up where a container does not report its capacity.
    pub(crate) fn weight(&self) -> usize {
        size_of::<Self>() + self.text.len() + weight_of_object(&self.values)
    }

    /// Returns `sub`: the user's id.
    pub fn subject(&self) -> Option<&str> {
        self.string("sub")
    }

    /// Returns `role`: the database role of the token. An empty one counts as absent.
    pub fn role(&self) -> Option<&str> {
        self.string("role").filter(|role| !role.is_empty())
    }

    /// Returns `session_id`: the session of the token.
    pub fn session_id(&self) -> Option<&str> {
        self.string("session_id")
    }

    /// Returns `iss`: the issuer of the token.
    pub fn issuer(&self) -> Option<&str> {
        self.string("iss")
    }

    /// Returns `aud` if it is a string or a list whose first entry is a string.
    pub fn audience(&self) -> Option<&str> {
        match self.get("aud")? {
            Value::String(audience) => Some(audience),
            Value::Array(list) => list.first().and_then(Value::as_str),
            _ => None,
        }
    }

    /// Returns true if `aud` is `audience`, or a list that contains it.
    pub fn is_for(&self, audience: &str) -> bool {
        match self.get("aud") {
            Some(Value::String(only)) => only == audience,
            Some(Value::Array(list)) => list.iter().any(|each| each == audience),
            _ => false,
        }
    }

    /// Returns `aal`: the assurance level, `aal1` or `aal2`.
    pub fn aal(&self) -> Option<&str> {
        self.string("aal")
    }

    /// Returns `is_anonymous`; absent counts as false.
    pub fn is_anonymous(&self) -> bool {
        self.get("is_anonymous").and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns `exp`. `None`: the token does not expire.
    pub fn expires_at(&self) -> Option<OffsetDateTime> {
        match self.expires_at {
            TimeClaim::At(time) => Some(time),
            TimeClaim::Absent | TimeClaim::Wrong => None,
        }
    }

    fn string(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }
}

/// Returns the bytes of a value on the heap. The parser bounds the recursion.
fn weight_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.capacity(),
        Value::Array(list) => list.capacity() * size_of::<Value>() + list.iter().map(weight_of).sum::<usize>(),
        Value::Object(object) => weight_of_object(object),
    }
}

fn weight_of_object(object: &Map<String, Value>) -> usize {
    // An entry has its hash beside it, and a slot in a table with spare room
    const ENTRY: usize = size_of::<String>() + size_of::<Value>() + 4 * size_of::<usize>();
    let room = if object.is_empty() { 0 } else { object.len().next_power_of_two().max(4) };
    room * ENTRY + object.iter().map(|(name, value)| name.capacity() + weight_of(value)).sum::<usize>()
}

impl TimeClaim {
    /// Parses a time in whole seconds since 1970; `null` counts as absent.
    fn read(values: &Map<String, Value>, name: &str) -> Self {
        let seconds = match values.get(name) {
            None | Some(Value::Null) => return Self::Absent,
            Some(Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(seconds), _) => seconds,
                // `as` truncates and saturates, which is right for a time that is far away
                (None, Some(seconds)) => seconds as i64,
                (None, None) => return Self::Wrong,
            },
            Some(_) => return Self::Wrong,
        };
        let first = OffsetDateTime::new_utc(time::Date::MIN, time::Time::MIDNIGHT).unix_timestamp();
        let last = OffsetDateTime::new_utc(time::Date::MAX, time::Time::MIDNIGHT).unix_timestamp();
        OffsetDateTime::from_unix_timestamp(seconds.clamp(first, last)).map_or(Self::Wrong, Self::At)
    }

    fn known(self, name: &'static str) -> Result<Option<OffsetDateTime>, TokenError> {
        match self {
            Self::Absent => Ok(None),
            Self::At(time) => Ok(Some(time)),
            Self::Wrong => Err(TokenError::NotANumber(name)),
        }
    }
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
    fn a_token_is_valid_from_nbf_until_exp() {
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
        assert_eq!(claims(r#"{"exp":"10"}"#).unwrap().check_times(at(0)), Err(TokenError::NotANumber("exp")));
        assert_eq!(claims(r#"{"nbf":{}}"#).unwrap().check_times(at(0)), Err(TokenError::NotANumber("nbf")));
        assert_eq!(claims(r#"{"iat":"x"}"#).unwrap().check_times(at(0)), Ok(()));
    }

    #[test]
    fn a_leeway_moves_both_ends_and_checks_the_time_of_issue() {
        let check = |json: &str, now| claims(json).unwrap().check_times_within(at(now), Duration::seconds(30));
        let both = r#"{"exp":200,"nbf":100}"#;
        assert_eq!(check(both, 69), Err(TokenError::NotYetValid));
        assert_eq!(check(both, 70), Ok(()));
        assert_eq!(check(both, 230), Ok(()));
        assert_eq!(check(both, 231), Err(TokenError::Expired));
        assert_eq!(check(r#"{"iat":131}"#, 100), Err(TokenError::IssuedInFuture));
        assert_eq!(check(r#"{"iat":130}"#, 100), Ok(()));
        assert_eq!(check(r#"{"exp":null,"nbf":null,"iat":null}"#, 100), Ok(()));
    }

    #[test]
    fn with_a_leeway_a_number_that_is_not_whole_counts_as_zero_and_the_first_wrong_claim_is_named() {
        let check = |json: &str| claims(json).unwrap().check_times_within(at(1_000), Duration::seconds(30));
        for expired in [r#"{"exp":2000.5}"#, r#"{"exp":1e300}"#, r#"{"exp":18446744073709551615}"#, r#"{"exp":-1e300}"#]
        {
            assert_eq!(check(expired), Err(TokenError::Expired), "{expired}");
        }
        for fine in [r#"{"exp":2e3}"#, r#"{"exp":2000.0}"#, r#"{"nbf":5000.5}"#, r#"{"iat":1e300}"#] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for name in ["exp", "nbf", "iat"] {
            for value in [r#""1""#, "{}", "[]", "true"] {
                let error = check(&format!("{{\"{name}\":{value}}}")).unwrap_err();
                assert_eq!(error, TokenError::NotANumber(name), "{value}");
                assert!(error.is_untimely());
            }
        }
        assert_eq!(check(r#"{"iat":"x","exp":1}"#), Err(TokenError::Expired));
        assert_eq!(check(r#"{"iat":"x","nbf":"x"}"#), Err(TokenError::NotANumber("nbf")));
    }

    #[test]
    fn a_payload_that_is_not_an_object_is_rejected() {
        for text in ["", "[]", "1", "null", "{", r#"{"a":1}x"#] {
            assert!(claims(text).is_err(), "{text}");
        }
        assert!(Claims::parse(vec![0xff, 0xfe]).is_err());
        assert!(claims(&"[".repeat(10_000)).is_err());
    }
}
