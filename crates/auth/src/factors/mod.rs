//! Second factors of accounts: their enrolment, challenges, verification and removal, and recovery
//! codes in their place.
//!
//! A factor is enrolled, and becomes *verified* when it is proved for the first time. Each proof
//! raises the session to `aal2`. What is special about a type of factor is in its own file:
//! [`totp`], [`phone`] and [`webauthn`]. The steps that all types share are in [`enroll`],
//! [`challenge`], [`verify`] and [`unenroll`].
//!
//! Guarantees beyond the reference:
//! - The number of wrong codes of an account is limited, for all its factors and recovery codes
//!   together, see the
//!   [guess counter](crate::protection::attempts::GuessCounter::factor_code).
//! - A code of an authenticator app is accepted once.
//! - Once a factor is verified, another one can be proved for the first time at `aal2` only.
//!   Otherwise a stranger with a password could finish an enrolment that began before.

pub(crate) mod challenge;
mod draft;
pub(crate) mod enroll;
mod open_challenge;
mod phone;
pub(crate) mod recovery_codes;
mod security_key;
pub(crate) mod totp;
pub(crate) mod unenroll;
pub(crate) mod verify;
mod webauthn;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use portico_mail::{MailKind, Variables};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::SignedIn;
use crate::messages::mailer;
use crate::model::ids::FactorId;
use crate::model::{Factor, User};
use crate::one_time::message;
use crate::operation::AccountOperation;
use crate::session::AuthenticationMethod;
use crate::settings::{FactorSettings, FactorSwitches};
use crate::sql::users::SessionSummary;

/// The types of second factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FactorType {
    /// An authenticator app.
    Totp,
    /// Codes in text messages.
    Phone,
    /// A security key.
    Webauthn,
}

impl FactorType {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Totp, Self::Phone, Self::Webauthn].into_iter().find(|kind| kind.as_str() == name)
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Totp => "totp",
            Self::Phone => "phone",
            Self::Webauthn => "webauthn",
        }
    }

    /// Returns the method that a proof adds to the session.
    pub(crate) const fn method(self) -> AuthenticationMethod {
        match self {
            Self::Totp => AuthenticationMethod::Totp,
            Self::Phone => AuthenticationMethod::MfaPhone,
            Self::Webauthn => AuthenticationMethod::MfaWebauthn,
        }
    }

    fn switches(self, settings: &FactorSettings) -> FactorSwitches {
        match self {
            Self::Totp => settings.totp,
            Self::Phone => settings.phone.switches,
            Self::Webauthn => settings.webauthn,
        }
    }

    /// Checks that factors of this type may be added.
    fn check_enroll(self, settings: &FactorSettings) -> Result<(), AuthError> {
        if self.switches(settings).enroll {
            return Ok(());
        }
        let error = match self {
            Self::Totp => ContractError::TotpEnrollOff,
            Self::Phone => ContractError::PhoneEnrollOff,
            Self::Webauthn => ContractError::WebauthnEnrollOff,
        };
        Err(error.into())
    }

    /// Checks that factors of this type may be used.
    fn check_verify(self, settings: &FactorSettings) -> Result<(), AuthError> {
        if self.switches(settings).verify {
            return Ok(());
        }
        let error = match self {
            Self::Totp => ContractError::TotpVerifyOff,
            Self::Phone => ContractError::PhoneVerifyOff,
            Self::Webauthn => ContractError::WebauthnVerifyOff,
        };
        Err(error.into())
    }
}

/// A person who may have factors: signed in with a session, and not anonymous.
pub(crate) struct FactorOwner {
    pub(crate) user: User,
    pub(crate) session: SessionSummary,
}

impl FactorOwner {
    fn from_signed_in(signed_in: SignedIn) -> Result<Self, AuthError> {
        let session = signed_in.session.ok_or(ContractError::FactorsNeedSession)?;
        Ok(Self { user: signed_in.user, session })
    }
}

impl FromRequestParts<Auth> for FactorOwner {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        Self::from_signed_in(named_person(parts, auth).await?)
    }
}

/// A factor that the path names, and its owner, who is the caller.
pub(crate) struct OwnFactor {
    pub(crate) owner: FactorOwner,
    pub(crate) factor: Factor,
    pub(crate) kind: FactorType,
}

impl FromRequestParts<Auth> for OwnFactor {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, AuthError> {
        let signed_in = named_person(parts, auth).await?;
        let not_uuid = || AuthError::from(ContractError::FactorIdNotUuid);
        let Path(id) = Path::<String>::from_request_parts(parts, auth).await.map_err(|_| not_uuid())?;
        let id = FactorId::parse(&id).ok_or_else(not_uuid)?;
        let found = signed_in.user.factors.iter().find(|factor| factor.id == id).cloned();
        let factor = found.ok_or(ContractError::FactorUnknown)?;
        // Of a type that a later version added
        let kind = FactorType::parse(&factor.factor_type).ok_or(ContractError::FactorUnknown)?;
        Ok(Self { owner: FactorOwner::from_signed_in(signed_in)?, factor, kind })
    }
}

/// Returns the signed-in person, who must not be anonymous.
async fn named_person(parts: &mut Parts, auth: &Auth) -> Result<SignedIn, AuthError> {
    let signed_in = SignedIn::from_request_parts(parts, auth).await?;
    if signed_in.user.is_anonymous {
        return Err(ContractError::AnonymousNotAllowed.into());
    }
    Ok(signed_in)
}

/// Checks that an unverified factor may be added or proved for the first time in a session.
fn check_may_add(user: &User, is_aal2: bool) -> Result<(), AuthError> {
    if user.has_verified_factor() && !is_aal2 {
        return Err(ContractError::EnrollNeedsAal2.into());
    }
    Ok(())
}

/// Notifies the account's owner of an added or removed factor, if such emails are enabled.
pub(crate) async fn notify(
    op: AccountOperation<'_>,
    user: &User,
    mail: MailKind,
    kind: FactorType,
) -> Result<(), AuthError> {
    let variables = Variables { factor_type: Some(kind.as_str().to_owned()), ..mailer::variables(op.auth, user) };
    message::notify(op, user, mail, &variables).await
}
