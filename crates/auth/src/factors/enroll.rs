//! `POST /factors`: begins the enrolment of a second factor.

use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError, SqlResultExt as _};
use crate::factors::draft::{EnrollBody, FactorDraft};
use crate::factors::{FactorOwner, FactorType, check_may_add, phone, totp};
use crate::http::extract::{Json, RequestInfo};
use crate::model::User;
use crate::model::ids::FactorId;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::settings::FactorSettings;
use crate::sql::mfa_factors::NewFactor;
use crate::sql::{Tx, mfa_factors, sessions, users};

/// Longest name of a factor in characters.
pub(crate) const MAX_NAME: usize = 255;

/// `POST /factors`
pub(crate) async fn enroll(
    State(auth): State<Auth>,
    owner: FactorOwner,
    request: RequestInfo,
    Json(body): Json<EnrollBody>,
) -> Result<axum::Json<Value>, AuthError> {
    let kind = FactorType::parse(&body.factor_type).ok_or(ContractError::FactorTypeUnknown)?;
    kind.check_enroll(&auth.settings().factors)?;
    let id = FactorId::random();
    let draft = match kind {
        FactorType::Totp => totp::draft(&auth, id, &owner.user, &body)?,
        FactorType::Phone => phone::draft(&owner.user, &body)?,
        // The key is registered by the first proof
        FactorType::Webauthn => FactorDraft::default(),
    };
    if body.friendly_name.chars().count() > MAX_NAME {
        return Err(ContractError::FactorNameTooLong.into());
    }

    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(&auth, &request, &tx);
    let user = users::lock_complete(&tx, owner.user.id).await?.ok_or(ContractError::SubjectGone)?;
    let aal = sessions::lock_aal(&tx, owner.session.id, user.id).await?.ok_or(ContractError::SessionOfTokenGone)?;
    let user = make_room(op, user, draft.phone.as_deref()).await?;
    check_room(&auth.settings().factors, &user, &body.friendly_name)?;
    check_may_add(&user, aal == "aal2")?;
    let new = NewFactor {
        id,
        user_id: user.id,
        friendly_name: &body.friendly_name,
        factor_type: kind.as_str(),
        secret: draft.secret,
        phone: draft.phone,
    };
    mfa_factors::insert(&tx, &new, request.now)
        .await
        .on_constraint("mfa_factors_user_friendly_name_unique", name_taken(&body.friendly_name))?;
    let mut traits = Traits::from_iter([("factor_id".to_owned(), id.to_string().into())]);
    if kind != FactorType::Totp {
        traits.insert("factor_type".into(), kind.as_str().into());
    }
    op.record_with_ip(&user, Action::FactorInProgress, traits).await?;
    tx.commit().await?;

    let mut response = Map::new();
    response.insert("id".into(), json!(id));
    response.insert("type".into(), kind.as_str().into());
    response.insert("friendly_name".into(), body.friendly_name.into());
    response.extend(draft.response);
    Ok(axum::Json(response.into()))
}

/// Deletes enrolments of a user that were abandoned, and those of the same number. Returns the user
/// with the remaining factors.
async fn make_room(op: AccountOperation<'_>, mut user: User, phone: Option<&str>) -> Result<User, AuthError> {
    if let Some(phone) = phone {
        if user.factors.iter().any(|factor| factor.is_verified() && factor.phone == phone) {
            return Err(ContractError::FactorPhoneVerified.into());
        }
        mfa_factors::delete_unverified_phone(op.tx, user.id, phone).await?;
    }
    let abandoned = op.now() - op.auth.settings().factors.unverified_expiry;
    mfa_factors::delete_unchallenged(op.tx, user.id, abandoned).await?;
    user.factors = mfa_factors::of_user(op.tx, user.id).await?;
    Ok(user)
}

/// Checks the name and the number of factors.
fn check_room(settings: &FactorSettings, user: &User, name: &str) -> Result<(), AuthError> {
    if user.factors.iter().any(|factor| factor.friendly_name == name) {
        return Err(name_taken(name).into());
    }
    let verified = user.factors.iter().filter(|factor| factor.is_verified()).count();
    if user.factors.len() >= settings.max_enrolled || verified >= settings.max_verified {
        return Err(ContractError::TooManyFactors.into());
    }
    Ok(())
}

fn name_taken(name: &str) -> ContractError {
    ContractError::FactorNameTaken { name: name.to_owned() }
}
