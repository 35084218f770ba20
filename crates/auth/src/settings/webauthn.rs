//! The settings of passkeys and security keys.

use std::time::Duration;

use url::{Host, Url};

use super::error::SettingsError;

/// The site that passkeys and security keys are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingPartySettings {
    /// The domain that credentials are bound to: that of every origin, or one above it.
    pub id: String,
    /// The name that browsers display. Empty: the domain.
    pub display_name: String,
    /// The origins whose pages may use the credentials, such as `https://app.example.com`, and apps
    /// as `android:apk-key-hash:…`.
    pub origins: Vec<String>,
    /// Also accept pages of `http://localhost` at any port. Only for development.
    pub any_port_of_localhost: bool,
}

/// The settings of passkeys.
#[derive(Debug, Clone)]
pub struct PasskeySettings {
    /// Permit passkeys.
    pub enabled: bool,
    /// Largest number of passkeys of a user.
    pub max_per_user: u32,
    /// The time in which a registration or sign-in that has begun must be completed.
    pub challenge_expiry: Duration,
    /// Reject authenticators that did not verify the person by PIN, fingerprint or face.
    pub require_user_verification: bool,
}

impl Default for PasskeySettings {
    fn default() -> Self {
        Self {
            enabled: false,
            max_per_user: 10,
            challenge_expiry: Duration::from_secs(300),
            require_user_verification: false,
        }
    }
}

impl RelyingPartySettings {
    /// Returns the relying party of a site, with the origins of the site and of further addresses
    /// below its domain. `None` for a site without a domain: browsers bind credentials to names, so
    /// a loopback address counts as `localhost`, and no other address can be used.
    #[must_use]
    pub fn of_site(site_url: &str, further: &[&str]) -> Option<Self> {
        let id = domain(site_url)?;
        let is_below = |url: &&&str| {
            domain(url).is_some_and(|name| name == id || name.strip_suffix(&id).is_some_and(|rest| rest.ends_with('.')))
        };
        let mut origins: Vec<String> = Vec::new();
        for origin in [site_url].iter().chain(further).filter(is_below).filter_map(|url| named_origin(url)) {
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
        Some(Self { id, display_name: String::new(), origins, any_port_of_localhost: false })
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// When the domain is not a domain, or there is no origin.
    pub(super) fn validate(&self) -> Result<(), SettingsError> {
        let wrong = |name, reason: String| Err(SettingsError::Value { name, reason });
        let is_domain = matches!(Host::parse(&self.id), Ok(Host::Domain(name)) if name == self.id);
        if !is_domain {
            return wrong("webauthn.rp_id", format!("{:?} is not a domain such as \"example.com\"", self.id));
        }
        if self.origins.is_empty() && !self.any_port_of_localhost {
            return wrong("webauthn.rp_origins", "there must be at least one origin".to_owned());
        }
        match self.origins.iter().find(|origin| Url::parse(origin).is_err()) {
            Some(origin) => {
                wrong("webauthn.rp_origins", format!("{origin:?} is not an origin such as \"https://app.example.com\""))
            }
            None => Ok(()),
        }
    }
}

/// Returns the domain of an address, with `localhost` for loopback addresses.
fn domain(url: &str) -> Option<String> {
    match Url::parse(url).ok()?.host()? {
        Host::Domain(name) => Some(name.to_owned()),
        Host::Ipv4(address) if address.is_loopback() => Some("localhost".to_owned()),
        Host::Ipv6(address) if address.is_loopback() => Some("localhost".to_owned()),
        _ => None,
    }
}

/// Returns the origin of an address under its [`domain`].
fn named_origin(url: &str) -> Option<String> {
    let name = domain(url)?;
    let url = Url::parse(url).ok()?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{name}{port}", url.scheme()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relying_party_of_a_site_has_its_domain_and_the_origins_below_it() {
        let of_site = |site: &str| {
            let further =
                ["https://api.app.example/auth/v1", "https://other.example", "http://127.0.0.1:54321/auth/v1"];
            RelyingPartySettings::of_site(site, &further).map(|party| (party.id, party.origins))
        };
        let origins = |origins: &[&str]| origins.iter().map(|origin| (*origin).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            of_site("https://app.example/start"),
            Some(("app.example".into(), origins(&["https://app.example", "https://api.app.example"])))
        );
        assert_eq!(
            of_site("http://127.0.0.1:3000"),
            Some(("localhost".into(), origins(&["http://localhost:3000", "http://localhost:54321"])))
        );
        assert_eq!(of_site("http://192.0.2.1:3000"), None);
        assert_eq!(of_site("no address"), None);
    }

    #[test]
    fn a_relying_party_needs_a_domain_and_an_origin() {
        let party = |id: &str, origins: &[&str]| RelyingPartySettings {
            id: id.into(),
            display_name: String::new(),
            origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            any_port_of_localhost: false,
        };
        let app = "https://app.example";
        assert!(party("app.example", &[app, "android:apk-key-hash:abc"]).validate().is_ok());
        assert!(party("localhost", &["http://localhost:3000"]).validate().is_ok());
        for id in ["", "127.0.0.1", "[::1]", "https://app.example", "app.example:443", "APP.example", "app example"] {
            assert!(party(id, &[app]).validate().unwrap_err().to_string().starts_with("webauthn.rp_id"), "{id}");
        }
        for origins in [&[][..], &["app.example"], &[app, ""]] {
            let error = party("app.example", origins).validate().unwrap_err().to_string();
            assert!(error.starts_with("webauthn.rp_origins"), "{origins:?}");
        }
    }
}
