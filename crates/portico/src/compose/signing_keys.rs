//! The signing keys that change while the server runs: those of its database, and those of the
//! third party whose tokens are accepted.

use std::sync::Arc;

use anyhow::Context;
use portico_auth::settings::EncryptionSettings;
use portico_auth::signing_keys::{ConfiguredKeys, SigningKeys};
use portico_auth::{AuthSettings, signing_keys, third_party};
use portico_base::Clock;
use portico_database::Database;
use portico_tokens::{CurrentKeys, KeyRefresh, TokenIssuer};

use super::keys::ServerKeys;
use super::service::Service;

/// Opens the signing keys of a server with these configured keys.
///
/// # Errors
/// When an encryption key is not usable.
pub fn open(
    keys: &ServerKeys,
    encryption: &EncryptionSettings,
    database: &Database,
    clock: Clock,
) -> anyhow::Result<SigningKeys> {
    let ServerKeys { ring, api, jwt_secret } = keys.clone();
    let configured = ConfiguredKeys { ring, api, jwt_secret };
    SigningKeys::new(database.clone(), encryption, configured, clock).context("[auth.encryption]")
}

/// Returns the function that has keys read again, and the work that keeps `current` up to date.
pub(super) fn follow(keys: SigningKeys, settings: &AuthSettings, current: &CurrentKeys) -> (KeyRefresh, Service) {
    let (own, task) = signing_keys::follow(keys, current.clone());
    let mut service = Service::new().run(task);
    let mut third_party = None;
    if let Some((follower, task)) = third_party::follow(settings, current.clone()) {
        service = service.run(task);
        third_party = Some(follower);
    }
    let refresh = move |issuer: TokenIssuer| {
        let (own, third_party) = (own.clone(), third_party.clone());
        Box::pin(async move {
            match (issuer, third_party) {
                (TokenIssuer::Own, _) => own.refresh().await,
                (TokenIssuer::ThirdParty, Some(third_party)) => third_party.refresh().await,
                (TokenIssuer::ThirdParty, None) => {}
            }
        }) as _
    };
    (Arc::new(refresh), service)
}
