//! The duration of a ban, in the notation of Go: `24h`, `1h30m`, `1.5h`.

use time::{Duration, OffsetDateTime};

use crate::error::ContractError;

/// The longest duration that Go can count, in nanoseconds.
const LONGEST: f64 = i64::MAX as f64;

/// A change of the ban of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ban {
    /// The ban ends.
    Lift,
    /// The account is banned for this time.
    For(Duration),
}

impl Ban {
    /// Parses `ban_duration`; `None` for an empty text.
    ///
    /// # Errors
    /// 400 `validation_failed`.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, ContractError> {
        match text {
            "" => Ok(None),
            "none" => Ok(Some(Self::Lift)),
            text => parse_duration(text)
                .map(|duration| Some(Self::For(duration)))
                .map_err(|detail| ContractError::BanDurationMalformed { detail }),
        }
    }

    /// Returns the end of the ban.
    pub(crate) fn until(self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        match self {
            Self::Lift => None,
            Self::For(duration) => Some(now.saturating_add(duration)),
        }
    }
}

/// Parses a duration of Go. The error is that of Go.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let shown: String = text.chars().take(64).collect();
    let invalid = || format!("time: invalid duration {shown:?}");
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanoseconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(digits);
        // At most one dot, and at least one digit
        let number: f64 = number.parse().map_err(|_| invalid())?;
        let letters = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(letters);
        let scale = match unit {
            "" => return Err(format!("time: missing unit in duration {shown:?}")),
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            unit => {
                let unit: String = unit.chars().take(16).collect();
                return Err(format!("time: unknown unit {unit:?} in duration {shown:?}"));
            }
        };
        nanoseconds += number * scale;
        if nanoseconds > LONGEST {
            return Err(invalid());
        }
        rest = behind;
    }
    let seconds = nanoseconds / 1e9;
    Ok(Duration::seconds_f64(if negative { -seconds } else { seconds }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, seconds) in [
            ("24h", 86_400.0),
            ("1h30m", 5400.0),
            ("1.5h", 5400.0),
            ("300ms", 0.3),
            ("-1h", -3600.0),
            ("+2s", 2.0),
            ("0", 0.0),
            ("876000h", 3_153_600_000.0),
            (".5s", 0.5),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::seconds_f64(seconds)), "{text}");
        }
        for (text, error) in [
            ("abc", r#"time: invalid duration "abc""#),
            ("10", r#"time: missing unit in duration "10""#),
            ("10d", r#"time: unknown unit "d" in duration "10d""#),
            ("h", r#"time: invalid duration "h""#),
            ("1.2.3h", r#"time: invalid duration "1.2.3h""#),
            ("9000000h", r#"time: invalid duration "9000000h""#),
            ("-", r#"time: invalid duration "-""#),
        ] {
            assert_eq!(parse_duration(text), Err(error.to_owned()), "{text}");
        }
        assert_eq!(Ban::parse(""), Ok(None));
        assert_eq!(Ban::parse("none"), Ok(Some(Ban::Lift)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-+]?[0-9.hmsun\u{b5}]{0,40}|\\PC{0,20}") {
            if let Ok(Some(ban)) = Ban::parse(&text) {
                ban.until(OffsetDateTime::UNIX_EPOCH);
            }
        }
    }
}
