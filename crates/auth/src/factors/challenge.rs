//! `POST /factors/{id}/challenge`: begins a proof of a second factor.

use axum::extract::{FromRequest as _, Request, State};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::factors::open_challenge::{client_address, end_of};
use crate::factors::{FactorType, OwnFactor, check_may_add, phone, webauthn};
use crate::http::extract::{Json, RequestInfo};
use crate::model::ids::FactorChallengeId;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, Traits};
use crate::protection::limits::Limiter;
use crate::sql::mfa_challenges::FactorChallenge;
use crate::sql::{Tx, mfa_challenges, mfa_factors};

/// The number of unproved challenges that a factor has at once: enough for several tabs and
/// devices, and few enough that requests without a limit by address do not fill the table.
const MAX_OPEN_CHALLENGES: i64 = 10;

/// `POST /factors/{id}/challenge`
pub(crate) async fn challenge(
    State(auth): State<Auth>,
    own: OwnFactor,
    request: RequestInfo,
    raw: Request,
) -> Result<axum::Json<Value>, AuthError> {
    auth.limits().check(Limiter::FactorChallenge, &request)?;
    own.kind.check_verify(&auth.settings().factors)?;
    if !own.factor.is_verified() {
        check_may_add(&own.owner.user, own.owner.session.is_aal2())?;
    }
    let (mut code, mut key) = (None, None);
    match own.kind {
        FactorType::Totp => {}
        FactorType::Phone => {
            let Json(body) = Json::from_request(raw, &auth).await?;
            code = Some(phone::send(&auth, &own, &request, body).await?);
        }
        FactorType::Webauthn => {
            // The client sends the relying party that it expects; the configured one counts
            Json::<IgnoredAny>::from_request(raw, &auth).await?;
            key = Some(webauthn::begin(&auth, &own).await?);
        }
    }
    let (webauthn_data, webauthn) = key.map(|key| (key.data, key.response)).unzip();
    let challenge = FactorChallenge {
        id: FactorChallengeId::random(),
        created_at: auth.now(),
        verified_at: None,
        ip: client_address(&request),
        otp_code: code,
        webauthn_data,
    };

    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(&auth, &request, &tx);
    // A message recorded its time before it was sent
    let is_recorded = own.kind == FactorType::Phone;
    if !is_recorded && !mfa_factors::set_challenged(&tx, own.factor.id, challenge.created_at).await? {
        return Err(ContractError::FactorUnknown.into());
    }
    // Concurrent requests wait for one another in the update of the factor; messages have a pause
    let since = challenge.created_at - auth.settings().factors.challenge_expiry;
    mfa_challenges::delete_surplus(&tx, own.factor.id, since, MAX_OPEN_CHALLENGES - 1).await?;
    mfa_challenges::insert(&tx, own.factor.id, &challenge).await?;
    if own.kind != FactorType::Webauthn {
        let traits = Traits::from_iter([
            ("factor_id".to_owned(), own.factor.id.to_string().into()),
            ("factor_status".to_owned(), own.factor.status.as_str().into()),
        ]);
        op.record_with_ip(&own.owner.user, Action::ChallengeCreated, traits).await?;
    }
    tx.commit().await?;

    let mut response = Map::new();
    response.insert("id".into(), json!(challenge.id));
    response.insert("type".into(), own.kind.as_str().into());
    response.insert("expires_at".into(), end_of(&auth.settings().factors, &challenge).unix_timestamp().into());
    response.extend(webauthn.map(|webauthn| ("webauthn".to_owned(), webauthn)));
    Ok(axum::Json(response.into()))
}
