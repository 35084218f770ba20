//! Sign-in at identity providers (auth-core 8, 10, 11 and 5.4): one engine, and a description per provider.
//!
//! ```text
//! authorize ─▶ provider ─▶ callback ─▶ exchange ─▶ readers ─▶ account ─▶ session or code
//!                                       (tokens)   (profile)  (who is it)
//! ```
//!
//! - [`catalogue`] describes the built-in providers, [`custom`] reads those of `auth.custom_oauth_providers`;
//!   [`configured`] joins either with the operator's settings.
//! - [`exchange`] talks to them, through [`http`] with its limits; [`oidc`] checks id_tokens.
//! - [`browser`] recognizes the browser in which an implicit flow began.
//! - [`account`] decides whose account it is; [`identities`] links and unlinks on request.
//!
//! Promises: a provider's word is believed only after the code exchange or the signature; a flow is used once; nobody is
//! sent to an address outside the allow-list; nothing of a failed sign-in stays in the database, except an account that
//! waits for the confirmation of its address.
//!
//! Between us and a provider there is a secret of our own per flow, kept in `auth.oauth_client_states`: a PKCE verifier
//! (for providers that understand it), and the nonce that their id_token must carry. Both are in one column, separated by
//! a space, so that the table stays as others know it. An identity that waits for the exchange of a code, to be linked to
//! an account, is kept there as well.

pub(crate) mod flow;
pub mod pkce;
pub mod protocol;
pub mod provider;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use flow::account_linking::{ATTEMPTS, Outcome, is_race};

use crate::settings::AuthSettings;
use protocol::discovery::Issuers;
use protocol::http_client::ProviderClient;

/// What sign-ins at providers share: connections and what is known of issuers.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) client: Arc<ProviderClient>,
    pub(crate) issuers: Issuers,
}

impl Engine {
    pub(crate) fn new(settings: &AuthSettings) -> Self {
        // A sign-in takes two calls, for tokens and for keys or the profile: both have to fit into one request
        let timeout = match settings.max_request_duration {
            Duration::ZERO => settings.http_timeout,
            request => settings.http_timeout.min(request / 2),
        };
        let client = Arc::new(ProviderClient::new(timeout, settings.allow_insecure_loopback_providers));
        let issuers = Issuers::new(Arc::clone(&client), settings.oidc_cache_ttl);
        Self { client, issuers }
    }
}
