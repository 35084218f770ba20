//! The site that credentials are for.

use super::origin::RelyingPartyOrigin;
use crate::settings::RelyingPartySettings;

/// The site that credentials are for.
#[derive(Debug, Clone)]
pub(crate) struct RelyingParty {
    /// The domain that credentials are bound to.
    pub id: String,
    /// The name that browsers display.
    pub name: String,
    /// The origins whose pages may use them.
    pub origins: Vec<RelyingPartyOrigin>,
}

impl RelyingParty {
    /// Makes the relying party of valid settings.
    pub fn new(settings: &RelyingPartySettings) -> Self {
        let any_port = settings.any_port_of_localhost.then_some(RelyingPartyOrigin::AnyPortOfLocalhost);
        let name = if settings.display_name.is_empty() { &settings.id } else { &settings.display_name };
        Self {
            id: settings.id.clone(),
            name: name.clone(),
            origins: settings.origins.iter().map(|text| RelyingPartyOrigin::parse(text)).chain(any_port).collect(),
        }
    }
}
