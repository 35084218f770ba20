//! Durations and sizes in the notation of the configuration.

use std::time::Duration;

/// Parses a duration such as `1s`, `1h30m`, `1.5m`, `250ms`. A bare `0` is allowed.
///
/// Negative durations have no meaning for any key and are rejected.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() || text.len() > 64 {
        return None;
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end =
            rest.find(|character: char| character.is_ascii_digit() || character == '.').unwrap_or(rest.len());
        let seconds = match &rest[..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        rest = &rest[unit_end..];
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
    }
    // Binary fractions are not exact (`0.1s`), and no duration needs a finer unit than this
    let nanos = total.as_nanos();
    let rounded = if nanos > 1_000_000 { (nanos + 500) / 1000 * 1000 } else { nanos };
    Some(Duration::from_nanos(u64::try_from(rounded).ok()?))
}

/// Parses a size such as `50MiB`, `5MB`, `500KB`, `1024`, in bytes.
///
/// `MB` and `MiB` are the same, 1024-based.
pub(crate) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let exponent = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return None,
    };
    let factor = 1024_u64.pow(exponent);
    if let Ok(number) = number.parse::<u64>() {
        return number.checked_mul(factor);
    }
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    // Far above any disk, far below the saturation of the conversion
    (bytes.is_finite() && bytes < 1e18).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        let table = [
            ("1s", Some(1_000)),
            ("2m", Some(120_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("250ms", Some(250)),
            ("24h0m0s", Some(86_400_000)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("5", None),
            ("-1s", None),
            ("1d", None),
            ("s", None),
            ("", None),
            ("1.2.3s", None),
            ("99999999999999999999h", None),
        ];
        for (text, millis) in table {
            assert_eq!(duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn megabytes_and_mebibytes_are_the_same() {
        let table = [
            ("50MiB", Some(52_428_800)),
            ("5MB", Some(5_242_880)),
            ("500KB", Some(512_000)),
            ("1024", Some(1024)),
            ("1.5 GiB", Some(1_610_612_736)),
            ("0", Some(0)),
            ("MB", None),
            ("5 bananas", None),
            ("-5MB", None),
            ("99999999999999999999PB", None),
        ];
        for (text, bytes) in table {
            assert_eq!(size(text), bytes, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in any::<String>()) {
            let _ = (duration(&text), size(&text));
        }
    }
}
