//! The host that a request is for (RFC 9112, 3.2; RFC 9113, 8.3.1).
//!
//! A request that names none, several or different hosts is rejected: a proxy in front of the
//! gateway and a service behind it could each choose another one.

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Version, header};

/// Checks that a request names one host. If its target names one, `Host` is set to it.
///
/// # Errors
/// When the request names no host (HTTP/1.0 need not), several, an invalid one, or, from HTTP/2 on,
/// a different one in its target.
pub(crate) fn settle(parts: &mut Parts) -> Result<(), InvalidHost> {
    let mut named = parts.headers.get_all(header::HOST).iter();
    let host = named.next();
    if named.next().is_some() || host.is_some_and(|host| !is_host(host)) {
        return Err(InvalidHost);
    }
    match (parts.uri.authority(), host) {
        (None, Some(_)) => Ok(()),
        (None, None) if parts.version <= Version::HTTP_10 => Ok(()),
        (None, None) => Err(InvalidHost),
        (Some(target), _) if target.as_str().contains('@') => Err(InvalidHost),
        (Some(target), Some(host)) if is_same(target, host) => Ok(()),
        (Some(_), Some(_)) if parts.version >= Version::HTTP_2 => Err(InvalidHost),
        // HTTP/1.1: the target takes precedence over the header
        (Some(target), _) => {
            let host = HeaderValue::from_str(target.as_str()).map_err(|_| InvalidHost)?;
            parts.headers.insert(header::HOST, host);
            Ok(())
        }
    }
}

/// The error of a request that does not name exactly one valid host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidHost;

/// Returns true for a host with or without a port. An empty value is valid: the target has no host
/// (RFC 9112, 3.2).
fn is_host(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    is_plain(bytes)
        || (!bytes.contains(&b'@')
            && Authority::try_from(bytes).is_ok_and(|authority| {
                let port = &authority.as_str()[authority.host().len()..];
                port.is_empty() || port == ":" || authority.port_u16().is_some()
            }))
}

/// Returns true for a name or IPv4 address with or without a port: most hosts, which need no
/// parser.
fn is_plain(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|byte| *byte == b':');
    let (name, port) = end.map_or((bytes, &b""[..]), |end| (&bytes[..end], &bytes[end + 1..]));
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
        && port.len() <= 4
        && port.iter().all(u8::is_ascii_digit)
}

fn is_same(target: &Authority, host: &HeaderValue) -> bool {
    target.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(version: Version, target: &str, hosts: &[&str]) -> Result<Option<String>, InvalidHost> {
        let mut request = http::Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        settle(&mut parts)?;
        Ok(parts.headers.get(header::HOST).map(|host| host.to_str().unwrap().to_owned()))
    }

    #[test]
    fn a_request_names_one_host() {
        let named = |host: &str| Ok(Some(host.to_owned()));
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            assert_eq!(settled(version, "/", &["app.example"]), named("app.example"));
            assert_eq!(settled(version, "/", &["a", "b"]), Err(InvalidHost));
            assert_eq!(settled(version, "/", &["a", "a"]), Err(InvalidHost));
        }
        assert_eq!(settled(Version::HTTP_10, "/", &[]), Ok(None));
        assert_eq!(settled(Version::HTTP_11, "/", &[]), Err(InvalidHost));
        assert_eq!(settled(Version::HTTP_2, "/", &[]), Err(InvalidHost));
    }

    #[test]
    fn a_host_in_the_target_takes_precedence() {
        let named = |host: &str| Ok(Some(host.to_owned()));
        assert_eq!(settled(Version::HTTP_11, "http://app.example:81/", &["evil.example"]), named("app.example:81"));
        assert_eq!(settled(Version::HTTP_11, "http://app.example/", &[]), named("app.example"));
        assert_eq!(settled(Version::HTTP_11, "http://app.example/", &["a", "b"]), Err(InvalidHost));
        assert_eq!(settled(Version::HTTP_2, "http://app.example/", &[]), named("app.example"));
        assert_eq!(settled(Version::HTTP_2, "http://app.example/", &["App.Example"]), named("App.Example"));
        assert_eq!(settled(Version::HTTP_2, "http://app.example/", &["evil.example"]), Err(InvalidHost));
        assert_eq!(settled(Version::HTTP_11, "http://me@app.example/", &["app.example"]), Err(InvalidHost));
    }

    #[test]
    fn an_invalid_host_is_rejected() {
        for good in ["", "localhost", "127.0.0.1:54321", "[::1]:8000", "[::1]", "app_1.example", "app.example:"] {
            assert!(settled(Version::HTTP_11, "/", &[good]).is_ok(), "{good}");
        }
        for bad in [
            "a b",
            "a/b",
            "me@app.example",
            "a:b:c",
            "app.example:port",
            "app.example:99999",
            "http://a",
            "[::1",
            "a?b",
            "a#b",
        ] {
            assert_eq!(settled(Version::HTTP_11, "/", &[bad]), Err(InvalidHost), "{bad}");
        }
    }
}
