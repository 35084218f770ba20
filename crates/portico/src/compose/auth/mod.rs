//! The account service, at `/auth/v1`: `[auth]` of the configuration as its settings, its routes
//! and its periodic work.

mod addresses;
mod config_toml;
mod portico_toml;
pub mod text_messages;
pub mod webauthn;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use portico_auth::settings::AuthSettings;
use portico_auth::{AccountToAdd, Auth, TextTransport};
use portico_base::Clock;
use portico_database::Database;
use portico_gateway::AccessRules;
use portico_mail::Transport;
use portico_project::Project;
use portico_project::portico_toml::{AccountSettings, DevelopmentUser, Settings};
use portico_tokens::CurrentKeys;

use super::service::{Foundation, Service};
use super::{keys, mail};

pub use addresses::{at_public_url, link_to_web_app};
pub use config_toml::settings;
pub use portico_toml::{add, add_brand, enable_notifications};

/// The period at which expired sessions, tokens and flow states are removed. Each run works in
/// small batches and skips locked rows.
const CLEAN_UP_PERIOD: Duration = Duration::from_secs(60);

/// The paths that need no API key: links in emails and redirects of providers arrive without one.
const OPEN_PATHS: [&str; 9] = [
    "/verify",
    "/callback",
    "/authorize",
    "/.well-known/jwks.json",
    "/.well-known/openid-configuration",
    "/.well-known/oauth-authorization-server",
    "/sso/saml/acs",
    "/sso/saml/metadata",
    "/health",
];

/// Opens the account service.
///
/// # Errors
/// When a setting is invalid; the text names it.
pub(super) fn open(
    settings: AuthSettings,
    mail: Arc<dyn Transport>,
    text_transport: Option<Arc<dyn TextTransport>>,
    foundation: &Foundation,
) -> anyhow::Result<Auth> {
    let Foundation { database, keys, clock } = foundation;
    let auth = Auth::new(settings, database.clone(), keys.clone(), mail, clock.clone())
        .context("the settings of [auth] cannot work")?;
    Ok(match text_transport {
        Some(text_transport) => auth.with_text_transport(text_transport),
        None => auth,
    })
}

/// Opens the account service of a command, on the database of a project. It sends no email.
///
/// # Errors
/// When a setting is invalid; the text names it.
pub fn for_commands(project: &Project, settings: &Settings, database: &Database) -> anyhow::Result<Auth> {
    let mut own = config_toml::settings(project.config());
    add(&mut own, &settings.auth);
    // Development servers permit them
    own.private_hook_addresses = true;
    // The service issues no token, so any key does
    let keys = keys::development()?;
    Auth::without_deliveries(
        own,
        database.clone(),
        CurrentKeys::new(keys.ring, keys.api),
        mail::none(),
        Clock::system(),
    )
    .context("the settings of [auth] cannot work")
}

/// Returns the accounts of `[auth.users]`.
pub fn development_accounts(settings: &AccountSettings) -> Vec<AccountToAdd> {
    let account = |user: &DevelopmentUser| AccountToAdd {
        email: Some(user.email.clone()),
        phone: user.phone.clone(),
        password: user.password.clone(),
        confirmed: user.confirmed,
        user_metadata: user.user_metadata.clone(),
        app_metadata: user.app_metadata.clone(),
    };
    settings.users.iter().map(account).collect()
}

/// Returns the routes and the periodic work of the account service.
pub(super) fn service(auth: &Auth) -> Service {
    let cleaned = auth.clone();
    Service::new().mount("/auth/v1", auth.router(), access()).every(CLEAN_UP_PERIOD, move || {
        let auth = cleaned.clone();
        async move { auth.clean_up().await }
    })
}

/// Returns the rules for requests. The service limits bodies itself. Its responses are never
/// compressed: many hold tokens beside text that users chose (BREACH). Users of a third party have
/// no account.
fn access() -> AccessRules {
    AccessRules::keyed().body_limit(usize::MAX).except(OPEN_PATHS).own_tokens()
}
