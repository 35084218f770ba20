//! Passkeys: WebAuthn credentials that authenticators and password managers keep, and that sign in
//! without a password and without a name.
//!
//! A ceremony has two requests. The first one returns options with a random challenge, which is
//! stored; the second one brings the signature over it. A challenge can be used once, whatever the
//! result, and only for the ceremony and the account for which it was made.

pub(crate) mod administration;
pub(crate) mod authentication;
mod ceremony;
pub(crate) mod management;
mod providers;
pub(crate) mod registration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use portico_mail::{MailKind, Variables};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::SignedIn;
use crate::messages::mailer;
use crate::model::{Passkey, User};
use crate::one_time::message;
use crate::operation::AccountOperation;
use crate::protection::audit::Traits;
use crate::session::assurance;
use crate::sql::{Tx, users};

/// The precondition of every route for users: passkeys are enabled.
pub(crate) struct PasskeysEnabled;

impl FromRequestParts<Auth> for PasskeysEnabled {
    type Rejection = AuthError;

    async fn from_request_parts(_: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        match auth.settings().passkeys.enabled {
            true => Ok(Self),
            false => Err(ContractError::PasskeysOff.into()),
        }
    }
}

/// Checks that a person with a second factor has used it in this session: a passkey signs in
/// without one.
fn check_assurance(signed_in: &SignedIn) -> Result<(), AuthError> {
    check_aal(&signed_in.user, signed_in.aal())
}

fn check_aal(user: &User, aal: Option<&str>) -> Result<(), AuthError> {
    match user.has_verified_factor() && aal != Some("aal2") {
        true => Err(ContractError::PasskeysNeedAal2.into()),
        false => Ok(()),
    }
}

/// Locks the account of a signed-in person and repeats [`check_assurance`] behind the lock: a
/// second factor that was added meanwhile counts, and a session that has ended changes nothing.
///
/// # Errors
/// Those of the check, of a deleted account and of an ended session.
async fn lock_owner(tx: &Tx, signed_in: &SignedIn) -> Result<User, AuthError> {
    let user = users::lock_complete(tx, signed_in.user.id).await?.ok_or(ContractError::SubjectGone)?;
    let aal = assurance::lock(tx, user.id, signed_in.session_id()).await?;
    check_aal(&user, aal.as_deref())?;
    Ok(user)
}

/// Notifies the owner of an added or removed passkey, if such emails are enabled.
async fn notify(op: AccountOperation<'_>, owner: &User, kind: MailKind, passkey: &Passkey) -> Result<(), AuthError> {
    let name = Some(passkey.friendly_name.clone()).filter(|name| !name.is_empty());
    let variables = Variables { passkey_name: name, ..mailer::variables(op.auth, owner) };
    message::notify(op, owner, kind, &variables).await
}

/// Returns the traits of an audit entry about a passkey.
fn traits(passkey: &Passkey) -> Traits {
    Traits::from_iter([("passkey_id".to_owned(), passkey.id.to_string().into())])
}
