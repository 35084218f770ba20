//! The stored forms of passwords: bcrypt for new ones; argon2 and the scrypt of Firebase for
//! imported accounts.

use aes::cipher::{KeyIvInit as _, StreamCipher as _};
use argon2::{Algorithm, Argon2, Params, PasswordHash, Version};
use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use subtle::ConstantTimeEq as _;

/// Longest password that bcrypt uses in full.
pub const MAX_BYTES: usize = 72;

/// The standard alphabet, with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Greatest cost of a bcrypt hash of another server: a few seconds.
const BCRYPT_MAX_COST: u32 = 16;

/// Most memory of an argon2 hash, in KiB.
const ARGON2_MAX_MEMORY: u32 = 1_048_576;

pub(super) fn hash(password: &str, cost: u32) -> Result<String, bcrypt::BcryptError> {
    Ok(bcrypt::hash_with_result(password, cost)?.format_for_version(bcrypt::Version::TwoA))
}

/// Returns a well-formed hash that matches no password, with the configured cost.
pub(super) fn unmatchable(cost: u32) -> String {
    let salt: String = std::iter::repeat_n('.', 22).collect();
    let nothing: String = std::iter::repeat_n('.', 31).collect();
    format!("$2a${cost:02}${salt}{nothing}")
}

/// Returns true if the stored form is not the one that [`hash`] returns.
pub(super) fn is_outdated(stored: &str, cost: u32) -> bool {
    let is_bcrypt = ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| stored.starts_with(prefix));
    !is_bcrypt || stored.get(4..6).and_then(|text| text.parse::<u32>().ok()).is_none_or(|stored| stored < cost)
}

/// Returns true for a hash of another server that [`verify`] computes within a request.
pub(crate) fn is_known_form(stored: &str) -> bool {
    if stored.starts_with("$2") {
        let parts = stored.parse::<bcrypt::HashParts>();
        return stored.len() == 60 && parts.is_ok_and(|parts| parts.get_cost() <= BCRYPT_MAX_COST);
    }
    if stored.starts_with("$argon2") {
        return argon2_form(stored).is_some();
    }
    stored.strip_prefix("$fbscrypt$").is_some_and(|rest| firebase_form(rest).is_some())
}

/// Compares a password with any stored form. A form that cannot be parsed matches nothing.
pub(super) fn verify(password: &str, stored: &str) -> bool {
    if stored.starts_with("$2") {
        // GoTrue's bcrypt ignores bytes beyond its limit, so that long passwords of imported
        // accounts keep working
        let bytes = &password.as_bytes()[..password.len().min(MAX_BYTES)];
        return bcrypt::verify(bytes, stored).unwrap_or(false);
    }
    if stored.starts_with("$argon2") {
        return verify_argon2(password, stored).unwrap_or(false);
    }
    if let Some(rest) = stored.strip_prefix("$fbscrypt$") {
        return verify_firebase(password, rest).unwrap_or(false);
    }
    false
}

/// Parses an argon2 hash that [`verify`] computes: within its limits, and without further data.
fn argon2_form(stored: &str) -> Option<(PasswordHash<'_>, Algorithm, Params)> {
    let parsed = PasswordHash::new(stored).ok()?;
    let algorithm = Algorithm::try_from(parsed.algorithm).ok()?;
    if algorithm == Algorithm::Argon2d || parsed.version != Some(19) {
        return None;
    }
    if parsed.params.get("keyid").is_some() || parsed.params.get("data").is_some() {
        return None;
    }
    let params = Params::try_from(&parsed).ok()?;
    if params.m_cost() > ARGON2_MAX_MEMORY || params.t_cost() > 20 || params.p_cost() > 16 {
        return None;
    }
    (parsed.hash.is_some() && parsed.salt.is_some()).then_some((parsed, algorithm, params))
}

fn verify_argon2(password: &str, stored: &str) -> Option<bool> {
    let (parsed, algorithm, params) = argon2_form(stored)?;
    let expected = parsed.hash?;
    let mut salt = [0u8; 64];
    let salt = parsed.salt?.decode_b64(&mut salt).ok()?;
    let mut output = vec![0u8; expected.len()];
    Argon2::new(algorithm, Version::V0x13, params).hash_password_into(password.as_bytes(), salt, &mut output).ok()?;
    Some(output.ct_eq(expected.as_bytes()).into())
}

/// The parts of a hash of Firebase.
struct FirebaseForm {
    params: scrypt::Params,
    /// With the separator at the end.
    salt: Vec<u8>,
    signer_key: Vec<u8>,
    expected: Vec<u8>,
}

