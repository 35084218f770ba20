//! The audit log: the events of accounts, in `auth.audit_log_entries` and in the log.
//!
//! Unlike in GoTrue, failed sign-ins are events as well. Nothing else bounds their number, so their
//! entries have a budget ([`AccountRateLimits::take_failed_login`]), and an unknown account is not
//! named.

use std::net::IpAddr;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use portico_database::RolePool;

use crate::error::AuthError;
use crate::model::ids::UserId;
use crate::model::{JsonObject, RequestInfo, User};
use crate::protection::limits::AccountRateLimits;
use crate::settings::AuthSettings;
use crate::sql::{Tx, audit_log_entries};

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident $name:literal $log_type:literal),+ $(,)?) => {
        /// The action of an event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action { $($(#[$doc])* $variant),+ }

        impl Action {
            /// Returns the `action` of the entry.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the `log_type` of the entry.
            pub const fn log_type(self) -> &'static str {
                match self { $(Self::$variant => $log_type),+ }
            }
        }
    };
}

actions! {
    /// Signed in; trait `provider`.
    Login "login" "account",
    /// A password or code was rejected; traits `provider`, `error_code`, and `omitted` if earlier
    /// entries were omitted.
    LoginFailed "login_failed" "account",
    /// Signed out.
    Logout "logout" "account",
    /// An invitation was accepted; trait `provider`.
    InviteAccepted "invite_accepted" "account",
    /// A new account is confirmed; trait `provider`, for phones `channel`.
    UserSignedUp "user_signedup" "team",
    /// Invited; traits `user_id`, `user_email`.
    UserInvited "user_invited" "team",
    /// Deleted.
    UserDeleted "user_deleted" "team",
    /// A session was refreshed.
    TokenRefreshed "token_refreshed" "token",
    /// A refresh token was replaced or ended.
    TokenRevoked "token_revoked" "token",
    /// The account changed.
    UserModified "user_modified" "user",
    /// A recovery message was requested.
    UserRecoveryRequested "user_recovery_requested" "user",
    /// A nonce was requested.
    UserReauthenticateRequested "user_reauthenticate_requested" "user",
    /// A confirmation was requested; trait `provider`.
    UserConfirmationRequested "user_confirmation_requested" "user",
    /// A sign-up for an account that exists; trait `provider`.
    UserRepeatedSignUp "user_repeated_signup" "user",
    /// The password changed.
    UserUpdatedPassword "user_updated_password" "user",
    /// Traits `identity_id`, `provider`, `provider_id`.
    IdentityLinked "identity_linked" "user",
    /// Traits `identity_id`, `provider`, `provider_id`.
    IdentityUnlinked "identity_unlinked" "user",
    /// The enrolment of a second factor began; trait `factor_id`, for phones and keys
    /// `factor_type`.
    FactorInProgress "factor_in_progress" "factor",
    /// A second factor was removed; traits `factor_id`, `factor_status`, `session_id`.
    FactorUnenrolled "factor_unenrolled" "factor",
    /// An administrator removed a second factor; traits `user_id`, `factor_id`, `factor_type`.
    FactorDeleted "factor_deleted" "factor",
    /// An administrator changed a second factor; traits `user_id`, `factor_id`, `factor_type`.
    FactorUpdated "factor_updated" "factor",
    /// A second factor was challenged; traits `factor_id`, `factor_status`.
    ChallengeCreated "challenge_created" "factor",
    /// A second factor was proved; traits `factor_id`, `challenge_id`, `factor_type`.
    VerificationAttempted "verification_attempted" "factor",
    /// Recovery codes replaced the earlier ones.
    RecoveryCodesCreated "recovery_codes_created" "factor",
    /// A recovery code was used; trait `remaining`.
    RecoveryCodeUsed "recovery_code_used" "factor",
    /// Trait `passkey_id`.
    PasskeyCreated "passkey_created" "user",
    /// Trait `passkey_id`.
    PasskeyUpdated "passkey_updated" "user",
    /// Trait `passkey_id`; by an administrator also `user_id`.
    PasskeyDeleted "passkey_deleted" "user",
}

/// The facts of an event beyond its actor and action.
pub type Traits = JsonObject;

/// Returns the traits `{"provider": provider}`.
pub fn provider_trait(provider: &str) -> Traits {
    Traits::from_iter([("provider".to_owned(), provider.into())])
}

