//! Authenticator apps as second factors: time-based one-time passwords (RFC 6238) with SHA-1, six
//! digits and 30 seconds.

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use portico_base::random;
use qrcode::{Color, EcLevel, QrCode};
use serde_json::{Map, json};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use time::OffsetDateTime;
use url::Url;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::factors::draft::{EnrollBody, FactorDraft};
use crate::model::ids::FactorId;
use crate::model::{Factor, User};
use crate::operation::AccountOperation;
use crate::sql::{mfa_factors, totp_steps};

/// The length of a new secret in bytes: the length of a SHA-1 key that RFC 4226 recommends.
const SECRET_BYTES: usize = 20;
/// The lifetime of one code in seconds.
const PERIOD: i64 = 30;
/// The steps before and after the current one whose codes are accepted, for clocks that differ.
const SKEW: i64 = 1;
const DIGITS: usize = 6;

/// Characters that stay as they are in a component of the URI.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The same for the account's name in the label, where an email address stays readable.
const LABEL: &AsciiSet = &UNRESERVED.remove(b'@');

/// Returns the number of the time step that a time is in.
pub(crate) fn step_at(time: OffsetDateTime) -> i64 {
    time.unix_timestamp().div_euclid(PERIOD)
}

/// A shared secret of an authenticator app.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TotpSecret(Vec<u8>);

impl TotpSecret {
    /// Makes a random secret.
    pub fn generate() -> Self {
        Self(random::bytes::<SECRET_BYTES>().to_vec())
    }

    /// Reads the written form (Base32 without padding). `None`: it is not Base32.
    pub fn parse(text: &str) -> Option<Self> {
        BASE32_NOPAD.decode(text.trim_end_matches('=').to_ascii_uppercase().as_bytes()).ok().map(Self)
    }

    /// Returns the written form.
    pub fn text(&self) -> String {
        BASE32_NOPAD.encode(&self.0)
    }

    /// Returns the URI that authenticator apps read. `account` is the person's name in the app.
    pub fn uri(&self, issuer: &str, account: &str) -> String {
        let escaped = |text: &str| utf8_percent_encode(text, UNRESERVED).to_string();
        let label_issuer = escaped(issuer);
        let account = utf8_percent_encode(account, LABEL).to_string();
        format!(
            "otpauth://totp/{label_issuer}:{account}?algorithm=SHA1&digits={DIGITS}&issuer={label_issuer}&period={PERIOD}&secret={}",
            self.text()
        )
    }

    /// Returns the time step whose code this is, if it is the code of a step within the accepted
    /// skew that comes after `last_step`. The step of an accepted code is kept, so that a code is
    /// used once.
    ///
    /// Takes the same time whichever step matches.
    pub fn matching_step(&self, code: &str, now: OffsetDateTime, last_step: Option<i64>) -> Option<i64> {
        let code: [u8; DIGITS] = code.trim().as_bytes().try_into().ok()?;
        let current = step_at(now);
        let mut matching = i64::MIN;
        for step in current - SKEW..=current + SKEW {
            let is_code = self.code(step).ct_eq(&code);
            let is_unused = Choice::from(u8::from(last_step.is_none_or(|last| step > last)));
            matching = i64::conditional_select(&matching, &step, is_code & is_unused);
        }
        (matching != i64::MIN).then_some(matching)
    }

    /// Returns the code of a time step.
    fn code(&self, step: i64) -> [u8; DIGITS] {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let bytes = tag.as_ref();
        let offset = usize::from(bytes[bytes.len() - 1] & 0xf);
        let word = u32::from_be_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]]);
        let mut number = word & 0x7fff_ffff;
        let mut code = [b'0'; DIGITS];
        for digit in code.iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
        }
        code
    }
}

/// Makes the secret of a new factor.
///
/// # Errors
/// 400 `validation_failed` for an issuer that makes the code too large.
pub(super) fn draft(auth: &Auth, id: FactorId, user: &User, body: &EnrollBody) -> Result<FactorDraft, AuthError> {
    let secret = TotpSecret::generate();
    let site = || Url::parse(&auth.settings().site_url).ok().map(|url| authority(&url));
    let issuer = Some(body.issuer.clone()).filter(|issuer| !issuer.is_empty()).or_else(site).unwrap_or_default();
    let account = [&user.email, &user.phone].into_iter().find(|contact| !contact.is_empty()).cloned();
    let uri = secret.uri(&issuer, &account.unwrap_or_else(|| user.id.to_string()));
    let qr_code = qr_code(&uri).ok_or(ContractError::FactorIssuerTooLong)?;
    let response = json!({ "qr_code": qr_code, "secret": secret.text(), "uri": uri });
    Ok(FactorDraft {
        secret: Some(auth.columns().encrypt(id.0, &secret.text())),
        phone: None,
        response: Map::from_iter([("totp".to_owned(), response)]),
    })
}