/// Parses `v=1,n=14,r=8,p=1,ss=<salt separator>,sk=<signer key>$<salt>$<hash>`.
fn firebase_form(rest: &str) -> Option<FirebaseForm> {
    let mut parts = rest.split('$');
    let (parameters, salt, expected) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let field = |name: &str| {
        parameters.split(',').find_map(|part| part.split_once('=').filter(|(key, _)| *key == name).map(|(_, v)| v))
    };
    if field("v")? != "1" {
        return None;
    }
    let log_n: u8 = field("n")?.parse().ok()?;
    let r: u32 = field("r")?.parse().ok()?;
    let p: u32 = field("p")?.parse().ok()?;
    // 128 * r * 2^n bytes of memory: at most 256 MiB
    if !(1..=20).contains(&log_n) || !(1..=32).contains(&r) || !(1..=16).contains(&p) || u64::from(r) << log_n > 1 << 21
    {
        return None;
    }
    let mut salt = BASE64.decode(salt).ok()?;
    salt.extend(BASE64.decode(field("ss")?).ok()?);
    let signer_key = BASE64.decode(field("sk")?).ok()?;
    let expected = BASE64.decode(expected).ok().filter(|expected| !expected.is_empty())?;
    Some(FirebaseForm { params: scrypt::Params::new(log_n, r, p, 32).ok()?, salt, signer_key, expected })
}

fn verify_firebase(password: &str, rest: &str) -> Option<bool> {
    let FirebaseForm { params, salt, mut signer_key, expected } = firebase_form(rest)?;
    let mut key = [0u8; 32];
    scrypt::scrypt(password.as_bytes(), &salt, &params, &mut key).ok()?;
    let mut cipher = ctr::Ctr128BE::<aes::Aes256>::new(&key.into(), &[0u8; 16].into());
    cipher.apply_keystream(&mut signer_key);
    Some(bool::from(signer_key.ct_eq(&expected)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn published_hashes_of_every_form_match() {
        // openwall's test vector, and the same with the other prefixes
        for prefix in ["$2a$", "$2b$", "$2y$"] {
            let stored = format!("{prefix}05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW");
            assert!(verify("U*U", &stored));
            assert!(!verify("U*U*", &stored));
        }
        // The example of Firebase's own documentation
        let firebase = "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==$42xEC+ixf3L2lw==$lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==";
        assert!(verify("user1password", firebase));
        assert!(!verify("user2password", firebase));
    }

    #[test]
    fn argon2_matches_within_its_limits() {
        use argon2::PasswordHasher as _;
        let salt = argon2::password_hash::SaltString::from_b64("c29tZXNhbHRzYWx0").unwrap();
        for algorithm in [Algorithm::Argon2id, Algorithm::Argon2i] {
            let argon2 = Argon2::new(algorithm, Version::V0x13, Params::new(64, 1, 1, None).unwrap());
            let stored = argon2.hash_password(b"password", &salt).unwrap().to_string();
            assert!(verify("password", &stored), "{stored}");
            assert!(!verify("passwore", &stored));
            assert!(!verify("password", &stored.replace("v=19", "v=16")));
            assert!(!verify("password", &stored.replace("m=64", "m=4000000")));
            assert!(is_outdated(&stored, 10));
        }
    }

    #[test]
    fn the_unmatchable_hash_is_parsed_and_matches_nothing() {
        let stored = unmatchable(4);
        assert!(bcrypt::verify("anything", &stored).is_ok());
        assert!(!verify("", &stored));
    }

    #[test]
    fn hashes_of_other_servers_are_recognized() {
        for known in [
            "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
            "$2y$10$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
            "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzYWx0$ZGlnZXN0ZGlnZXN0",
            "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=jxspr8Ki$42xEC+ixf3L2lw==$lSrfV15cpx95",
        ] {
            assert!(is_known_form(known), "{known}");
        }
        for unknown in [
            "",
            "plain text",
            "$2a$05$short",
            "$2a$31$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
            "$argon2d$v=19$m=64,t=1,p=1$c29tZXNhbHRzYWx0$ZGlnZXN0ZGlnZXN0",
            "$fbscrypt$v=2,n=14,r=8,p=1,ss=Bw==,sk=jxspr8Ki$42xEC+ixf3L2lw==$lSrfV15cpx95",
            "{\"key_id\":\"k1\"}",
        ] {
            assert!(!is_known_form(unknown), "{unknown}");
        }
    }

    #[test]
    fn weaker_and_imported_forms_are_outdated() {
        assert!(!is_outdated("$2a$10$x", 10));
        assert!(!is_outdated("$2b$12$x", 10));
        assert!(is_outdated("$2a$08$x", 10));
        assert!(is_outdated("$argon2id$", 10));
    }

    proptest! {
        #[test]
        fn no_stored_text_panics(stored in "\\$(2a|argon2id|fbscrypt)\\$[a-z0-9=,$./+]{0,60}|\\PC{0,40}") {
            // A cost of 31 is well-formed and would take hours
            prop_assume!(!stored.starts_with("$2a$"));
            verify("password", &stored);
            is_outdated(&stored, 10);
        }
    }
}