/// An event of an account.
#[derive(Debug)]
pub struct AuditEvent<'a> {
    actor: &'a User,
    action: Action,
    traits: Traits,
    ip: Option<IpAddr>,
}

impl<'a> AuditEvent<'a> {
    /// Makes an event without traits and without an IP address.
    pub fn new(actor: &'a User, action: Action) -> Self {
        Self { actor, action, traits: Traits::new(), ip: None }
    }

    /// Returns the event with these traits.
    #[must_use]
    pub fn with_traits(self, traits: Traits) -> Self {
        Self { traits, ..self }
    }

    /// Returns the event with the client's IP address. Only for actions on identities, factors and
    /// passkeys.
    #[must_use]
    pub fn with_ip(self, ip: Option<IpAddr>) -> Self {
        Self { ip, ..self }
    }

    fn log(&self) {
        tracing::info!(target: "auth_audit_event", { user.id = %self.actor.id, action = self.action.name() }, "account event");
    }
}

/// The writer of events: to the log, and to the table unless the settings switch that off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditLog {
    writes_entries: bool,
}

impl AuditLog {
    pub(crate) fn new(settings: &AuthSettings) -> Self {
        Self { writes_entries: !settings.audit_log_disabled }
    }

    /// Writes an entry, in the transaction of the event.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) async fn record(self, tx: &Tx, event: AuditEvent<'_>, now: OffsetDateTime) -> Result<(), Error> {
        event.log();
        if !self.writes_entries {
            return Ok(());
        }
        let ip = event.ip.map(|ip| ip.to_string()).unwrap_or_default();
        audit_log_entries::insert(tx, &payload(event.actor, event.action, event.traits), &ip, now).await
    }

    /// Writes an entry for a failed sign-in, with the client's address, if the budget of such
    /// entries allows one. A failure to write is logged: the client sees the error of the sign-in
    /// all the same.
    pub(crate) async fn record_failed_login(
        self,
        database: &RolePool,
        limits: &AccountRateLimits,
        login: &FailedLogin<'_>,
        request: &RequestInfo,
    ) {
        let Some(omitted) = limits.take_failed_login(request) else { return };
        let unknown = User { id: UserId(Uuid::nil()), ..User::without_facts(&request.aud, request.now) };
        let actor = login.user.unwrap_or(&unknown);
        let (action, code) = (Action::LoginFailed, login.error.code().as_str());
        tracing::info!(
            target: "auth_audit_event",
            { user.id = %actor.id, action = action.name(), error.code = code },
            "account event"
        );
        if !self.writes_entries {
            return;
        }
        let mut traits = provider_trait(login.provider);
        traits.insert("error_code".into(), code.into());
        if omitted > 0 {
            traits.insert("omitted".into(), omitted.into());
        }
        let ip = request.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let written = async {
            let client = database.client().await?;
            let payload = payload(actor, action, traits);
            audit_log_entries::insert(&client, &payload, &ip, request.now).await.map_err(AuthError::from)
        };
        if let Err(error) = written.await {
            let error = format!("{:#}", anyhow::Error::new(error));
            tracing::warn!(error = %error, "the audit entry of a failed sign-in could not be written");
        }
    }
}

/// A failed sign-in.
pub(crate) struct FailedLogin<'a> {
    /// The account. `None`: there is none. The name is not written: it may be a password in the
    /// wrong field.
    pub(crate) user: Option<&'a User>,
    /// `email`, `phone` or `passkey`.
    pub(crate) provider: &'static str,
    /// The error that the client sees.
    pub(crate) error: &'a AuthError,
}

fn payload(actor: &User, action: Action, traits: Traits) -> Value {
    let username = if actor.phone.is_empty() { &actor.email } else { &actor.phone };
    let mut payload = Map::new();
    payload.insert("actor_id".into(), actor.id.to_string().into());
    payload.insert("actor_via_sso".into(), actor.is_sso_user.into());
    payload.insert("actor_username".into(), username.as_str().into());
    if let Some(name) = actor.user_metadata.get("full_name").and_then(Value::as_str) {
        payload.insert("actor_name".into(), name.into());
    }
    payload.insert("action".into(), action.name().into());
    payload.insert("log_type".into(), action.log_type().into());
    if !traits.is_empty() {
        payload.insert("traits".into(), traits.into());
    }
    payload.into()
}
