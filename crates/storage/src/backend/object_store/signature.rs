//! Signatures of requests to a store: AWS Signature Version 4 in headers.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use url::Url;

use crate::settings::S3StoreKey;
use crate::sigv4::{ALGORITHM, SigningScope};

const MOMENT: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");
/// The characters of a query that stay as they are.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The characters of a key that stay as they are.
const UNRESERVED_AND_SLASH: &AsciiSet = &UNRESERVED.remove(b'/');

const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Encodes a key for a path.
pub(super) fn encode_key(key: &str) -> String {
    utf8_percent_encode(key, UNRESERVED_AND_SLASH).to_string()
}

/// Encodes parameters in the order and form that a signature covers.
pub(super) fn encode_query(parameters: &[(&str, &str)]) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, UNRESERVED).to_string();
    let mut pairs: Vec<(String, String)> =
        parameters.iter().map(|(name, value)| (encoded(name), encoded(value))).collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// Signs requests to a store.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestSigner<'a> {
    pub region: &'a str,
    pub key: &'a S3StoreKey,
}

impl RequestSigner<'_> {
    /// Adds the headers that authenticate a request. `payload` is the SHA-256 of its body in
    /// hexadecimal digits; the URL has the form of [`encode_key`] and [`encode_query`].
    pub fn sign(self, method: &Method, url: &Url, headers: &mut HeaderMap, payload: &str, now: OffsetDateTime) {
        let moment = now.to_offset(time::UtcOffset::UTC).format(MOMENT).unwrap_or_default();
        set(headers, header::HOST, &host(url));
        set(headers, DATE, &moment);
        set(headers, CONTENT_SHA256, payload);
        if let Some(token) = &self.key.session_token {
            set(headers, SECURITY_TOKEN, token.expose());
        }
        let mut signed: Vec<(&str, &str)> = headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("x-amz-") || matches!(name.as_str(), "host" | "content-md5"))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?.trim())))
            .collect();
        signed.sort_unstable();
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut canonical = format!("{method}\n{}\n{}\n", url.path(), url.query().unwrap_or_default());
        for (name, value) in &signed {
            let _ = writeln!(canonical, "{name}:{value}");
        }
        let _ = write!(canonical, "\n{names}\n{payload}");

        let day = moment.get(..8).unwrap_or_default();
        let scope = SigningScope { date: day, region: self.region, service: "s3" };
        let S3StoreKey { access_key_id, secret_access_key, .. } = self.key;
        let text = scope.string_to_sign(&moment, &canonical);
        let signature = hex::encode(hmac::sign(&scope.signing_key(secret_access_key), text.as_bytes()));
        let scope = scope.text();
        let authorization =
            format!("{ALGORITHM} Credential={access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}");
        set(headers, header::AUTHORIZATION, &authorization);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(mut value) = HeaderValue::from_str(value) {
        value.set_sensitive(name == SECURITY_TOKEN || name == header::AUTHORIZATION);
        headers.insert(name, value);
    }
}

/// Returns the value of `Host` for a URL.
fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use portico_base::{Secret, hash};
    use time::macros::datetime;

    use super::*;

    /// The examples of the documentation of Signature Version 4.
    #[test]
    fn signatures_are_the_published_ones() {
        let key = S3StoreKey {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: None,
        };
        let signer = RequestSigner { region: "us-east-1", key: &key };
        let now = datetime!(2013-05-24 00:00 UTC);
        for (query, expected) in [
            (vec![("lifecycle", "")], "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
            (
                vec![("prefix", "J"), ("max-keys", "2")],
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let url = format!("https://examplebucket.s3.amazonaws.com/?{}", encode_query(&query));
            let mut headers = HeaderMap::new();
            let payload = hash::sha256_hex(b"");
            signer.sign(&Method::GET, &Url::parse(&url).unwrap(), &mut headers, &payload, now);
            let authorization = headers[header::AUTHORIZATION].to_str().unwrap();
            assert!(authorization.ends_with(&format!("Signature={expected}")), "{authorization}");
            assert!(headers[header::AUTHORIZATION].is_sensitive());
        }
    }

    #[test]
    fn a_key_is_encoded_once_and_stays_as_it_is_in_a_url() {
        let encoded = encode_key("b/ä+ (1)'/a//b=%.x");
        assert_eq!(encoded, "b/%C3%A4%2B%20%281%29%27/a//b%3D%25.x");
        let url = Url::parse(&format!("http://127.0.0.1/{encoded}")).unwrap();
        assert_eq!(url.path(), format!("/{encoded}"));
    }
}
