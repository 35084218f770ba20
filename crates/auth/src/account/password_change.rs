//! The change of the password of a person who is signed in.

use portico_mail::MailKind;
use time::Duration;

use crate::Auth;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::http::extract::{RequestInfo, SignedIn};
use crate::messages::mailer;
use crate::model::ids::PhoneNumber;
use crate::model::metadata;
use crate::model::{JsonObject, User};
use crate::one_time::message;
use crate::one_time::text_code::{self, TypedCode};
use crate::one_time::token::{self, TokenKind};
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::sql::{one_time_tokens, sessions, users};

const FAILED: ContractError = ContractError::UpdatingUserFailed;

/// A session that lasts longer needs a nonce for a change, where the settings demand it.
const RECENT_SIGN_IN: Duration = Duration::hours(24);

/// A change that was requested.
pub(crate) struct PasswordChange<'a> {
    auth: &'a Auth,
    signed_in: &'a SignedIn,
    /// The nonce that must be checked.
    nonce: Option<&'a str>,
}

/// A change whose nonce and passwords were checked.
pub(crate) struct PreparedChange<'a> {
    change: PasswordChange<'a>,
    /// The stored form of the new password.
    stored: String,
}

impl<'a> PasswordChange<'a> {
    /// Checks whether the change needs a nonce, and takes the one of the request.
    ///
    /// # Errors
    /// 400 `reauthentication_needed` when there must be a nonce and is none.
    pub(crate) fn new(auth: &'a Auth, signed_in: &'a SignedIn, nonce: &'a str) -> Result<Self, AuthError> {
        let needs_nonce = auth.settings().password_change_needs_reauthentication
            && !{
                let signed_in_at = signed_in.session.as_ref().and_then(|session| session.created_at);
                signed_in_at.is_some_and(|at| auth.now() <= at + RECENT_SIGN_IN)
            };
        if needs_nonce && nonce.is_empty() {
            return Err(ContractError::NonceRequired.into());
        }
        Ok(Self { auth, signed_in, nonce: needs_nonce.then_some(nonce) })
    }

    /// Checks the nonce, then the current password where that is demanded or given, and that the
    /// new password is new; computes its stored form.
    pub(crate) async fn prepare(
        self,
        request: &RequestInfo,
        password: &str,
        current: Option<&str>,
    ) -> Result<PreparedChange<'a>, AuthError> {
        if let Some(nonce) = self.nonce {
            self.check_nonce(nonce, request).await?;
        }
        let (auth, user) = (self.auth, &self.signed_in.user);
        // One that was given is checked even where none is demanded: a page that asks for it must
        // be able to rely on it
        let is_asked_for =
            auth.settings().password_change_needs_current || current.is_some_and(|text| !text.is_empty());
        if is_asked_for && user.has_password() && !began_with_message(self.signed_in) {
            self.check_current(current).await?;
        }
        if user.has_password() && auth.passwords().is_password_of(auth.columns(), user, password).await? {
            return Err(ContractError::PasswordUnchanged.into());
        }
        let hash = auth.passwords().hash(password).await?;
        let stored = auth.columns().encrypt(user.id.0, &hash);
        Ok(PreparedChange { change: self, stored })
    }

    async fn check_nonce(&self, nonce: &str, request: &RequestInfo) -> Result<(), AuthError> {
        let (auth, user, kind) = (self.auth, &self.signed_in.user, TokenKind::Reauthentication);
        let account = format!("nonce of {}", user.id);
        let attempt = async {
            let is_right = if user.email.is_empty() {
                let phone = PhoneNumber::parse(&user.phone)?;
                let typed = TypedCode { phone: &phone, code: nonce };
                let verdict = text_code::check_at_gateway(auth, kind.stored(user), typed, auth.now()).await?;
                text_code::is_right_code(auth, user, kind, typed, verdict.as_ref())
            } else {
                token::code_matches(kind.stored(user), &user.email, nonce)
                    && kind.is_fresh(user, auth.settings().email.otp_expiry, auth.now())
            };
            if is_right { Ok(()) } else { Err(ContractError::NonceInvalid.into()) }
        };
        auth.guesses().code(&account, request, attempt).await
    }

    async fn check_current(&self, current: Option<&str>) -> Result<(), AuthError> {
        let (auth, user) = (self.auth, &self.signed_in.user);
        let current = current.filter(|text| !text.is_empty()).ok_or(ContractError::CurrentPasswordMissing)?;
        let compared = async {
            let matches = auth.passwords().is_password_of(auth.columns(), user, current).await?;
            if matches { Ok(()) } else { Err(ContractError::CurrentPasswordWrong.into()) }
        };
        let session = self.signed_in.session.as_ref();
        let session = session.map_or_else(|| user.id.to_string(), |session| session.id.to_string());
        auth.guesses().current_password(&session, compared).await
    }
}

/// Returns true if the session began with a message: its owner may have forgotten the password.
fn began_with_message(signed_in: &SignedIn) -> bool {
    let methods = signed_in.claims.get("amr").and_then(|amr| amr.as_array());
    signed_in.session.is_some()
        && methods.into_iter().flatten().any(|entry| {
            matches!(entry.get("method").and_then(|method| method.as_str()), Some("otp" | "magiclink" | "recovery"))
        })
}

impl PreparedChange<'_> {
    /// Stores the password, ends all other sessions and every message that is on its way. `user` is
    /// locked.
    ///
    /// # Errors
    /// 409 `conflict` when the password changed since it was compared.
    pub(crate) async fn apply(&self, op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
        let PasswordChange { signed_in, nonce, .. } = &self.change;
        if user.encrypted_password != signed_in.user.encrypted_password {
            return Err(ContractError::PasswordChangedMeanwhile.into());
        }
        // The nonce that was checked must not have been used since
        if nonce.is_some() && user.reauthentication_token != signed_in.user.reauthentication_token {
            return Err(ContractError::NonceInvalid.into());
        }
        let (stored, tokens, audit) = tokio::join!(biased;
            users::set_password(op.tx, user.id, &self.stored, op.now()),
            one_time_tokens::delete_all(op.tx, user.id),
            op.record(user, Action::UserUpdatedPassword, Traits::new()),
        );
        stored.context(FAILED)?;
        tokens?;
        audit?;
        match &signed_in.session {
            Some(session) => drop(sessions::delete_others(op.tx, user.id, session.id).await?),
            None => sessions::delete_all(op.tx, user.id).await?,
        }
        create_email_identity(op, user).await?;
        if user.email.is_empty() {
            return Ok(());
        }
        let variables = mailer::variables(op.auth, user);
        message::notify(op, user, MailKind::PasswordChanged, &variables).await
    }
}

/// Gives an account that gets its first password an identity for its confirmed address, where
/// the settings demand it.
pub(crate) async fn create_email_identity(op: AccountOperation<'_>, user: &User) -> Result<(), AuthError> {
    let has_email_identity = user.identities.iter().any(|identity| identity.provider == "email");
    if !op.auth.settings().create_email_identity_on_password_set
        || user.has_password()
        || !user.is_email_confirmed()
        || has_email_identity
    {
        return Ok(());
    }
    let mut data = metadata::of_contact(JsonObject::new(), user.id, Some(&user.email));
    data.insert("email_verified".into(), true.into());
    op.upsert_contact_identity(user.id, "email", &data).await?;
    users::refresh_providers(op.tx, user.id, op.now()).await.context(FAILED)
}
