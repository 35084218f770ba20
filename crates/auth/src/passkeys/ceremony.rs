//! The parts that registration and sign-in share: challenges, and the body of a response to one.

use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::error::{AuthError, ContractError};
use crate::http::extract::RequestInfo;
use crate::model::ids::{CeremonyChallengeId, UserId};
use crate::sql::webauthn_challenges::{self, ChallengeKey};
use crate::sql::{Run, Tx};
use crate::webauthn::{CeremonyError, challenge_bytes, new_challenge};

/// The ceremony that a challenge is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum PasskeyCeremony {
    /// A user adds a passkey.
    Registration(UserId),
    /// A visitor signs in.
    Authentication,
}

impl PasskeyCeremony {
    fn key(self, id: CeremonyChallengeId) -> ChallengeKey {
        match self {
            Self::Registration(user) => ChallengeKey { id, ceremony: "registration", user: Some(user) },
            Self::Authentication => ChallengeKey { id, ceremony: "authentication", user: None },
        }
    }
}

/// A stored challenge, for the options of a ceremony.
pub(super) struct IssuedChallenge {
    id: CeremonyChallengeId,
    /// The random bytes, in base64url.
    pub challenge: String,
    expires_at: OffsetDateTime,
    /// The lifetime in milliseconds, for the browser.
    pub timeout: u64,
}

impl IssuedChallenge {
    /// Stores a new challenge.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issue(
        run: &impl Run,
        ceremony: PasskeyCeremony,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Self, AuthError> {
        let id = CeremonyChallengeId::random();
        let challenge = new_challenge();
        let expires_at = now + lifetime;
        let data = json!({ "challenge": challenge });
        webauthn_challenges::insert(run, ceremony.key(id), &data, now, expires_at).await?;
        Ok(Self { id, challenge, expires_at, timeout: u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX) })
    }

    /// Returns the body of the response, with the options for the browser.
    pub fn response_body(&self, options: Value) -> Value {
        json!({ "challenge_id": self.id, "options": options, "expires_at": self.expires_at.unix_timestamp() })
    }
}

/// The body of a response to a challenge.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CeremonyBody {
    challenge_id: String,
    credential: Option<Value>,
}

impl CeremonyBody {
    /// Checks that both members are present, and parses the first.
    ///
    /// # Errors
    /// 400 `validation_failed`.
    pub(super) fn parse(self) -> Result<CeremonyResponse, AuthError> {
        if self.challenge_id.is_empty() {
            return Err(ContractError::CeremonyChallengeIdMissing.into());
        }
        let credential = self.credential.ok_or(ContractError::CeremonyCredentialMissing)?;
        let challenge_id =
            CeremonyChallengeId::parse(&self.challenge_id).ok_or(ContractError::CeremonyChallengeIdNotUuid)?;
        Ok(CeremonyResponse { challenge_id, credential })
    }
}

/// A response to a challenge.
#[derive(Clone)]
pub(super) struct CeremonyResponse {
    challenge_id: CeremonyChallengeId,
    credential: Value,
}

impl CeremonyResponse {
    /// Takes the challenge, so that no other response can use it, and parses the credential.
    ///
    /// # Errors
    /// 400 when there is no such challenge for this ceremony, when it is expired, or when the
    /// credential has another form.
    pub async fn take_challenge<T: DeserializeOwned>(
        self,
        tx: &Tx,
        ceremony: PasskeyCeremony,
        now: OffsetDateTime,
    ) -> Result<(Vec<u8>, T), AuthError> {
        let taken = webauthn_challenges::take(tx, ceremony.key(self.challenge_id)).await?;
        let (data, expires_at) = taken.ok_or(ContractError::CeremonyChallengeUnknown)?;
        if now >= expires_at {
            return Err(ContractError::CeremonyChallengeExpired.into());
        }
        let challenge = challenge_bytes(&data["challenge"]).ok_or(ContractError::CeremonyChallengeUnknown)?;
        let credential = serde_json::from_value(self.credential).map_err(|_| ContractError::CredentialUnreadable)?;
        Ok((challenge, credential))
    }
}

/// Commits, also after a rejection: a challenge is used by every response to it. Until its last
/// check a ceremony writes nothing else.
///
/// # Errors
/// That of `outcome`, or of the database.
pub(super) async fn conclude<T>(tx: Tx, request: &RequestInfo, outcome: Result<T, AuthError>) -> Result<T, AuthError> {
    // A hook fails behind the writes
    let is_conclusive = matches!(outcome, Ok(_) | Err(AuthError::Contract(_)));
    if is_conclusive && request.hooks.failed_point().is_none() {
        tx.commit().await?;
    }
    outcome
}

/// Returns the error of a response that does not prove what it should. The log has the reason.
pub(super) fn reject(error: CeremonyError) -> AuthError {
    tracing::info!(error = %error, "the response of an authenticator was rejected");
    ContractError::CredentialRejected.into()
}
