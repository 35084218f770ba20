//! Accounts: everything under `/auth/v1`.
//!
//! Sign-up, sign-in by password, code, link and provider, sessions and their tokens, and the
//! changes that people make to their account. [`Auth`] is the service; [`Auth::router`] is its HTTP
//! interface.
//!
//! A folder is a concept:
//!
//! - `account`: sign-up, confirmation, change and recovery, for an email address or a phone number
//! - `session`: grants, refresh tokens, sign-out, clean-up; `password`; `one_time`: codes and links
//! - `factors`: the second step of a sign-in; `passkeys`, with `webauthn`, the standard
//! - `oauth`: identity providers (`flow`, `provider`, `protocol`); `web3`: wallets
//! - `admin`: accounts for operators, over HTTP and for commands
//! - `messages`: emails, text messages and their outbox
//! - `hooks`: the application's functions; one over HTTP is called between two runs of a
//!   transaction, without a connection
//! - `protection`: limits, attempts, captcha, audit log, redirect allow list
//! - `signing_keys` and `third_party`: the keys that tokens are verified with, which change while
//!   the server runs
//! - `http`: routes and extraction; `http_client`: requests to other servers; `model`: rows, the
//!   JSON that clients see, and the data of a request; `error`: one table of statuses, codes and
//!   texts; `settings`; `sql`: the statements by table; `operation`: what a request works with
//!
//! Promises: the effects of a response are committed; an email is in the outbox before the
//! response; a response never shows whether another person has an account, except where the wire
//! contract demands it.
//!
//! This crate does not know configuration files, other services, or how requests reached it. API
//! keys are checked before.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub(crate) mod account;
pub(crate) mod admin;
mod error;
mod factors;
mod hooks;
pub mod http;
pub mod http_client;
pub(crate) mod messages;
pub mod model;
pub mod oauth;
pub(crate) mod one_time;
pub(crate) mod operation;
pub(crate) mod passkeys;
pub mod password;
pub mod protection;
pub mod session;
pub mod settings;
pub mod signing_keys;
pub mod sql;
pub mod third_party;
mod web3;
mod webauthn;

use std::sync::Arc;

use portico_base::Clock;
use portico_database::{Database, RolePool, RoleProfile};
use portico_mail::Transport;
use portico_tokens::CurrentKeys;
use time::OffsetDateTime;
use tokio::sync::broadcast;

pub use admin::command::{AccountCommand, AccountToAdd};
pub use error::{AuthError, ErrorCode};
pub use http::info::public_settings;
pub use oauth::provider::catalogue::names as provider_names;
pub use settings::{AuthSettings, SettingsError};

use hooks::Hooks;
use messages::mailer::Mailer;
use messages::recipients::Recipients;
pub use messages::text_transport::{TextMessage, TextTransport};
use password::Passwords;
use protection::attempts::GuessCounter;
use protection::audit::AuditLog;
use protection::captcha::Captcha;
use protection::column_encryption::ColumnKeys;
use protection::limits::AccountRateLimits;
use protection::redirect_allow_list::RedirectAllowList;
use webauthn::RelyingParty;

/// The role of the statements of this service, and the schema of its tables.
pub const ROLE_PROFILE: RoleProfile = RoleProfile::acting_as("supabase_auth_admin", "auth");

/// The account service. Clones share their state.
#[derive(Clone)]
pub struct Auth {
    inner: Arc<AuthState>,
}

struct AuthState {
    settings: AuthSettings,
    database: RolePool,
    keys: CurrentKeys,
    clock: Clock,
    allow_list: RedirectAllowList,
    refresh_queue: session::refresh_queue::RefreshQueue,
    passwords: Passwords,
    columns: ColumnKeys,
    limits: AccountRateLimits,
    mailer: Arc<Mailer>,
    audit_log: AuditLog,
    captcha: Option<Captcha>,
    recipients: Recipients,
    text_transport: Option<Arc<dyn TextTransport>>,
    provider_connections: oauth::ProviderConnections,
    relying_party: Option<RelyingParty>,
    hooks: Hooks,
    guesses: GuessCounter,
    /// Announces deleted accounts to this process.
    deletions: broadcast::Sender<uuid::Uuid>,
}

/// The number of deleted accounts that a receiver may be behind.
const DELETIONS_KEPT: usize = 1024;

impl Auth {
    /// Makes the service. A task that runs as long as the service sends emails through `mail`.
    ///
    /// # Errors
    /// [`SettingsError`] names the setting that cannot work.
    pub fn new(
        settings: AuthSettings,
        database: Database,
        keys: CurrentKeys,
        mail: Arc<dyn Transport>,
        clock: Clock,
    ) -> Result<Self, SettingsError> {
        let auth = Self::without_deliveries(settings, database, keys, mail, clock)?;
        auth.inner.mailer.start();
        Ok(auth)
    }

