//! Sign-in with the wallet of a blockchain: `POST /token?grant_type=web3`.
//!
//! A wallet signs a message that names this application. The signature proves the address, which is
//! the identity. As in GoTrue, the nonce of a message is not stored: a person who obtains message
//! and signature can sign in with them until the message is too old, so apps must treat them like a
//! password.

mod message;
mod signature;

use serde::Deserialize;
use serde_json::{Value, json};
use sha3::{Digest as _, Keccak256};

use crate::Auth;
use crate::error::{AuthError, ContractError, OAuthError};
use crate::hooks;
use crate::http::extract::{RequestInfo, TokenBody};
use crate::model::JsonObject;
use crate::oauth::flow::account_linking::{self, ExternalIdentity, SignInOutcome};
use crate::oauth::provider::profile::Profile;
use crate::operation::AccountOperation;
use crate::protection::audit::{Action, provider_trait};
use crate::protection::captcha;
use crate::session::{self, AuthenticationMethod, TokenResponse};
use crate::sql::{Tx, identities};
use message::{Chain, SignInMessage};
use signature::WalletSignature;

/// The name of the provider in identities.
const PROVIDER: &str = "web3";
/// The sizes of a message, in bytes.
const MIN_MESSAGE: usize = 64;
const MAX_MESSAGE: usize = 20 * 1024;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Web3Body {
    chain: String,
    message: String,
    signature: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CaptchaFields {
    gotrue_meta_security: captcha::Security,
}

/// Signs in with a signed message.
///
/// # Errors
/// `validation_failed` for a message that does not follow the grammar, `invalid_grant` in the form
/// of OAuth for one that proves nothing here, and those of a sign-in.
pub(crate) async fn grant(auth: &Auth, request: &RequestInfo, body: &TokenBody) -> Result<TokenResponse, AuthError> {
    if auth.captcha().is_some() {
        let solved: CaptchaFields = body.parse()?;
        captcha::check(auth.captcha(), &solved.gotrue_meta_security, request).await?;
    }
    let settings = &auth.settings().web3;
    if !settings.ethereum && !settings.solana {
        return Err(ContractError::Web3Off.into());
    }
    let Web3Body { chain, message: text, signature } = body.parse()?;
    let chain = Chain::parse(&chain).ok_or(ContractError::Web3ChainUnknown)?;
    let is_enabled = match chain {
        Chain::Ethereum => settings.ethereum,
        Chain::Solana => settings.solana,
    };
    if !is_enabled {
        return Err(ContractError::Web3ChainOff { chain: chain.name() }.into());
    }
    let malformed = |detail: String| AuthError::from(ContractError::Web3Malformed { detail });
    if text.len() < MIN_MESSAGE {
        return Err(malformed("message is too short".to_owned()));
    }
    if text.len() > MAX_MESSAGE {
        return Err(malformed("message must not exceed 20KB".to_owned()));
    }
    let signature = WalletSignature::parse(chain, &signature).map_err(|error| malformed(error.to_string()))?;
    let message = SignInMessage::parse(chain, &text).map_err(|error| malformed(error.text(chain)))?;
    if !signature.is_by_author(&message, &text) {
        return Err(OAuthError::WalletSignatureMismatch.into());
    }
    check_target(auth, chain, &message)?;
    check_times(auth, request, chain, &message)?;

    let run = || hooks::complete(auth.hooks(), request, || complete(auth, request, chain, &message));
    let mut completed = run().await;
    for _ in 1..account_linking::MAX_RACE_ATTEMPTS {
        if !completed.as_ref().is_err_and(account_linking::is_lost_race) {
            break;
        }
        completed = run().await;
    }
    completed
}

/// Checks that the message was signed for a page of this application.
fn check_target(auth: &Auth, chain: Chain, message: &SignInMessage) -> Result<(), OAuthError> {
    let (chain, uri, domain) = (chain.name(), &message.uri, &message.domain);
    if uri.scheme() != "https" && !message.is_local() {
        return Err(OAuthError::WalletUriNotHttps { chain });
    }
    if !auth.allow_list().allows(uri.as_str()) {
        return Err(OAuthError::WalletUriNotAllowed { chain });
    }
    let is_named = match message.is_local() {
        // Wallets compare the domain with the page that requests the signature: another site's page
        // could have one made for an address of this machine
        true => domain.split(':').next() == Some("localhost"),
        false => {
            message.uri_authority().eq_ignore_ascii_case(domain)
                && auth.allow_list().allows(&format!("https://{domain}/"))
        }
    };
    if !is_named {
        return Err(OAuthError::WalletDomainNotAllowed { chain });
    }
    Ok(())
}

/// Checks the times of the message. GoTrue checks the expiration of an Ethereum message only where
/// it also has a beginning; here it always counts.
fn check_times(auth: &Auth, request: &RequestInfo, chain: Chain, message: &SignInMessage) -> Result<(), OAuthError> {
    let (chain, now, validity) = (chain.name(), request.now, auth.settings().web3.max_validity);
    if message.not_before.is_some_and(|from| now < from) {
        return Err(OAuthError::WalletMessageInFuture { chain });
    }
    if message.expires_at.is_some_and(|end| now > end) {
        return Err(OAuthError::WalletMessageExpired { chain });
    }
    // Not `issued_at + validity`, which is outside the range of times for the last of them
    let age = now - message.issued_at;
    if age > validity {
        return Err(OAuthError::WalletMessageTooOld { chain });
    }
    if age < -time::Duration::try_from(validity).unwrap_or(time::Duration::MAX) {
        return Err(OAuthError::WalletMessageTooNew { chain });
    }
    Ok(())
}

/// Finds or creates the account and signs in, in one transaction.
async fn complete(
    auth: &Auth,
    request: &RequestInfo,
    chain: Chain,
    message: &SignInMessage,
) -> Result<TokenResponse, AuthError> {
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    let profile = profile(chain, message, subject(&tx, chain, &message.address).await?);
    let external = ExternalIdentity { provider: PROVIDER, profile: &profile, email_optional: true, invite: None };
    let user = match account_linking::sign_in(op, &external).await? {
        SignInOutcome::SignedIn(user) => user,
        SignInOutcome::AwaitsConfirmation { error, .. } => return Err(error),
    };
    let mut traits = provider_trait(PROVIDER);
    traits.insert("chain".into(), chain.id().into());
    traits.insert("network".into(), message.chain_id.as_str().into());
    traits.insert("address".into(), message.address.as_str().into());
    traits.insert("domain".into(), message.domain.as_str().into());
    traits.insert("uri".into(), message.uri.as_str().into());
    op.record(&user, Action::Login, traits).await?;
    let response = session::issue(op, &user, AuthenticationMethod::Web3).await?;
    tx.commit().await?;
    Ok(response)
}

/// Returns the subject under which the address has an account, else the one with its spelling.
///
/// Wallets spell Ethereum addresses with a checksum in the letter case, the official client in
/// lower case. Subjects keep the spelling of the first sign-in; all of them are one wallet.
async fn subject(tx: &Tx, chain: Chain, address: &str) -> Result<String, AuthError> {
    let subject_of = |address: &str| format!("{PROVIDER}:{}:{address}", chain.id());
    let written = subject_of(address);
    let mut spellings = vec![written.clone()];
    if chain == Chain::Ethereum {
        let lower = address.to_lowercase();
        spellings.extend([subject_of(&with_checksum(&lower)), subject_of(&lower)]);
        spellings.dedup();
    }
    for spelling in spellings {
        if identities::by_subject(tx, PROVIDER, &spelling).await?.is_some() {
            return Ok(spelling);
        }
    }
    Ok(written)
}

/// Returns the spelling of EIP-55 of a lower-case address: a letter is upper-case where the hash of
/// the address has a digit of at least 8.
fn with_checksum(address: &str) -> String {
    let digits = address.trim_start_matches("0x");
    let hash = hex::encode(Keccak256::digest(digits));
    let letters = digits.chars().zip(hash.chars());
    let spelled = letters.map(|(letter, hash)| if hash >= '8' { letter.to_ascii_uppercase() } else { letter });
    format!("0x{}", spelled.collect::<String>())
}

fn profile(chain: Chain, message: &SignInMessage, subject: String) -> Profile {
    let statement = match (&message.statement, chain) {
        (Some(statement), _) => Value::from(statement.as_str()),
        (None, Chain::Ethereum) => Value::Null,
        (None, Chain::Solana) => Value::from(""),
    };
    let custom = json!({
        "address": message.address,
        "chain": chain.id(),
        "network": message.chain_id,
        "domain": message.domain,
        "statement": statement,
    });
    let claims = JsonObject::from_iter([
        ("sub".to_owned(), Value::from(subject.as_str())),
        ("custom_claims".to_owned(), custom),
    ]);
    Profile { subject, emails: Vec::new(), claims }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_checksums_of_eip_55() {
        for address in [
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
            "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        ] {
            assert_eq!(with_checksum(&address.to_lowercase()), address);
        }
    }
}
