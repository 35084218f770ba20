//! Unpredictable values from the generator of the cryptographic library. Every character of an
//! alphabet is equally likely.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

const BASE32_LOWER: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const ALPHANUMERIC: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Returns `N` random bytes.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0; N];
    fill(&mut out);
    out
}

/// Returns `bytes` random bytes as URL-safe base64 without padding.
pub fn base64url(bytes: usize) -> String {
    let mut raw = vec![0; bytes];
    fill(&mut raw);
    URL_SAFE_NO_PAD.encode(raw)
}

/// Returns `n` random decimal digits, leading zeros included.
pub fn digits(n: usize) -> String {
    pick(b"0123456789", n)
}

/// Returns `n` random characters of `a-z2-7` (five bits each).
pub fn base32_lower(n: usize) -> String {
    pick(BASE32_LOWER, n)
}

/// Returns `n` random characters of `A-Za-z0-9`.
pub fn alphanumeric(n: usize) -> String {
    pick(ALPHANUMERIC, n)
}

/// Returns a random (version 4) UUID.
pub fn uuid() -> Uuid {
    uuid::Builder::from_random_bytes(bytes()).into_uuid()
}

fn fill(out: &mut [u8]) {
    rand::fill(out).expect("the random generator works: nothing is safe without it");
}

/// Returns `n` characters of `alphabet` (at most 256 characters), each equally likely: bytes from
/// the last whole multiple of the alphabet's length on are discarded.
fn pick(alphabet: &[u8], n: usize) -> String {
    let fair = 256 - 256 % alphabet.len();
    let mut out = String::with_capacity(n);
    let mut pool = [0_u8; 64];
    while out.len() < n {
        fill(&mut pool);
        let chosen = pool.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < fair);
        out.extend(chosen.take(n - out.len()).map(|byte| char::from(alphabet[byte % alphabet.len()])));
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn values_have_the_length_and_alphabet_of_their_function() {
        for n in [0, 1, 6, 12, 63, 64, 65, 300] {
            assert_eq!(digits(n).len(), n);
            assert!(digits(n).bytes().all(|c| c.is_ascii_digit()));
            assert!(base32_lower(n).bytes().all(|c| BASE32_LOWER.contains(&c)));
            assert!(alphanumeric(n).bytes().all(|c| c.is_ascii_alphanumeric()));
        }
        assert_eq!(base64url(16).len(), 22);
        assert_eq!(uuid().get_version_num(), 4);
    }

    #[test]
    fn every_character_of_an_alphabet_occurs() {
        let seen: HashSet<char> = alphanumeric(20_000).chars().collect();
        assert_eq!(seen.len(), ALPHANUMERIC.len());
        let seen: HashSet<char> = digits(2_000).chars().collect();
        assert_eq!(seen.len(), 10);
    }
}
