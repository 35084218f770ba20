//! Reads the data of a request from its headers, its query and the settings.

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::header::{REFERER, USER_AGENT};
use http::request::Parts;
use portico_base::ClientAddress;
use portico_tokens::Caller;

use super::{Query, header};
use crate::Auth;
use crate::error::{API_VERSION_HEADER, ApiVersion, AuthError, ContractError};
use crate::hooks::ledger::HookLedger;
use crate::model::RequestInfo;
use crate::model::ids::UserId;
use crate::settings::AuthSettings;

/// The width of the column `aud`.
const MAX_AUDIENCE_BYTES: usize = 255;
/// Longest `User-Agent` that is stored; a longer one is truncated.
const MAX_USER_AGENT_BYTES: usize = 1024;

impl RequestInfo {
    /// Returns the data of an operation that no request caused.
    pub(crate) fn of_service(auth: &Auth) -> Self {
        let settings = auth.settings();
        Self {
            now: auth.now(),
            ip: None,
            user_agent: String::new(),
            aud: settings.jwt.audience.clone(),
            names_aud: false,
            api_version: ApiVersion::default(),
            external_url: settings.external_url.trim_end_matches('/').to_owned(),
            redirect_to: auth.allow_list().site_url().to_owned(),
            network: None,
            limit_key: None,
            subject: None,
            is_operator: true,
            hooks: HookLedger::new(),
        }
    }
}

impl FromRequestParts<Auth> for RequestInfo {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let settings = auth.settings();
        let headers = &parts.headers;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let requested = header(headers, "redirect_to").or(query.get("redirect_to"));
        let ip = client_ip(parts, settings.sb_forwarded_for);
        // `localhost` has two addresses
        let network = ip.map(|ip| if ip.is_loopback() { "loopback".to_owned() } else { limit_address(ip).to_string() });
        let aud = header(headers, "x-jwt-aud");
        if aud.is_some_and(|aud| aud.len() > MAX_AUDIENCE_BYTES) {
            return Err(ContractError::AudienceTooLong.into());
        }
        let limit_key = limit_key(headers, settings, ip);
        Ok(Self {
            now: auth.now(),
            ip,
            user_agent: headers
                .get(USER_AGENT)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).chars().take(MAX_USER_AGENT_BYTES).collect())
                .unwrap_or_default(),
            aud: aud.map_or_else(|| settings.jwt.audience.clone(), str::to_owned),
            names_aud: aud.is_some(),
            api_version: ApiVersion::parse(header(headers, API_VERSION_HEADER.as_str())),
            external_url: external_url(headers, settings),
            redirect_to: auth
                .allow_list()
                .resolve(requested, headers.get(REFERER).and_then(|value| value.to_str().ok())),
            network,
            limit_key,
            subject: parts
                .extensions
                .get::<Caller>()
                .and_then(|caller| UserId::parse(caller.token.as_ref()?.subject()?)),
            is_operator: parts.extensions.get::<Caller>().is_some_and(|caller| {
                caller.rejected.is_none() && settings.jwt.admin_roles.iter().any(|role| role == caller.role())
            }),
            hooks: HookLedger::new(),
        })
    }
}

/// Returns the key of the limits by client address: the value of the configured header, else the
/// address if limits by address are enabled or a trusted proxy sent it. So a client cannot avoid
/// limits by address by omitting the header.
fn limit_key(headers: &HeaderMap, settings: &AuthSettings, ip: Option<IpAddr>) -> Option<String> {
    let limits = &settings.rate_limits;
    let named = limits
        .header
        .as_ref()
        .and_then(|name| header(headers, name)?.split(',').next())
        .map(|key| key.trim().chars().take(128).collect::<String>())
        .filter(|key| !key.is_empty());
    let is_forwarded = settings.sb_forwarded_for && forwarded_by_proxy(headers).is_some();
    let addressed = ip.filter(|_| limits.per_address || is_forwarded).map(|ip| limit_address(ip).to_string());
    named.or(addressed)
}

/// Reduces an IPv6 address to its network, since one household has many of them.
fn limit_address(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => {
            let network = u128::from(ip) & !((1u128 << 64) - 1);
            IpAddr::V6(network.into())
        }
        v4 => v4,
    }
}

/// Returns the client's address: the one that the gateway found; without a gateway, the first of
/// `X-Forwarded-For`. If the operator has a proxy that writes `Sb-Forwarded-For`, its first address
/// wins; the gateway removes that header from other clients.
fn client_ip(parts: &Parts, sb_forwarded_for: bool) -> Option<IpAddr> {
    if sb_forwarded_for && let Some(ip) = forwarded_by_proxy(&parts.headers) {
        return Some(ip);
    }
    if let Some(ClientAddress(ip)) = parts.extensions.get::<ClientAddress>() {
        return Some(ip.to_canonical());
    }
    header(&parts.headers, "x-forwarded-for")?.split(',').find_map(|part| part.trim().parse().ok())
}

fn forwarded_by_proxy(headers: &HeaderMap) -> Option<IpAddr> {
    let first = header(headers, "sb-forwarded-for")?.split(',').next()?;
    first.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Returns the base URL that a request chooses among the configured hosts.
fn external_url(headers: &HeaderMap, settings: &AuthSettings) -> String {
    let configured = settings.external_url.trim_end_matches('/');
    let Some(host) = header(headers, "x-forwarded-host") else {
        return configured.to_owned();
    };
    if !settings.email.external_hosts.iter().any(|known| known.eq_ignore_ascii_case(host)) {
        return configured.to_owned();
    }
    let name = host.split(':').next().unwrap_or_default();
    let scheme = if name == "localhost" || name == "127.0.0.1" { "http" } else { "https" };
    let path = url::Url::parse(configured).map(|url| url.path().trim_end_matches('/').to_owned()).unwrap_or_default();
    format!("{scheme}://{}{path}", host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_configured_proxy_wins() {
        let ip = |sb_forwarded_for: bool, value: &'static str| {
            let (mut parts, ()) = http::Request::new(()).into_parts();
            parts.extensions.insert(ClientAddress("192.0.2.1".parse().unwrap()));
            parts.headers.insert("sb-forwarded-for", http::HeaderValue::from_static(value));
            client_ip(&parts, sb_forwarded_for).unwrap().to_string()
        };
        assert_eq!(ip(true, "2001:db8::1, 198.51.100.7"), "2001:db8::1");
        assert_eq!(ip(true, "::ffff:198.51.100.7"), "198.51.100.7");
        for nonsense in ["", "unknown, 198.51.100.7", "198.51.100.7:80"] {
            assert_eq!(ip(true, nonsense), "192.0.2.1", "{nonsense:?}");
        }
        assert_eq!(ip(false, "198.51.100.7"), "192.0.2.1");
    }
}
