//! The audit log (auth-core 22): what happened to accounts, in `auth.audit_log_entries` and in the log.
//!
//! Failed sign-ins are in it as well, beyond the contract. Their number is not bounded by anything else, so their entries have a
//! budget, see [`Limits::take_failure`](crate::protection::limits::Limits::take_failure), and an unknown account is not named.

use std::net::IpAddr;

use serde_json::{Map, Value};
use time::OffsetDateTime;
use tokio_postgres::Error;
use uuid::Uuid;

use crate::Auth;
use crate::account::sign_up::blank;
use crate::error::AuthError;
use crate::http::extract::RequestInfo;
use crate::model::ids::UserId;
use crate::model::{JsonObject, User};
use crate::sql::{Run as _, Tx};

/// Statements of this module, for the test that prepares them.
pub const ALL: &[(&str, &str)] = &[("audit::INSERT", INSERT)];

const INSERT: &str = "
    insert into auth.audit_log_entries (instance_id, id, payload, created_at, ip_address)
    values ('00000000-0000-0000-0000-000000000000', $1, $2, $3, $4)";

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident $name:literal $log_type:literal),+ $(,)?) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action { $($(#[$doc])* $variant),+ }

        impl Action {
            /// The `action` of the entry.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The `log_type` of the entry.
            pub const fn log_type(self) -> &'static str {
                match self { $(Self::$variant => $log_type),+ }
            }
        }
    };
}

actions! {
    /// Signed in; trait `provider`.
    Login "login" "account",
    /// A password or code was refused; traits `provider`, `error_code`, and `omitted` where entries before were left out.
    LoginFailed "login_failed" "account",
    /// Signed out.
    Logout "logout" "account",
    /// An invited person came; trait `provider`.
    InviteAccepted "invite_accepted" "account",
    /// A new account is confirmed; trait `provider`, for phones `channel`.
    UserSignedUp "user_signedup" "team",
    /// Invited; traits `user_id`, `user_email`.
    UserInvited "user_invited" "team",
    /// Deleted.
    UserDeleted "user_deleted" "team",
    /// A session goes on.
    TokenRefreshed "token_refreshed" "token",
    /// A refresh token was replaced or ended.
    TokenRevoked "token_revoked" "token",
    /// The account changed.
    UserModified "user_modified" "user",
    /// A recovery message was asked for.
    UserRecoveryRequested "user_recovery_requested" "user",
    /// A nonce was asked for.
    UserReauthenticateRequested "user_reauthenticate_requested" "user",
    /// A confirmation was asked for; trait `provider`.
    UserConfirmationRequested "user_confirmation_requested" "user",
    /// Someone signed up for an account that exists; trait `provider`.
    UserRepeatedSignUp "user_repeated_signup" "user",
    /// The password changed.
    UserUpdatedPassword "user_updated_password" "user",
    /// Traits `identity_id`, `provider`, `provider_id`.
    IdentityLinked "identity_linked" "user",
    /// Traits `identity_id`, `provider`, `provider_id`.
    IdentityUnlinked "identity_unlinked" "user",
}

/// Facts of an entry beyond who and what.
pub type Traits = JsonObject;

/// The traits `{"provider": provider}`.
pub fn provider_trait(provider: &str) -> Traits {
    Traits::from_iter([("provider".to_owned(), provider.into())])
}

/// Writes an entry, in the transaction of what happened. `ip` only for identity, factor and passkey actions.
///
/// # Errors
/// What PostgreSQL said.
pub async fn record(
    auth: &Auth,
    tx: &Tx,
    actor: &User,
    action: Action,
    traits: Traits,
    ip: Option<IpAddr>,
    now: OffsetDateTime,
) -> Result<(), Error> {
    tracing::info!(target: "auth_audit_event", { user.id = %actor.id, action = action.name() }, "Account event");
    if auth.settings().audit_log_disabled {
        return Ok(());
    }
    let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
    let id: Uuid = portico_base::random::uuid();
    tx.execute(INSERT, &[&id, &payload(actor, action, traits), &now, &ip]).await.map(drop)
}

/// A sign-in that failed.
pub(crate) struct FailedLogin<'a> {
    /// The account. `None`: there is none of that name, which is not written: it may be a password in the wrong field.
    pub(crate) user: Option<&'a User>,
    /// `email` or `phone`.
    pub(crate) provider: &'static str,
    /// Why it failed.
    pub(crate) error: &'a AuthError,
}

/// Writes an entry for a failed sign-in, with the client's address, where the budget of such entries allows one. A failure
/// to write is logged: the refusal of the sign-in does not depend on it.
pub(crate) async fn record_failed_login(auth: &Auth, login: &FailedLogin<'_>, request: &RequestInfo) {
    let Some(omitted) = auth.limits().take_failure(request) else { return };
    let unknown = User { id: UserId(Uuid::nil()), ..blank(request) };
    let actor = login.user.unwrap_or(&unknown);
    let (action, code) = (Action::LoginFailed, login.error.code().as_str());
    tracing::info!(
        target: "auth_audit_event",
        { user.id = %actor.id, action = action.name(), error.code = code },
        "Account event"
    );
    if auth.settings().audit_log_disabled {
        return;
    }
    let mut traits = provider_trait(login.provider);
    traits.insert("error_code".into(), code.into());
    if omitted > 0 {
        traits.insert("omitted".into(), omitted.into());
    }
    let ip = request.ip.map(|ip| ip.to_string()).unwrap_or_default();
    let id: Uuid = portico_base::random::uuid();
    let written = async {
        let client = auth.database().auth().await?;
        client.rows(INSERT, &[&id, &payload(actor, action, traits), &auth.now(), &ip]).await.map_err(AuthError::from)
    };
    if let Err(error) = written.await {
        tracing::warn!(
            error = format!("{:#}", anyhow::Error::new(error)),
            "A failed sign-in could not be written down"
        );
    }
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
