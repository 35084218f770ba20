//! Identifies the person whom a provider's tokens belong to: by the verified id_token, else by
//! userinfo documents.

use aws_lc_rs::hmac;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use time::OffsetDateTime;

use super::custom;
use super::description::{ProfileSources, UserinfoExtra};
use super::profile::{Profile, UnreadableProfile};
use super::resolved::{CurrentEndpoints, IdTokenIssuer, ResolvedProvider, UserinfoRequest};
use crate::error::{AuthError, ContractError};
use crate::http_client::{CallError, secret_header};
use crate::model::JsonObject;
use crate::model::ids::EmailAddress;
use crate::oauth::ProviderConnections;
use crate::oauth::protocol::id_token::{IdTokenError, has_audience};
use crate::oauth::protocol::oauth1::OAuth1Error;
use crate::oauth::protocol::token_endpoint::ProviderTokens;

/// Largest profile that is stored, as JSON: it becomes part of every access token.
const MAX_CLAIMS_BYTES: usize = 16 * 1024;

/// The reason why a provider's tokens do not identify a person. Texts are for the log and name no
/// secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentificationError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    OAuth1(#[from] OAuth1Error),
    #[error(transparent)]
    IdToken(#[from] IdTokenError),
    #[error("the id_token is for another client")]
    Audience,
    #[error("the id_token belongs to another sign-in")]
    Nonce,
    #[error("there is no id_token")]
    NoIdToken,
    #[error(transparent)]
    Unreadable(#[from] UnreadableProfile),
}

impl From<IdentificationError> for AuthError {
    fn from(error: IdentificationError) -> Self {
        Self::failed(ContractError::ProviderProfileFailed, error)
    }
}

/// One sign-in whose tokens are to be read.
pub(crate) struct Identification<'a> {
    pub(crate) connections: &'a ProviderConnections,
    pub(crate) provider: &'a ResolvedProvider,
    pub(crate) endpoints: &'a CurrentEndpoints,
    /// The nonce of the authorization request, if it had one.
    pub(crate) nonce: Option<&'a str>,
    /// The `user` field of the callback's form (Apple).
    pub(crate) form_user: Option<&'a Value>,
    pub(crate) now: OffsetDateTime,
}

impl Identification<'_> {
    /// Returns the profile of the person whom `tokens` belong to.
    ///
    /// # Errors
    /// When the id_token is missing or not valid, or the userinfo cannot be fetched or read.
    pub(crate) async fn profile(&self, tokens: &ProviderTokens) -> Result<Profile, IdentificationError> {
        let id_token = match (&tokens.id_token, &self.provider.id_token_issuer) {
            (_, IdTokenIssuer::None) => None,
            (Some(token), _) => Some(self.verified_claims(token, &tokens.access).await?),
            (None, IdTokenIssuer::Fixed { required: false, .. }) => None,
            (None, _) => return Err(IdentificationError::NoIdToken),
        };
        let documents = match id_token {
            Some(_) => Vec::new(),
            None => self.userinfo(&tokens.access).await?,
        };
        let sources = ProfileSources {
            id_token: id_token.as_ref(),
            form_user: self.form_user,
            ..self.provider.sources(&tokens.fields).with_documents(&documents)
        };
        Ok(read_profile(self.provider, sources)?)
    }

    /// Returns the claims of an id_token that the provider issued to this client, for this sign-in.
    async fn verified_claims(&self, token: &str, access_token: &str) -> Result<JsonObject, IdentificationError> {
        let provider = self.provider;
        let issuer = provider.issuer_of(token)?.ok_or(IdentificationError::NoIdToken)?;
        let claims = self.connections.issuers.verify(&issuer, token, Some(access_token), self.now).await?;
        if !has_audience(&claims, &provider.client_ids) {
            return Err(IdentificationError::Audience);
        }
        let returned = claims.get("nonce").and_then(Value::as_str);
        // Apple states it where its platform cannot carry a nonce
        let unsupported = provider.name == "apple" && claims.get("nonce_supported") == Some(&Value::Bool(false));
        let matches = match (returned, self.nonce) {
            (None, _) if unsupported => true,
            (returned, Some(expected)) if provider.returns_nonce && !provider.skip_nonce_check => {
                returned == Some(expected)
            }
            (Some(returned), Some(expected)) => returned == expected,
            _ => true,
        };
        if !matches {
            return Err(IdentificationError::Nonce);
        }
        Ok(claims)
    }

    /// Fetches the documents that describe the person.
    async fn userinfo(&self, access_token: &str) -> Result<Vec<Value>, IdentificationError> {
        let provider = self.provider;
        let discovered = self.endpoints.discovery.as_ref().and_then(|discovery| discovery.userinfo_endpoint.clone());
        let requests = match discovered {
            Some(url) => vec![UserinfoRequest { url, extra: UserinfoExtra::Nothing }],
            None => provider.userinfo.clone(),
        };
        let mut documents = Vec::with_capacity(requests.len());
        for UserinfoRequest { mut url, extra } in requests {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {access_token}"))?);
            match extra {
                UserinfoExtra::Nothing => {}
                UserinfoExtra::Header(name, value) => {
                    headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
                }
                UserinfoExtra::ClientId => {
                    headers.insert(HeaderName::from_static("client-id"), secret_header(provider.client_id())?);
                }
                UserinfoExtra::SecretProof => {
                    let key = hmac::Key::new(hmac::HMAC_SHA256, provider.secret.expose().as_bytes());
                    let proof = hex::encode(hmac::sign(&key, access_token.as_bytes()));
                    let separator = if url.contains('?') { '&' } else { '?' };
                    url = format!("{url}{separator}appsecret_proof={proof}");
                }
            }
            documents.push(self.connections.client.get_json(provider.trust, &url, headers).await?);
        }
        Ok(documents)
    }
}