/// Returns host and port of a URL.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A right code that is not used up yet.
#[derive(Clone)]
pub(super) struct MatchedCode {
    step: i64,
    /// The secret, where its stored form is outdated.
    outdated: Option<String>,
}

/// Compares a code. `None`: it is wrong, or was used.
///
/// # Errors
/// Those of the database, and 500 for a secret that cannot be read.
pub(super) async fn compare(auth: &Auth, factor: &Factor, code: &str) -> Result<Option<MatchedCode>, AuthError> {
    let client = auth.database().client().await?;
    let stored = mfa_factors::secret(&client, factor.id).await?.unwrap_or_default();
    let last = totp_steps::last(&client, factor.id).await?;
    drop(client);
    let column = auth.columns().decrypt(factor.id.0, &stored).map_err(AuthError::internal)?;
    let unreadable = || AuthError::internal(anyhow::anyhow!("the secret of factor {} is not Base32", factor.id));
    let secret = TotpSecret::parse(&column.text).filter(|_| !stored.is_empty()).ok_or_else(unreadable)?;
    let now = auth.now();
    // A step that is farther away was written while the clock was wrong
    let last = last.filter(|last| *last <= step_at(now) + SKEW);
    let step = secret.matching_step(code, now, last);
    Ok(step.map(|step| MatchedCode { step, outdated: column.is_outdated.then_some(column.text) }))
}

/// Uses up a code.
///
/// # Errors
/// 422 `mfa_verification_failed` if another request used it meanwhile.
pub(super) async fn use_up(op: AccountOperation<'_>, factor: FactorId, code: MatchedCode) -> Result<(), AuthError> {
    if !totp_steps::advance(op.tx, factor, code.step).await? {
        return Err(ContractError::TotpCodeWrong.into());
    }
    if let Some(secret) = code.outdated {
        mfa_factors::set_secret(op.tx, factor, &op.auth.columns().encrypt(factor.0, &secret)).await?;
    }
    Ok(())
}

