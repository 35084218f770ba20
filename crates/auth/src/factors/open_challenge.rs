//! Open challenges: those that can be proved now, by the client that requested them.

use std::net::{IpAddr, Ipv4Addr};

use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::factors::OwnFactor;
use crate::http::extract::RequestInfo;
use crate::model::ids::FactorChallengeId;
use crate::settings::FactorSettings;
use crate::sql::mfa_challenges::FactorChallenge;
use crate::sql::{Tx, mfa_challenges};

/// Returns a challenge that can be proved now. Deletes an expired one.
pub(super) async fn find_challenge(
    auth: &Auth,
    own: &OwnFactor,
    request: &RequestInfo,
    id: FactorChallengeId,
) -> Result<FactorChallenge, AuthError> {
    let client = auth.database().client().await?;
    let challenge = mfa_challenges::find(&client, id, own.factor.id).await?;
    drop(client);
    let challenge = challenge.ok_or(ContractError::FactorChallengeUnknown)?;
    check_unused(&challenge, request)?;
    if auth.now() >= end_of(&auth.settings().factors, &challenge) {
        let tx = Tx::begin(auth.database()).await?;
        mfa_challenges::delete(&tx, id).await?;
        tx.commit().await?;
        return Err(ContractError::FactorChallengeExpired { id: id.to_string() }.into());
    }
    Ok(challenge)
}

/// Checks that a challenge was not used, and that the client is the one that requested it.
pub(super) fn check_unused(challenge: &FactorChallenge, request: &RequestInfo) -> Result<(), AuthError> {
    if challenge.verified_at.is_some() || challenge.ip.to_canonical() != client_address(request) {
        return Err(ContractError::FactorChallengeOfAnotherAddress.into());
    }
    Ok(())
}

/// Returns the time at which a challenge expires.
pub(super) fn end_of(settings: &FactorSettings, challenge: &FactorChallenge) -> OffsetDateTime {
    challenge.created_at + settings.challenge_expiry
}

/// Returns the address that the proof of a challenge must come from. The names of this machine have
/// several addresses, which are one.
pub(super) fn client_address(request: &RequestInfo) -> IpAddr {
    match request.ip.map(|ip| ip.to_canonical()) {
        Some(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        Some(ip) => ip,
        None => Ipv4Addr::UNSPECIFIED.into(),
    }
}
