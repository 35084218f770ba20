//! Signature Version 4, as far as requests to this server and requests to a store have it in
//! common.

use aws_lc_rs::hmac;
use portico_base::{Secret, hash};

/// The only algorithm.
pub(crate) const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The scope of a signing key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SigningScope<'a> {
    /// `YYYYMMDD`
    pub date: &'a str,
    pub region: &'a str,
    pub service: &'a str,
}

impl SigningScope<'_> {
    /// Returns the scope as strings to sign contain it.
    pub fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.date, self.region, self.service)
    }

    /// Derives the signing key of a secret.
    pub fn signing_key(&self, secret: &Secret) -> hmac::Key {
        let first = [b"AWS4", secret.expose().as_bytes()].concat();
        let fields = [self.date, self.region, self.service, "aws4_request"];
        fields.iter().fold(hmac::Key::new(hmac::HMAC_SHA256, &first), |key, field| {
            hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, field.as_bytes()).as_ref())
        })
    }

    /// Returns the string to sign of a canonical request. `time` has the form `YYYYMMDDTHHMMSSZ`.
    pub fn string_to_sign(&self, time: &str, canonical_request: &str) -> String {
        let hash = hash::sha256_hex(canonical_request.as_bytes());
        format!("{ALGORITHM}\n{time}\n{}\n{hash}", self.text())
    }
}
