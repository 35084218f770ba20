//! Google in development: played by our own OpenID provider unless credentials are given.

use std::path::PathBuf;
use std::sync::Arc;

use portico_auth::AuthSettings;
use portico_base::{AllowedOrigins, Clock};
use portico_emulators::{Development, IdentityProvider, IdentityProviderSettings};
use portico_gateway::{Access, Cors};

use crate::Mount;

/// The path on the server's own origin at which the stand-in answers.
pub const PREFIX: &str = "/portico/google";

/// Whether Google has no credentials of its own and so is played.
#[must_use]
pub fn is_emulated(auth: &AuthSettings, wanted: bool) -> bool {
    let real = auth.external.get("google").is_some_and(|google| google.enabled && !google.client_ids.is_empty());
    wanted && !real
}

/// Sets the stand-in up at `origin`, for people who come from `pages`, and makes the account service use it.
///
/// # Errors
/// When its accounts or keys can not be read or made.
pub fn emulate(
    witness: Development,
    auth: &mut AuthSettings,
    origin: &str,
    accounts: Option<PathBuf>,
    clock: &Clock,
    pages: AllowedOrigins,
) -> anyhow::Result<Mount> {
    let issuer = format!("{origin}{PREFIX}");
    let callback = format!("{}/callback", auth.external_url);
    let google = auth.external.entry("google".to_owned()).or_default();
    google.enabled = true;
    google.client_ids = vec![portico_emulators::GOOGLE_CLIENT_ID.to_owned()];
    google.secret = portico_emulators::GOOGLE_CLIENT_SECRET.into();
    google.url.clone_from(&issuer);
    let redirect_uri = if google.redirect_uri.is_empty() { callback } else { google.redirect_uri.clone() };
    let provider = IdentityProvider::new(
        witness,
        IdentityProviderSettings { issuer, redirect_uris: vec![redirect_uri], accounts, ..Default::default() },
        clock.clone(),
    )?;
    let provider = Arc::new(provider);
    // No page has to read its answers; people are sent there
    let access = Access::open().cors(Cors::none());
    Ok(Mount { prefix: PREFIX.to_owned(), router: provider.router(pages), access })
}
