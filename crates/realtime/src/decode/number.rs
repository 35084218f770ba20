//! Numbers in PostgreSQL's text form.

use super::error::ValueRenderError;

/// The exponents that are written out: those of `float8`, with room for the digits of its mantissa.
const MAX_EXPONENT: i32 = 400;

/// Returns true if the text is a value that JSON has no number for.
pub(super) fn is_not_a_number(text: &str) -> bool {
    matches!(text, "NaN" | "Infinity" | "-Infinity")
}

/// Writes a number without an exponent, as `numeric` has it: `1e+20` as `100000000000000000000`.
/// Zero has no sign.
pub(super) fn write_number(out: &mut Vec<u8>, text: &str) -> Result<(), ValueRenderError> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().map_err(|_| ValueRenderError::Malformed("number"))?),
        None => (unsigned, 0_i32),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    // As JSON has it: digits at both sides of the point, and no zero at the start but a single one,
    // which no number with an exponent has
    let has_digits = !whole.is_empty() && !mantissa.ends_with('.') && digits().all(|digit| digit.is_ascii_digit());
    let is_normalised = !whole.starts_with('0') || (whole == "0" && exponent == 0);
    if !has_digits || !is_normalised || exponent.abs() > MAX_EXPONENT {
        return Err(ValueRenderError::Malformed("number"));
    }
    if is_negative && digits().any(|digit| digit != b'0') {
        out.push(b'-');
    }
    if exponent == 0 {
        out.extend_from_slice(mantissa.as_bytes());
        return Ok(());
    }
    // The decimal point follows this digit, counted from 1
    let point = i64::try_from(whole.len()).unwrap_or(i64::MAX).saturating_add(exponent.into());
    let digits: Vec<u8> = digits().collect();
    let start = out.len();
    match usize::try_from(point) {
        Ok(point) if point > 0 => {
            out.extend_from_slice(digits.get(..point).unwrap_or(&digits));
            out.resize(start + point, b'0');
            if let Some(rest) = digits.get(point..).filter(|rest| !rest.is_empty()) {
                out.push(b'.');
                out.extend_from_slice(rest);
            }
        }
        _ => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + usize::try_from(point.unsigned_abs()).unwrap_or_default(), b'0');
            out.extend_from_slice(&digits);
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_written_out() {
        for (text, written) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("12.50", "12.50"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("1e+15", "1000000000000000"),
            ("-1.25e+16", "-12500000000000000"),
            ("1.234567e+05", "123456.7"),
            ("1.5e-07", "0.00000015"),
            ("5e-324", &format!("0.{}5", "0".repeat(323))),
            ("1.7976931348623157e+308", &format!("17976931348623157{}", "0".repeat(292))),
        ] {
            let mut out = Vec::new();
            write_number(&mut out, text).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), written, "{text}");
        }
        for text in ["", "-", "e5", ".5", "1e", "1e401", "1e-9999999999", "0x1", "1 ", "NaN", "1.2.3", "1e5e5"] {
            assert!(write_number(&mut Vec::new(), text).is_err(), "{text}");
        }
        for text in ["1.", "01", "-00.5", "1.e5", "0e5", "0.5e+20"] {
            assert!(write_number(&mut Vec::new(), text).is_err(), "{text} is not a number of JSON");
        }
    }
}
