//! The data of a request that operations and their parts need: time, client, audience, addresses.

use std::net::IpAddr;

use time::OffsetDateTime;

use super::ids::UserId;
use crate::error::ApiVersion;
use crate::hooks::ledger::HookLedger;

/// The data of a request that operations and their parts need.
#[derive(Debug, Clone)]
pub struct RequestInfo {
    /// The time of the request, in microseconds as PostgreSQL stores it.
    pub now: OffsetDateTime,
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// The `User-Agent`, truncated; empty without one.
    pub user_agent: String,
    /// The audience of the users that are looked up.
    pub aud: String,
    /// The request itself names its audience.
    pub names_aud: bool,
    /// The version that decides the form of errors.
    pub api_version: ApiVersion,
    /// Base URL of this service, without a slash at the end. A request may choose among configured
    /// hosts.
    pub external_url: String,
    /// The final redirect target: the requested one if allowed, else the referring page, else the
    /// site.
    pub redirect_to: String,
    /// The network of the client, which a browser keeps during a sign-in at a provider. `None`: not
    /// known.
    pub network: Option<String>,
    /// The key of the limits by client address. `None`: they do not apply.
    pub limit_key: Option<String>,
    /// The subject of the request's access token. Its account and session were not checked: it
    /// states for which account the request is meant, and proves nothing.
    pub subject: Option<UserId>,
    /// The caller's token has an administrator's role.
    pub is_operator: bool,
    /// The hooks that were called for the request.
    pub(crate) hooks: HookLedger,
}

impl RequestInfo {
    /// Returns the key under which guesses are counted: that of the limits by client address, else
    /// the network.
    pub fn network_key(&self) -> Option<&str> {
        self.limit_key.as_deref().or(self.network.as_deref())
    }
}
