//! The addresses and secrets of hooks, as an operator writes them.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portico_base::Secret;
use url::{Host, Url};

use crate::http_client::public_address::is_public;

/// The implementation of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookEndpoint {
    /// An HTTP server, which gets a signed POST.
    Http(Url),
    /// A PostgreSQL function.
    Function {
        /// The function's schema.
        schema: String,
        /// The function's name.
        name: String,
    },
}

/// A hook's address or secret that cannot work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HookEndpointError {
    /// The text is not a URL.
    #[error("it is not a URL")]
    NotUrl,
    /// Plain HTTP to another machine.
    #[error("only localhost, 127.0.0.1, and ::1 are supported with http")]
    PlainHttp,
    /// Another scheme.
    #[error("only postgres hooks and HTTPS functions are supported at the moment")]
    Scheme,
    /// An address of a private network.
    #[error("its address is inside a private network, which only private_addresses of [auth.hook] permits")]
    PrivateAddress,
    /// Not `pg-functions://postgres/<schema>/<function>`.
    #[error("it must be pg-functions://postgres/<schema>/<function>, of letters, digits and underscores")]
    Function,
    /// A secret of another form.
    #[error("a secret must be v1,whsec_<base64> with 32 to 88 characters of base64")]
    Secret,
    /// An asymmetric key pair, whose signatures are not specified.
    #[error("signatures with key pairs (v1a) are not supported: use v1,whsec_<base64>")]
    KeyPair,
}

impl HookEndpoint {
    /// Parses the address of a hook.
    ///
    /// # Errors
    /// [`HookEndpointError`] says which addresses work.
    pub fn parse(text: &str) -> Result<Self, HookEndpointError> {
        let url = Url::parse(text).map_err(|_| HookEndpointError::NotUrl)?;
        match url.scheme() {
            "https" => Ok(Self::Http(url)),
            "http" => {
                let is_local = match url.host() {
                    Some(Host::Domain(name)) => matches!(name, "localhost" | "host.docker.internal"),
                    Some(Host::Ipv4(address)) => address.is_loopback(),
                    Some(Host::Ipv6(address)) => address.is_loopback(),
                    None => false,
                };
                is_local.then_some(Self::Http(url)).ok_or(HookEndpointError::PlainHttp)
            }
            "pg-functions" => {
                let mut segments = url.path().trim_start_matches('/').split('/');
                let (Some(schema), Some(name), None) = (segments.next(), segments.next(), segments.next()) else {
                    return Err(HookEndpointError::Function);
                };
                if !is_identifier(schema) || !is_identifier(name) {
                    return Err(HookEndpointError::Function);
                }
                Ok(Self::Function { schema: schema.to_owned(), name: name.to_owned() })
            }
            _ => Err(HookEndpointError::Scheme),
        }
    }

    /// Returns true if the host is an address that is neither public nor of this machine. The
    /// address of a name is only known when it is resolved.
    pub(super) fn is_at_private_address(&self) -> bool {
        let Self::Http(url) = self else { return false };
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::from(address),
            Some(Host::Ipv6(address)) => IpAddr::from(address),
            _ => return false,
        };
        !address.is_loopback() && !is_public(address)
    }
}

/// The form with which errors and log lines name a hook. Queries of URLs may hold secrets.
impl fmt::Display for HookEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => {
                let mut url = url.clone();
                url.set_query(None);
                let _ = url.set_username("");
                let _ = url.set_password(None);
                write!(f, "{url}")
            }
            Self::Function { schema, name } => write!(f, "pg-functions://postgres/{schema}/{name}"),
        }
    }
}

fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 63
        && bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Reads the secrets of a hook, separated by `|`: the bytes of the keys. None at all means that
/// calls are not signed.
///
/// # Errors
/// [`HookEndpointError`] for a secret that cannot sign.
pub fn parse_secrets(text: &str) -> Result<Vec<Secret>, HookEndpointError> {
    text.split('|').map(str::trim).filter(|secret| !secret.is_empty()).map(parse_secret).collect()
}

fn parse_secret(text: &str) -> Result<Secret, HookEndpointError> {
    if text.starts_with("v1a,") {
        return Err(HookEndpointError::KeyPair);
    }
    let encoded = text.strip_prefix("v1,whsec_").ok_or(HookEndpointError::Secret)?;
    let is_usable = (32..=88).contains(&encoded.len()) && STANDARD.decode(encoded).is_ok();
    is_usable.then(|| Secret::new(encoded)).ok_or(HookEndpointError::Secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_https_or_local_or_functions() {
        for text in ["https://hooks.example/x?key=1", "http://localhost:9/x", "http://127.0.0.1/", "http://[::1]:8/"] {
            assert!(matches!(HookEndpoint::parse(text), Ok(HookEndpoint::Http(_))), "{text}");
        }
        let function = HookEndpoint::parse("pg-functions://postgres/public/custom_claims").unwrap();
        let expected = HookEndpoint::Function { schema: "public".into(), name: "custom_claims".into() };
        assert_eq!(function, expected);
        for (text, error) in [
            ("nonsense", HookEndpointError::NotUrl),
            ("http://hooks.example", HookEndpointError::PlainHttp),
            ("ftp://hooks.example", HookEndpointError::Scheme),
            ("pg-functions://postgres/public", HookEndpointError::Function),
            ("pg-functions://postgres/public/f/g", HookEndpointError::Function),
            ("pg-functions://postgres/public/f%22;drop", HookEndpointError::Function),
            ("pg-functions://postgres/1public/f", HookEndpointError::Function),
        ] {
            assert_eq!(HookEndpoint::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn addresses_of_private_networks_are_recognized() {
        let is_private = |text: &str| HookEndpoint::parse(text).unwrap().is_at_private_address();
        for text in [
            "https://10.1.2.3/",
            "https://169.254.169.254/latest/meta-data",
            "https://[fd00::1]/",
            "https://[::ffff:192.168.0.1]/",
            "https://0xa9fea9fe/",
        ] {
            assert!(is_private(text), "{text}");
        }
        for text in [
            "https://8.8.8.8/",
            "http://127.0.0.1/",
            "https://127.1.2.3/",
            "http://[::1]/",
            "https://hooks.example/",
            "pg-functions://postgres/public/f",
        ] {
            assert!(!is_private(text), "{text}");
        }
    }

    #[test]
    fn the_displayed_form_holds_no_secret() {
        let endpoint = HookEndpoint::parse("https://me:hidden@hooks.example/x?key=hidden").unwrap();
        assert_eq!(endpoint.to_string(), "https://hooks.example/x");
    }

    #[test]
    fn secrets_are_separated_by_bars() {
        let one = format!("v1,whsec_{}", STANDARD.encode([1; 32]));
        let two = format!("v1,whsec_{}", STANDARD.encode([2; 32]));
        assert_eq!(parse_secrets(&format!("{one}|{two}")).unwrap().len(), 2);
        assert_eq!(parse_secrets("").unwrap().len(), 0);
        assert_eq!(parse_secrets("v1,whsec_c2hvcnQ=").err(), Some(HookEndpointError::Secret));
        assert_eq!(parse_secrets("secret").err(), Some(HookEndpointError::Secret));
        assert_eq!(parse_secrets("v1a,whpk_a:whsk_b").err(), Some(HookEndpointError::KeyPair));
    }
}