/// Returns a text as a QR code in SVG. `None`: the text is too long for one.
///
/// Colours have names, since the official client puts the document into a `data:` URL unescaped,
/// where a `#` would end it.
pub(crate) fn qr_code(text: &str) -> Option<String> {
    use std::fmt::Write as _;
    /// The side of a module in pixels.
    const MODULE: usize = 3;
    /// The light modules around the code, which readers need.
    const QUIET: usize = 4;
    let code = QrCode::with_error_correction_level(text, EcLevel::H).ok()?;
    let modules = code.width();
    let side = MODULE * (modules + 2 * QUIET);
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"{side}\" height=\"{side}\" \
         viewBox=\"0 0 {side} {side}\" shape-rendering=\"crispEdges\">\n<rect x=\"0\" y=\"0\" width=\"{side}\" height=\"{side}\" style=\"fill:white\"/>\n"
    );
    let colors = code.to_colors();
    for (row, line) in colors.chunks(modules).enumerate() {
        let mut column = 0;
        while column < modules {
            // One rectangle for the dark modules that lie side by side
            let dark = line[column..].iter().take_while(|color| **color == Color::Dark).count();
            if dark > 0 {
                let (x, y) = (MODULE * (column + QUIET), MODULE * (row + QUIET));
                let width = MODULE * dark;
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{MODULE}\" style=\"fill:black\"/>"
                );
            }
            column += dark.max(1);
        }
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap()
    }

    fn code_at(secret: &TotpSecret, seconds: i64) -> String {
        String::from_utf8(secret.code(seconds / PERIOD).to_vec()).unwrap()
    }

    #[test]
    fn codes_are_those_of_the_standard() {
        // RFC 6238, appendix B, of which six of the eight digits count
        let secret = TotpSecret(b"12345678901234567890".to_vec());
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(code_at(&secret, seconds), code);
        }
    }

    #[test]
    fn a_code_of_the_step_before_or_behind_is_accepted() {
        let secret = TotpSecret::generate();
        let now = 1_800_000_015;
        for (offset, is_accepted) in [(-60, false), (-30, true), (0, true), (30, true), (60, false)] {
            let step = secret.matching_step(&code_at(&secret, now + offset), at(now), None);
            assert_eq!(step, is_accepted.then_some((now + offset) / PERIOD), "{offset}");
        }
    }

    #[test]
    fn a_code_is_accepted_once() {
        let secret = TotpSecret::generate();
        let now = 1_800_000_015;
        let code = code_at(&secret, now);
        let step = secret.matching_step(&code, at(now), None);
        assert!(step.is_some());
        assert_eq!(secret.matching_step(&code, at(now), step), None);
        assert_eq!(secret.matching_step(&code_at(&secret, now - 30), at(now), step), None);
        assert!(secret.matching_step(&code_at(&secret, now + 30), at(now), step).is_some());
    }

    #[test]
    fn a_code_has_six_digits_and_may_have_spaces_around() {
        let secret = TotpSecret::generate();
        let now = 1_800_000_015;
        let code = code_at(&secret, now);
        assert!(secret.matching_step(&format!(" {code}\n"), at(now), None).is_some());
        for wrong in ["", "12345", &format!("{code}0"), "abcdef", "１２３４５６"] {
            assert_eq!(secret.matching_step(wrong, at(now), None), None, "{wrong}");
        }
    }

    #[test]
    fn the_written_form_has_32_characters_and_comes_back() {
        let secret = TotpSecret::generate();
        assert_eq!(secret.text().len(), 32);
        assert!(TotpSecret::parse(&secret.text()) == Some(secret.clone()));
        assert!(TotpSecret::parse(&secret.text().to_lowercase()) == Some(secret));
        assert!(TotpSecret::parse("01!").is_none());
    }

    #[test]
    fn the_uri_escapes_odd_names() {
        let secret = TotpSecret(b"12345678901234567890".to_vec());
        assert_eq!(
            secret.uri("Acme & Söhne: #1", "ann+x@example.com"),
            "otpauth://totp/Acme%20%26%20S%C3%B6hne%3A%20%231:ann%2Bx@example.com?algorithm=SHA1&digits=6\
             &issuer=Acme%20%26%20S%C3%B6hne%3A%20%231&period=30&secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"
        );
    }

    #[test]
    fn the_qr_code_is_an_svg_without_number_signs() {
        let svg = qr_code(&TotpSecret::generate().uri("Acme #1", "ann@example.com")).unwrap();
        assert!(!svg.contains('#'));
        assert!(svg.starts_with("<?xml") && svg.ends_with("</svg>\n"));
        assert!(qr_code(&"x".repeat(3000)).is_none());
    }

    #[test]
    fn the_picture_has_the_modules_of_the_code() {
        let text = "otpauth://totp/portico.test:a?secret=JBSWY3DPEHPK3PXP&issuer=portico.test";
        let code = QrCode::with_error_correction_level(text, EcLevel::H).unwrap();
        let svg = qr_code(text).unwrap();
        let number = |line: &str, name: &str| -> usize {
            let value = line.split(&format!(" {name}=\"")).nth(1).unwrap();
            value.split('"').next().unwrap().parse().unwrap()
        };
        let side = number(svg.lines().nth(1).unwrap(), "width");
        assert_eq!(side, 3 * (code.width() + 8), "four light modules on each side");
        let mut grid = vec![vec![Color::Light; side]; side];
        for line in svg.lines().filter(|line| line.contains("fill:black")) {
            let (x, y) = (number(line, "x"), number(line, "y"));
            for row in &mut grid[y..y + number(line, "height")] {
                row[x..x + number(line, "width")].fill(Color::Dark);
            }
        }
        for (y, line) in grid.iter().enumerate() {
            for (x, color) in line.iter().enumerate() {
                let module = |at: usize| (at / 3).checked_sub(4).filter(|at| *at < code.width());
                let expected = match (module(x), module(y)) {
                    (Some(column), Some(row)) => code[(column, row)],
                    _ => Color::Light,
                };
                assert_eq!(*color, expected, "at {x}, {y}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn no_text_panics(code: String, text: String, issuer: String) {
            let secret = TotpSecret::generate();
            let _ = secret.matching_step(&code, at(0), None);
            let _ = TotpSecret::parse(&text);
            let _ = qr_code(&secret.uri(&issuer, &text));
        }
    }
}
