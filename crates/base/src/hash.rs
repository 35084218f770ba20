//! Digests of values that are stored or compared as a hash.

use aws_lc_rs::digest;

/// Returns the SHA-256 digest of `data`.
pub fn sha256(data: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, data).as_ref());
    out
}

/// Returns the SHA-256 digest of `data` in lower-case hexadecimal digits.
pub fn sha256_hex(data: &[u8]) -> String {
    hex::encode(sha256(data))
}

/// Returns the SHA-224 digest of `data` in lower-case hexadecimal digits: the form in which
/// one-time tokens are stored.
pub fn sha224_hex(data: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA224, data))
}

/// Returns the SHA-1 digest of `data` in lower-case hexadecimal digits. Only for protocols that are
/// defined on it (the range query of the breached-password service), never for protection.
pub fn sha1_hex(data: &[u8]) -> String {
    hex::encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_published_ones() {
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(sha224_hex(b"abc"), "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7");
        assert_eq!(sha1_hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    }
}