/// Reads a profile with the provider's reader, and makes it fit to be stored.
///
/// # Errors
/// When the sources lack what an account needs.
pub(crate) fn read_profile(
    provider: &ResolvedProvider,
    sources: ProfileSources<'_>,
) -> Result<Profile, UnreadableProfile> {
    let mut profile = (provider.read)(&sources)?;
    custom::map_claims(&mut profile, &provider.claim_mapping, &sources);
    make_storable(&mut profile)?;
    Ok(profile)
}

/// Makes a profile fit to be stored: no NUL characters, a bounded size, and only valid email
/// addresses.
///
/// # Errors
/// When the profile is too large even without custom claims.
pub(crate) fn make_storable(profile: &mut Profile) -> Result<(), UnreadableProfile> {
    for value in profile.claims.values_mut() {
        remove_nul(value);
    }
    let size = |claims: &JsonObject| serde_json::to_string(claims).map_or(usize::MAX, |text| text.len());
    if size(&profile.claims) > MAX_CLAIMS_BYTES {
        profile.claims.remove("custom_claims");
    }
    if size(&profile.claims) > MAX_CLAIMS_BYTES {
        return Err(UnreadableProfile("description of the person: it is too large"));
    }
    profile.emails.retain_mut(|email| match EmailAddress::parse(&email.address) {
        Ok(address) => {
            email.address = address.as_str().to_owned();
            true
        }
        Err(_) => false,
    });
    Ok(())
}

fn remove_nul(value: &mut Value) {
    match value {
        Value::String(text) => text.retain(|c| c != '\0'),
        Value::Array(items) => items.iter_mut().for_each(remove_nul),
        Value::Object(members) => {
            members.retain(|name, _| !name.contains('\0'));
            members.values_mut().for_each(remove_nul);
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oauth::provider::profile::ProfileBuilder;

    #[test]
    fn profiles_are_made_fit_to_be_stored() {
        let mut profile = ProfileBuilder::new("https://issuer", "1")
            .unwrap()
            .name(Some("A\0da"))
            .custom("deep", Some(&json!({"a\0": 1, "b": ["x\0"]})))
            .email(Some("not an address"), true, true)
            .email(Some("Ada@Example.com"), true, false)
            .build();
        make_storable(&mut profile).unwrap();
        assert_eq!(profile.claims["name"], "Ada");
        assert_eq!(profile.claims["custom_claims"], json!({"deep": {"b": ["x"]}}));
        assert_eq!(profile.verified_emails(), ["ada@example.com"]);

        let large = json!("x".repeat(MAX_CLAIMS_BYTES));
        let mut profile = ProfileBuilder::new("https://issuer", "1").unwrap().custom("large", Some(&large)).build();
        make_storable(&mut profile).unwrap();
        assert!(!profile.claims.contains_key("custom_claims"));
        let mut profile = ProfileBuilder::new("https://issuer", "1").unwrap().name(large.as_str()).build();
        assert!(make_storable(&mut profile).is_err());
    }
}
