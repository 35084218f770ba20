//! Security keys as second factors. The first proof of a factor registers a key; later ones are
//! signed by it, or by another verified key of the user.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::OwnFactor;
use super::security_key::SecurityKey;
use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::model::User;
use crate::model::ids::UserId;
use crate::operation::AccountOperation;
use crate::sql::mfa_challenges::FactorChallenge;
use crate::sql::{Run, mfa_factors};
use crate::webauthn::{
    AssertionResponse, CeremonyError, CredentialOwner, NewCredential, RegistrationResponse, challenge_bytes,
    new_challenge, offered_algorithms,
};

/// A challenge of a security key: the data that is stored with it, and the member `webauthn` of the
/// response.
pub(super) struct KeyChallenge {
    pub(super) data: Value,
    pub(super) response: Value,
}

/// Makes the challenge of a factor: to register a key if it has none, else to prove one.
///
/// # Errors
/// 500 without a relying party, and those of the database.
pub(super) async fn begin(auth: &Auth, own: &OwnFactor) -> Result<KeyChallenge, AuthError> {
    let relying_party = auth.relying_party()?;
    let user = &own.owner.user;
    let client = auth.database().client().await?;
    let keys = keys_of(&client, user.id).await?;
    drop(client);
    let challenge = new_challenge();
    let timeout = u64::try_from(auth.settings().factors.challenge_expiry.as_millis()).unwrap_or(u64::MAX);
    let listed: Value = keys.iter().map(SecurityKey::descriptor).collect();
    let (kind, options) = if own.factor.is_verified() {
        let options = json!({
            "challenge": challenge,
            "timeout": timeout,
            "rpId": relying_party.id,
            "allowCredentials": listed,
        });
        ("request", options)
    } else {
        let handle = user.id.to_string();
        let name = account_name(user);
        let mut options = json!({
            "rp": relying_party.to_json(),
            "user": CredentialOwner { handle: &handle, name, display_name: name }.to_json(),
            "challenge": challenge,
            "pubKeyCredParams": offered_algorithms(),
            "timeout": timeout,
            "authenticatorSelection": {},
        });
        if !keys.is_empty() {
            options["excludeCredentials"] = listed;
        }
        ("create", options)
    };
    Ok(KeyChallenge {
        data: json!({ "challenge": challenge, "type": kind }),
        response: json!({ "type": kind, "credential_options": { "publicKey": options } }),
    })
}

/// Returns the name under which an authenticator lists the account. The client replaces an empty
/// one.
fn account_name(user: &User) -> &str {
    if user.email.is_empty() { &user.phone } else { &user.email }
}

/// The member `webauthn` of the body of a proof.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyProofBody {
    #[serde(rename = "type")]
    kind: String,
    credential_response: Option<Value>,
}

/// The response of an authenticator.
pub(super) enum KeyResponse {
    Create(Box<RegistrationResponse>),
    Request(Box<AssertionResponse>),
}

impl KeyProofBody {
    /// Reads the response.
    ///
    /// # Errors
    /// 400 for a malformed body.
    pub(super) fn parse(self) -> Result<KeyResponse, AuthError> {
        if !matches!(&*self.kind, "create" | "request") {
            return Err(ContractError::KeyResponseTypeUnknown.into());
        }
        let response = self.credential_response.ok_or(ContractError::KeyResponseMissing)?;
        match &*self.kind {
            "create" => read(response).map(KeyResponse::Create),
            _ => read(response).map(KeyResponse::Request),
        }
    }
}

fn read<T: DeserializeOwned>(response: Value) -> Result<Box<T>, AuthError> {
    serde_json::from_value(response).map(Box::new).map_err(|_| ContractError::KeyResponseUnreadable.into())
}

/// A proof by a security key.
#[derive(Clone)]
pub(super) enum KeyProof {
    /// A key that was registered.
    New(NewCredential),
    /// A verified key of the user, by the id of its credential.
    Known(Vec<u8>),
}

/// Verifies the response to a challenge.
pub(super) async fn compare(
    auth: &Auth,
    own: &OwnFactor,
    challenge: &FactorChallenge,
    response: &KeyResponse,
) -> Result<Result<KeyProof, CeremonyError>, AuthError> {
    let relying_party = auth.relying_party()?;
    let data = challenge.webauthn_data.as_ref();
    let Some(bytes) = data.and_then(|data| challenge_bytes(&data["challenge"])) else {
        return Ok(Err(CeremonyError::Challenge));
    };
    let kind = data.and_then(|data| data["type"].as_str()).unwrap_or_default();
    Ok(match (response, own.factor.is_verified(), kind) {
        (KeyResponse::Create(response), false, "create") => {
            relying_party.verify_registration(&bytes, response).map(KeyProof::New)
        }
        (KeyResponse::Request(response), true, "request") => {
            let client = auth.database().client().await?;
            let keys = keys_of(&client, own.owner.user.id).await?;
            drop(client);
            if !is_handle_of(response, own.owner.user.id) {
                return Ok(Err(CeremonyError::UnknownCredential));
            }
            let key = keys.iter().find(|key| key.credential_id() == response.credential_id());
            key.ok_or(CeremonyError::UnknownCredential).and_then(|key| {
                relying_party.verify_assertion(&bytes, response, &key.stored())?;
                Ok(KeyProof::Known(key.credential_id().to_vec()))
            })
        }
        _ => Err(CeremonyError::Ceremony),
    })
}

/// Returns true if the user handle, which not all keys keep, is that of the user.
fn is_handle_of(response: &AssertionResponse, user: UserId) -> bool {
    response.user_handle().is_none_or(|handle| handle == user.to_string().as_bytes())
}

/// Uses up a proof, under the lock of the user: stores a new key, or checks that the known one is
/// still there.
///
/// # Errors
/// 422 when the factor or the key changed meanwhile.
pub(super) async fn use_up(
    op: AccountOperation<'_>,
    own: &OwnFactor,
    was_verified: bool,
    proof: &KeyProof,
) -> Result<(), AuthError> {
    let is_current = match proof {
        KeyProof::New(credential) if !was_verified => {
            let key = SecurityKey::new(credential);
            mfa_factors::set_key(op.tx, own.factor.id, &key.to_column(), key.aaguid()).await?;
            true
        }
        KeyProof::Known(id) if was_verified => {
            keys_of(op.tx, own.owner.user.id).await?.iter().any(|key| key.credential_id() == id)
        }
        _ => false,
    };
    match is_current {
        true => Ok(()),
        false => Err(ContractError::FactorChallengeUnknown.into()),
    }
}

/// Returns the verified keys of a user. Keys in a form that is not known are left out.
async fn keys_of(run: &impl Run, user: UserId) -> Result<Vec<SecurityKey>, AuthError> {
    Ok(mfa_factors::keys(run, user).await?.into_iter().filter_map(SecurityKey::from_column).collect())
}
