//! The stand-ins of a development server: an OpenID provider in place of Google unless credentials
//! are configured, and the mailbox that captures emails and text messages.

use std::path::PathBuf;
use std::sync::Arc;

use portico_auth::AuthSettings;
use portico_base::{AllowedOrigins, Clock};
use portico_emulators::{Development, IdentityProvider, IdentityProviderSettings, Mailbox};
use portico_gateway::{AccessRules, Cors};

use super::service::Service;
use super::web_app;

/// The path of the emulated Google on the server's own origin.
const PREFIX: &str = "/portico/google";

/// Returns true if no credentials of Google are configured, so that the stand-in can take its
/// place.
#[must_use]
pub fn lacks_google(auth: &AuthSettings) -> bool {
    !auth.external.get("google").is_some_and(|google| google.enabled && !google.client_ids.is_empty())
}

/// The emulated Google of a server.
#[derive(Clone)]
pub struct EmulatedGoogle {
    /// Proves that this is a development server.
    pub witness: Development,
    /// The origin of the server.
    pub origin: String,
    /// The file that keeps the accounts; `None` keeps them in memory.
    pub accounts: Option<PathBuf>,
    /// The people whose accounts exist from the start: name and address.
    pub people: Vec<(String, String)>,
    /// The pages that may send users here.
    pub pages: AllowedOrigins,
}

impl EmulatedGoogle {
    /// Makes the account service use the stand-in as Google, and returns its routes.
    ///
    /// # Errors
    /// When the file of accounts cannot be read, or keys cannot be made.
    pub(super) fn service(self, auth: &mut AuthSettings, clock: &Clock) -> anyhow::Result<Service> {
        let Self { witness, origin, accounts, people, pages } = self;
        let issuer = format!("{origin}{PREFIX}");
        let callback = format!("{}/callback", auth.external_url);
        let google = auth.external.entry("google".to_owned()).or_default();
        google.enabled = true;
        google.client_ids = vec![portico_emulators::GOOGLE_CLIENT_ID.to_owned()];
        google.secret = portico_emulators::GOOGLE_CLIENT_SECRET.into();
        google.url.clone_from(&issuer);
        let redirect_uri = if google.redirect_uri.is_empty() { callback } else { google.redirect_uri.clone() };
        let settings = IdentityProviderSettings {
            issuer,
            redirect_uris: vec![redirect_uri],
            accounts,
            people,
            ..Default::default()
        };
        let provider = Arc::new(IdentityProvider::new(witness, settings, clock.clone())?);
        // Users are redirected here; no page of another origin has to read a response
        let access = AccessRules::open().cors(Cors::none());
        Ok(Service::new().mount(PREFIX, provider.router(pages), access))
    }
}

/// Returns the router of the mailbox's own port: its API, and a redirect to the page of the web
/// app. Besides pages of this machine, those of the server's own origin and of the project's site
/// may read it.
pub fn mailbox_router(mailbox: &Mailbox, origin: &str, site_url: &str) -> axum::Router {
    let page = format!("{}/mailbox", web_app::address_in_browser(origin));
    mailbox
        .router(&[origin, site_url])
        .route("/", axum::routing::get(move || async move { axum::response::Redirect::temporary(&page) }))
}
