//! Sign-in at identity providers: one engine, and a description per provider.
//!
//! ```text
//! authorize ─▶ provider ─▶ callback ─▶ code exchange ─▶ identification ─▶ account ─▶ session or code
//! ```
//!
//! - [`flow`] has the steps of a sign-in or a link: the endpoints, the binding to a browser, the
//!   rules that decide which account an identity belongs to.
//! - [`provider`] has the catalogue of built-in providers, custom providers, and the reading of
//!   profiles.
//! - [`protocol`] has what providers speak: token endpoint, OpenID Connect and OAuth 1.0a.
//! - [`pkce`] is the proof key between an app and this server.
//!
//! Promises: nothing that a provider states counts before the code exchange or the signature; a
//! flow is used once; no redirect leads outside the redirect allow list; a failed sign-in leaves
//! nothing in the database, except an account that awaits the confirmation of its address.
//!
//! Each flow has a secret of its own towards the provider, stored in `auth.oauth_client_states`: a
//! PKCE verifier (for providers that understand it), and the nonce that their id_token must
//! contain. Both are in one column, separated by a space, so that the table keeps its published
//! form. An identity that awaits the exchange of a code, to be linked to an account, is stored
//! there as well.

pub(crate) mod flow;
pub mod pkce;
pub mod protocol;
pub mod provider;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use flow::account_linking::{MAX_RACE_ATTEMPTS, SignInOutcome, is_lost_race};

use crate::http_client::HttpClient;
use crate::settings::AuthSettings;
use protocol::discovery::Issuers;

/// The HTTP client and the cached issuers that all sign-ins at providers share.
#[derive(Debug)]
pub(crate) struct ProviderConnections {
    pub(crate) client: Arc<HttpClient>,
    pub(crate) issuers: Issuers,
}

impl ProviderConnections {
    pub(crate) fn new(settings: &AuthSettings) -> Self {
        // A sign-in takes two calls, for tokens and for keys or userinfo: both must fit into one
        // request
        let timeout = match settings.max_request_duration {
            Duration::ZERO => settings.http_timeout,
            request => settings.http_timeout.min(request / 2),
        };
        let client = Arc::new(HttpClient::new(timeout, settings.allow_insecure_loopback_providers));
        let issuers = Issuers::new(Arc::clone(&client), settings.oidc_cache_ttl);
        Self { client, issuers }
    }
}