    /// Makes a service that sends no emails: they stay in the outbox for a server. For commands.
    ///
    /// # Errors
    /// Those of [`Auth::new`].
    pub fn without_deliveries(
        settings: AuthSettings,
        database: Database,
        keys: CurrentKeys,
        mail: Arc<dyn Transport>,
        clock: Clock,
    ) -> Result<Self, SettingsError> {
        settings.validate()?;
        let allow_list = RedirectAllowList::new(&settings.site_url, &settings.redirect_allow_list)?
            .excluding_api(&settings.external_url);
        let database = database.pool(ROLE_PROFILE);
        let mailer = Mailer::new(&settings, mail, database.clone())?;
        let passwords = Passwords::new(&settings.password);
        let columns = ColumnKeys::new(&settings.encryption)?;
        let limits = AccountRateLimits::new(settings.rate_limits.clone(), clock.clone());
        let audit_log = AuditLog::new(&settings);
        let captcha = Captcha::new(&settings);
        let recipients = Recipients::new(&settings.email);
        let provider_connections = oauth::ProviderConnections::new(&settings);
        let relying_party = settings.relying_party.as_ref().map(RelyingParty::new);
        let hooks = Hooks::new(&settings.hooks, settings.private_hook_addresses, database.clone(), clock.clone())?;
        let guesses = GuessCounter::new(settings.rate_limits.passwords, database.clone(), clock.clone());
        let inner = AuthState {
            settings,
            database,
            keys,
            clock,
            allow_list,
            refresh_queue: session::refresh_queue::RefreshQueue::default(),
            passwords,
            columns,
            limits,
            mailer,
            audit_log,
            captcha,
            recipients,
            text_transport: None,
            provider_connections,
            relying_party,
            hooks,
            guesses,
            deletions: broadcast::Sender::new(DELETIONS_KEPT),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the routes of the service, without the prefix `/auth/v1`.
    pub fn router(&self) -> axum::Router {
        http::routes::router(self.clone())
    }

    /// Returns the settings.
    pub fn settings(&self) -> &AuthSettings {
        &self.inner.settings
    }

    /// Returns the connections to the database that keeps the accounts.
    pub fn database(&self) -> &RolePool {
        &self.inner.database
    }

    /// Returns the keys of access tokens.
    pub fn keys(&self) -> &CurrentKeys {
        &self.inner.keys
    }

    /// Returns the page for errors whose application is unknown.
    pub(crate) fn error_url(&self) -> &str {
        self.settings().error_url.as_deref().unwrap_or(self.allow_list().site_url())
    }

    /// Returns the redirect allow list.
    pub fn allow_list(&self) -> &RedirectAllowList {
        &self.inner.allow_list
    }

    /// Sends text messages through `texts`. To be called before the first request: a service in use
    /// is not changed.
    #[must_use]
    pub fn with_text_transport(mut self, text_transport: Arc<dyn TextTransport>) -> Self {
        match Arc::get_mut(&mut self.inner) {
            Some(inner) => inner.text_transport = Some(text_transport),
            None => tracing::error!("text messages are not available: the service was in use already"),
        }
        self
    }

    /// Returns the rules and hashes of passwords.
    pub fn passwords(&self) -> &Passwords {
        &self.inner.passwords
    }

    /// Seals and opens the secrets of accounts.
    fn columns(&self) -> &ColumnKeys {
        &self.inner.columns
    }

    fn limits(&self) -> &AccountRateLimits {
        &self.inner.limits
    }

    fn mailer(&self) -> &Mailer {
        &self.inner.mailer
    }

    fn audit_log(&self) -> AuditLog {
        self.inner.audit_log
    }

    fn captcha(&self) -> Option<&Captcha> {
        self.inner.captcha.as_ref()
    }

    /// Returns the rules for the addresses that email may be sent to.
    fn recipients(&self) -> &Recipients {
        &self.inner.recipients
    }

    fn text_transport(&self) -> Option<&dyn TextTransport> {
        self.inner.text_transport.as_deref()
    }

    /// Returns the providers whose identities are not in the linking domain `default`.
    fn providers_of_other_domains(&self) -> Vec<String> {
        let domains = &self.inner.settings.linking_domains;
        domains.iter().filter(|(_, domain)| *domain != "default").map(|(provider, _)| provider.clone()).collect()
    }

    /// Returns the connections to identity providers.
    fn provider_connections(&self) -> &oauth::ProviderConnections {
        &self.inner.provider_connections
    }

    /// Returns the site that passkeys and security keys are for.
    ///
    /// # Errors
    /// 500 when it is not configured.
    fn relying_party(&self) -> Result<&RelyingParty, AuthError> {
        self.inner.relying_party.as_ref().ok_or_else(|| {
            let cause = anyhow::anyhow!("the site that passkeys are for is not configured ([auth.webauthn])");
            AuthError::failed(error::ContractError::RelyingPartyMissing, cause)
        })
    }

    /// Returns the hooks of the application.
    fn hooks(&self) -> &Hooks {
        &self.inner.hooks
    }

    /// Returns the counter of guesses at passwords and codes.
    fn guesses(&self) -> &GuessCounter {
        &self.inner.guesses
    }

    /// Returns the queue of refreshes with the same token.
    fn refresh_queue(&self) -> &session::refresh_queue::RefreshQueue {
        &self.inner.refresh_queue
    }

    /// Returns the time in whole microseconds, as PostgreSQL stores it.
    pub fn now(&self) -> OffsetDateTime {
        self.inner.clock.now_in_microseconds()
    }
}
