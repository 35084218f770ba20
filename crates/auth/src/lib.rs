//! Accounts: everything under `/auth/v1`.
//!
//! Keeps the wire contract `auth-core`: sign-up, sign-in by password, code, link and provider, sessions and their tokens,
//! and what people may change about their account. [`Auth`] is the service; [`Auth::router`] is its HTTP face.
//!
//! Promises: what is answered is committed; what is promised by mail is in the outbox before the answer; an answer never
//! says whether somebody else has an account, except where the contract demands it.
//!
//! This crate must not know: configuration files, other services, or how requests reached it. API keys are checked before.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub(crate) mod account;
mod error;
pub mod http;
pub(crate) mod messages;
pub mod model;
pub mod oauth;
pub(crate) mod one_time;
pub(crate) mod operation;
pub mod password;
pub mod protection;
pub mod session;
pub mod settings;
pub mod sql;

use std::sync::Arc;

use portico_base::Clock;
use portico_database::Database;
use portico_mail::Transport;
use portico_tokens::KeyRing;
use time::OffsetDateTime;

pub use error::{AuthError, ErrorCode};
pub use oauth::provider::catalogue::names as provider_names;
pub use settings::{AuthSettings, SettingsError};

use messages::mailer::Mailer;
pub use messages::text::{TextMessage, TextTransport};
use password::Passwords;
use protection::captcha::Captcha;
use protection::column_encryption::{ColumnKeys, DecryptedColumn};
use protection::limits::Limits;
use protection::mail_domain::MailDomains;
use protection::redirect_allow_list::RedirectAllowList;

/// The account service. Clones share everything.
#[derive(Clone)]
pub struct Auth {
    inner: Arc<Inner>,
}

struct Inner {
    settings: AuthSettings,
    database: Database,
    keys: Arc<KeyRing>,
    clock: Clock,
    allow_list: RedirectAllowList,
    refresh_gate: session::refresh::Gate,
    passwords: Passwords,
    columns: ColumnKeys,
    limits: Limits,
    mailer: Arc<Mailer>,
    captcha: Option<Captcha>,
    mail_domains: MailDomains,
    texts: Option<Arc<dyn TextTransport>>,
    provider_connections: oauth::ProviderConnections,
}

impl Auth {
    /// Makes the service. Mails go out through `mail`, by a task that runs as long as the service lives.
    ///
    /// # Errors
    /// [`SettingsError`] names the setting that can not work.
    pub fn new(
        settings: AuthSettings,
        database: Database,
        keys: Arc<KeyRing>,
        mail: Arc<dyn Transport>,
        clock: Clock,
    ) -> Result<Self, SettingsError> {
        settings.validate()?;
        let allow_list = RedirectAllowList::new(&settings.site_url, &settings.redirect_allow_list)?
            .excluding_api(&settings.external_url);
        let mailer = Mailer::new(&settings, mail, database.clone())?;
        mailer.start();
        let passwords = Passwords::new(&settings.password);
        let columns = ColumnKeys::new(&settings.encryption)?;
        let limits = Limits::new(settings.rate_limits.clone(), clock.clone());
        let captcha = Captcha::new(&settings);
        let mail_domains = MailDomains::new(settings.email.name_servers.clone(), &settings.email.blocked_mail_servers);
        let provider_connections = oauth::ProviderConnections::new(&settings);
        let inner = Inner {
            settings,
            database,
            keys,
            clock,
            allow_list,
            refresh_gate: session::refresh::Gate::default(),
            passwords,
            columns,
            limits,
            mailer,
            captcha,
            mail_domains,
            texts: None,
            provider_connections,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// All paths of the service, without the prefix `/auth/v1`.
    pub fn router(&self) -> axum::Router {
        http::routes::router(self.clone())
    }

    /// What the operator decided.
    pub fn settings(&self) -> &AuthSettings {
        &self.inner.settings
    }

    /// Where accounts are kept.
    pub fn database(&self) -> &Database {
        &self.inner.database
    }

    /// Keys of access tokens.
    pub fn keys(&self) -> &KeyRing {
        &self.inner.keys
    }

    /// Where people may be sent back to.
    pub fn allow_list(&self) -> &RedirectAllowList {
        &self.inner.allow_list
    }

    /// Sends text messages through `texts`. Before the first request: a service that is in use already is not changed.
    #[must_use]
    pub fn with_texts(mut self, texts: Arc<dyn TextTransport>) -> Self {
        match Arc::get_mut(&mut self.inner) {
            Some(inner) => inner.texts = Some(texts),
            None => tracing::error!("Text messages are not available: the service was in use already"),
        }
        self
    }

    /// Rules and hashes of passwords.
    pub fn passwords(&self) -> &Passwords {
        &self.inner.passwords
    }

    /// Seals and opens the secrets of accounts.
    fn columns(&self) -> &ColumnKeys {
        &self.inner.columns
    }

    /// The hash of an account's password. `None`: there is none, or it can not be opened, which the log says.
    fn stored_password(&self, user: &model::User) -> Option<DecryptedColumn> {
        match self.columns().decrypt(user.id.0, &user.encrypted_password) {
            Ok(opened) => Some(opened).filter(|opened| !opened.text.is_empty()),
            Err(error) => {
                tracing::error!(user.id = %user.id, %error, "The password of an account can not be opened");
                None
            }
        }
    }

    /// Compares a password with an account's; takes as long for an account without one.
    async fn is_password_of(&self, user: &model::User, password: &str) -> Result<bool, AuthError> {
        let stored = self.stored_password(user);
        Ok(self.passwords().compare(password, stored.as_ref().map(|stored| stored.text.as_str())).await?.matches)
    }

    fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    fn mailer(&self) -> &Mailer {
        &self.inner.mailer
    }

    fn captcha(&self) -> Option<&Captcha> {
        self.inner.captcha.as_ref()
    }

    /// Which domains take mail.
    fn mail_domains(&self) -> &MailDomains {
        &self.inner.mail_domains
    }

    fn texts(&self) -> Option<&dyn TextTransport> {
        self.inner.texts.as_deref()
    }

    /// Providers whose identities are not in the linking domain `default`.
    fn providers_of_other_domains(&self) -> Vec<String> {
        let domains = &self.inner.settings.linking_domains;
        domains.iter().filter(|(_, domain)| *domain != "default").map(|(provider, _)| provider.clone()).collect()
    }

    /// Connections to identity providers.
    fn provider_connections(&self) -> &oauth::ProviderConnections {
        &self.inner.provider_connections
    }

    /// Where refreshes of one token wait for each other.
    fn refresh_gate(&self) -> &session::refresh::Gate {
        &self.inner.refresh_gate
    }

    /// The time, in microseconds as PostgreSQL keeps it, so that what is written is what is read again.
    pub fn now(&self) -> OffsetDateTime {
        let now = self.inner.clock.now();
        now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now)
    }
}
