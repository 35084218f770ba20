//! The check of the URLs of a provider, before they are stored. Calls are checked again.

use std::net::IpAddr;
use std::time::Duration;

use url::{Host, Url};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http_client::public_address::is_public;

/// Longest time for the look-up of a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// The address at which clouds serve the credentials of a machine.
const METADATA: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254));

/// Checks that all URLs lead to the public internet.
///
/// # Errors
/// 400 `validation_failed` for the first one that does not.
pub(super) async fn check_all(auth: &Auth, urls: Vec<&str>) -> Result<(), AuthError> {
    for url in urls {
        check(url, auth.settings().allow_insecure_loopback_providers)
            .await
            .map_err(|reason| ContractError::ProviderUrlRejected { reason })?;
    }
    Ok(())
}

async fn check(url: &str, allow_loopback: bool) -> Result<(), &'static str> {
    let url = Url::parse(url).map_err(|_| "Invalid URL format")?;
    let host = url.host().ok_or("URL must have a valid hostname")?;
    let is_loopback = match &host {
        Host::Domain(name) => *name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => IpAddr::from(*ip).to_canonical().is_loopback(),
    };
    if is_loopback && allow_loopback {
        return Ok(());
    }
    if url.scheme() != "https" {
        return Err("URL must use HTTPS");
    }
    if is_loopback {
        return Err("URL cannot point to localhost or loopback addresses");
    }
    match host {
        Host::Ipv4(ip) => check_address(ip.into()),
        Host::Ipv6(ip) => check_address(ip.into()),
        Host::Domain(name) => {
            let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((name, 443))).await;
            let mut addresses = found.ok().and_then(Result::ok).ok_or("Unable to resolve hostname")?.peekable();
            addresses.peek().ok_or("Unable to resolve hostname")?;
            addresses.try_for_each(|address| check_address(address.ip()))
        }
    }
}

fn check_address(ip: IpAddr) -> Result<(), &'static str> {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    Err(match ip {
        ip if ip.is_loopback() => "URL cannot resolve to loopback addresses",
        ip if ip.is_unspecified() => "URL cannot resolve to unspecified addresses",
        ip if ip.is_multicast() => "URL cannot resolve to multicast addresses",
        METADATA => "URL cannot resolve to cloud metadata endpoints",
        _ if is_link_local => "URL cannot resolve to link-local addresses",
        ip if !is_public(ip) => "URL cannot resolve to private network addresses",
        _ => return Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_public_https_addresses_pass() {
        for (url, outcome) in [
            ("https://8.8.8.8/x", Ok(())),
            ("nonsense", Err("Invalid URL format")),
            ("data:text", Err("URL must have a valid hostname")),
            ("http://8.8.8.8/x", Err("URL must use HTTPS")),
            ("https://localhost/x", Err("URL cannot point to localhost or loopback addresses")),
            ("https://127.1/x", Err("URL cannot point to localhost or loopback addresses")),
            ("https://[::ffff:127.0.0.1]/x", Err("URL cannot point to localhost or loopback addresses")),
            ("https://10.0.0.1/x", Err("URL cannot resolve to private network addresses")),
            ("https://[fd00::1]/x", Err("URL cannot resolve to private network addresses")),
            ("https://169.254.1.1/x", Err("URL cannot resolve to link-local addresses")),
            ("https://169.254.169.254/x", Err("URL cannot resolve to cloud metadata endpoints")),
            ("https://224.0.0.1/x", Err("URL cannot resolve to multicast addresses")),
            ("https://0.0.0.0/x", Err("URL cannot resolve to unspecified addresses")),
        ] {
            assert_eq!(check(url, false).await, outcome, "{url}");
        }
        assert_eq!(check("http://127.0.0.1:9/x", true).await, Ok(()));
        assert_eq!(check("http://10.0.0.1/x", true).await, Err("URL must use HTTPS"));
    }
}
