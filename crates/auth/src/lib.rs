//! Accounts: everything under `/auth/v1`.
//!
//! Keeps the wire contract `auth-core`: sign-up, sign-in by password, code, link and provider, sessions and their tokens,
//! and what people may change about their account. [`Auth`] is the service; [`Auth::router`] is its HTTP face.
//!
//! Promises: what is answered is committed; what is promised by mail is in the outbox before the answer; an answer never
//! says whether somebody else has an account, except where the contract demands it.
//!
//! This crate must not know: configuration files, other services, or how requests reached it. API keys are checked before.

pub mod audit;
mod clean_up;
pub mod error;
pub mod extract;
pub mod ids;
mod logout;
pub mod model;
pub mod pkce;
pub mod redirect;
mod refresh;
pub mod refresh_token;
mod routes;
pub mod session;
pub mod settings;
pub mod sql;

use std::sync::Arc;

use portico_database::Database;
use portico_mail::Transport;
use portico_tokens::{Clock, KeyRing};
use time::OffsetDateTime;

pub use error::{AuthError, ErrorCode};
pub use settings::{AuthSettings, SettingsError};

use redirect::AllowList;

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
    allow_list: AllowList,
    refresh_gate: refresh::Gate,
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
        let allow_list = AllowList::new(&settings.site_url, &settings.redirect_allow_list)?;
        let _ = mail;
        Ok(Self { inner: Arc::new(Inner { settings, database, keys, clock, allow_list, refresh_gate: refresh::Gate::default() }) })
    }

    /// All paths of the service, without the prefix `/auth/v1`.
    pub fn router(&self) -> axum::Router {
        routes::router(self.clone())
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
    pub fn allow_list(&self) -> &AllowList {
        &self.inner.allow_list
    }

    /// Where refreshes of one token wait for each other.
    fn refresh_gate(&self) -> &refresh::Gate {
        &self.inner.refresh_gate
    }

    /// The time, in microseconds as PostgreSQL keeps it, so that what is written is what is read again.
    pub fn now(&self) -> OffsetDateTime {
        let now = self.inner.clock.now();
        now.replace_nanosecond(now.nanosecond() / 1000 * 1000).unwrap_or(now)
    }
}
