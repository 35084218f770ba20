//! The calls of one sign-in: the code becomes tokens, the tokens become a profile.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use time::OffsetDateTime;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::oauth::protocol::discovery::{self, IdTokenError, Issuer, has_audience};
use crate::oauth::protocol::http_client::{Answer, CallError, Trust};
use crate::oauth::provider::catalogue::{APPLE_ISSUER, AZURE_ISSUERS, GOOGLE_ISSUER};
use crate::oauth::provider::description::{ClientProof, Extra, Sources};
use crate::oauth::provider::profile::{Object, Profile, Unreadable};
use crate::oauth::provider::resolved::{Addresses, Configured, Place, TokenIssuer};

/// Longest token of a provider: it is stored, and travels in addresses.
const MAX_TOKEN: usize = 16 * 1024;
/// Most that is kept of what a provider tells of a person, as JSON: it becomes part of every access token.
const MAX_CLAIMS: usize = 16 * 1024;

/// What the token endpoint gave.
pub(crate) struct Tokens {
    pub(crate) access: String,
    pub(crate) refresh: Option<String>,
    pub(crate) id_token: Option<String>,
    /// Everything, for readers.
    pub(crate) answer: Object,
}

/// Why a sign-in at a provider failed. Texts are for the log and name no secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the token endpoint refused the code: {0}")]
    Refused(String),
    #[error(transparent)]
    IdToken(#[from] IdTokenError),
    #[error("the id_token is for another client")]
    Audience,
    #[error("the id_token belongs to another sign-in")]
    Nonce,
    #[error("there is no id_token")]
    NoIdToken,
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// Exchanges a code.
pub(crate) async fn redeem(
    auth: &Auth,
    provider: &Configured,
    addresses: &Addresses,
    code: &str,
    verifier: Option<&str>,
) -> Result<Tokens, ExchangeError> {
    let attempts = proofs(provider, addresses);
    let mut last = ExchangeError::Refused("no attempt".into());
    for in_header in attempts {
        let answer = ask(auth, provider, &addresses.token, code, verifier, in_header).await?;
        match read_tokens(&answer) {
            Ok(tokens) => return Ok(tokens),
            Err(refused) => {
                // The client was accepted then: another proof would not help, and the code may be used up
                let final_word = refused.contains("invalid_grant") || refused.contains("bad_verification_code");
                last = ExchangeError::Refused(refused);
                if final_word {
                    break;
                }
            }
        }
    }
    Err(last)
}

/// In which ways to prove ourselves, best first: `true` is HTTP Basic, `false` the form.
fn proofs(provider: &Configured, addresses: &Addresses) -> Vec<bool> {
    if provider.proof == ClientProof::Form {
        return vec![false];
    }
    match addresses.discovery.as_ref().and_then(|discovery| discovery.token_endpoint_auth_methods_supported.as_ref()) {
        Some(methods) if methods.iter().any(|method| method == "client_secret_post") => vec![false],
        Some(methods) if methods.iter().any(|method| method == "client_secret_basic") => vec![true],
        Some(_) => vec![false],
        None => vec![true, false],
    }
}

async fn ask(
    auth: &Auth,
    provider: &Configured,
    url: &str,
    code: &str,
    verifier: Option<&str>,
    in_header: bool,
) -> Result<Answer, CallError> {
    let mut form =
        vec![("grant_type", "authorization_code"), ("code", code), ("redirect_uri", provider.redirect_uri.as_str())];
    form.extend(verifier.map(|verifier| ("code_verifier", verifier)));
    let mut headers = HeaderMap::new();
    if in_header {
        // RFC 6749, 2.3.1: both are form-encoded first
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encode(provider.client_id()), encode(provider.secret.expose()));
        headers.insert(AUTHORIZATION, secret_header(&format!("Basic {}", STANDARD.encode(pair)))?);
    } else {
        form.extend([("client_id", provider.client_id()), ("client_secret", provider.secret.expose())]);
    }
    auth.engine().client.post_form(provider.trust, url, headers, &form).await
}

fn secret_header(text: &str) -> Result<HeaderValue, CallError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| CallError::Malformed("a token"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The tokens of an answer, else why there are none.
fn read_tokens(answer: &Answer) -> Result<Tokens, String> {
    let object: Object = serde_json::from_slice(&answer.body).unwrap_or_else(|_| {
        // Older providers answer with a form
        form_urlencoded::parse(&answer.body).take(32).map(|(name, value)| (name.into_owned(), value.into())).collect()
    });
    let text =
        |key: &str| object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty() && text.len() <= MAX_TOKEN);
    let access = text("access_token").map(str::to_owned);
    match access {
        Some(access) if answer.status.is_success() && !object.contains_key("error") => Ok(Tokens {
            access,
            refresh: text("refresh_token").map(str::to_owned),
            id_token: object
                .get("id_token")
                .and_then(Value::as_str)
                .filter(|token| !token.is_empty())
                .map(str::to_owned),
            answer: object,
        }),
        _ => {
            let error: String =
                text("error").unwrap_or("no access token").chars().filter(|c| !c.is_control()).take(64).collect();
            Err(format!("{} (status {})", error, answer.status.as_u16()))
        }
    }
}

/// Who the tokens belong to. `nonce`: what our request carried, if it did.
pub(crate) async fn profile(
    auth: &Auth,
    provider: &Configured,
    addresses: &Addresses,
    tokens: &Tokens,
    nonce: Option<&str>,
    form_user: Option<&Value>,
    now: OffsetDateTime,
) -> Result<Profile, ExchangeError> {
    let id_token = match (&tokens.id_token, &provider.token_issuer) {
        (_, TokenIssuer::Nobody) => None,
        (Some(token), _) => Some(verified(auth, provider, token, Some(&tokens.access), nonce, now).await?),
        (None, TokenIssuer::One { required: false, .. }) => None,
        (None, _) => return Err(ExchangeError::NoIdToken),
    };
    let documents = match id_token {
        Some(_) => Vec::new(),
        None => documents(auth, provider, addresses, &tokens.access).await?,
    };
    read(provider, &tokens.answer, id_token.as_ref(), &documents, form_user)
}

/// Runs the provider's reader and makes its result fit to be stored.
pub(crate) fn read(
    provider: &Configured,
    answer: &Object,
    id_token: Option<&Object>,
    documents: &[Value],
    form_user: Option<&Value>,
) -> Result<Profile, ExchangeError> {
    let sources = Sources { issuer: &provider.issuer_name, token: answer, id_token, documents, form_user };
    let mut profile = (provider.read)(&sources)?;
    crate::oauth::provider::custom::adjust(&mut profile, &provider.adjust, &sources);
    tidy(&mut profile)?;
    Ok(profile)
}

/// The claims of an id_token that this provider issued to us, for this sign-in.
async fn verified(
    auth: &Auth,
    provider: &Configured,
    token: &str,
    access_token: Option<&str>,
    nonce: Option<&str>,
    now: OffsetDateTime,
) -> Result<Object, ExchangeError> {
    let issuer = issuer_of(provider, token)?;
    let accepted = |iss: &str| is_accepted(&issuer, iss);
    let claims = auth.engine().issuers.verify(&issuer, &accepted, token, access_token, now).await?;
    if !has_audience(&claims, &provider.client_ids) {
        return Err(ExchangeError::Audience);
    }
    let given = claims.get("nonce").and_then(Value::as_str);
    // Apple says so itself where its platform can not carry a nonce
    let unsupported = provider.name == "apple" && claims.get("nonce_supported") == Some(&Value::Bool(false));
    let is_ours = match (given, nonce) {
        (None, _) if unsupported => true,
        (given, Some(expected)) if provider.returns_nonce && !provider.skip_nonce_check => given == Some(expected),
        (Some(given), Some(expected)) => given == expected,
        _ => true,
    };
    if !is_ours {
        return Err(ExchangeError::Nonce);
    }
    Ok(claims)
}

/// Whose signature an id_token of this provider must have.
pub(crate) fn issuer_of(provider: &Configured, token: &str) -> Result<Issuer, ExchangeError> {
    match &provider.token_issuer {
        TokenIssuer::One { issuer, .. } => Ok(issuer.clone()),
        TokenIssuer::Nobody => Err(ExchangeError::NoIdToken),
        TokenIssuer::Tenant(only) => {
            let claims = discovery::unverified_claims(token).ok_or(IdTokenError::Malformed)?;
            let named = claims.get("iss").and_then(Value::as_str).ok_or(IdTokenError::Issued)?;
            let allowed = match only {
                Some(only) => named == only,
                None => AZURE_ISSUERS.iter().any(|start| named.starts_with(start)),
            };
            if allowed { Ok(Issuer::configured(named)) } else { Err(IdTokenError::Issued.into()) }
        }
    }
}

/// Returns whether an answer in the name of `iss` may come from this provider, whose authorization
/// endpoint is `authorize`. The issuers of most built-in providers without id_tokens are not known; a
/// provider of the table that names none must at least be at the place where it sends people.
pub(crate) fn may_be_issuer(provider: &Configured, authorize: &str, iss: &str) -> bool {
    if let Place::Issuer(issuer) = &provider.place {
        return is_accepted(issuer, iss);
    }
    match &provider.token_issuer {
        TokenIssuer::One { issuer, .. } => is_accepted(issuer, iss),
        TokenIssuer::Tenant(Some(only)) => iss == only,
        TokenIssuer::Tenant(None) => AZURE_ISSUERS.iter().any(|start| iss.starts_with(start)),
        TokenIssuer::Nobody if provider.trust == Trust::Configured => true,
        TokenIssuer::Nobody => {
            let origin = |url: &str| url::Url::parse(url).ok().map(|url| url.origin()).filter(url::Origin::is_tuple);
            origin(iss).is_some_and(|iss| Some(iss) == origin(authorize))
        }
    }
}

/// Whether `iss` is this issuer, under any of its names.
pub(crate) fn is_accepted(issuer: &Issuer, iss: &str) -> bool {
    let own = issuer.url.trim_end_matches('/');
    iss.trim_end_matches('/') == own
        || (own == GOOGLE_ISSUER && iss == "accounts.google.com")
        || (own == APPLE_ISSUER && iss == "https://account.apple.com")
}

async fn documents(
    auth: &Auth,
    provider: &Configured,
    addresses: &Addresses,
    access_token: &str,
) -> Result<Vec<Value>, ExchangeError> {
    let of_issuer = addresses.discovery.as_ref().and_then(|discovery| discovery.userinfo_endpoint.clone());
    let wanted = match of_issuer {
        Some(userinfo) => vec![(userinfo, Extra::Nothing)],
        None => provider.documents.clone(),
    };
    let mut documents = Vec::with_capacity(wanted.len());
    for (mut url, extra) in wanted {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {access_token}"))?);
        match extra {
            Extra::Nothing => {}
            Extra::Header(name, value) => {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            Extra::ClientId => {
                headers.insert(HeaderName::from_static("client-id"), secret_header(provider.client_id())?);
            }
            Extra::SecretProof => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, provider.secret.expose().as_bytes());
                let proof = hex::encode(hmac::sign(&key, access_token.as_bytes()));
                let separator = if url.contains('?') { '&' } else { '?' };
                url = format!("{url}{separator}appsecret_proof={proof}");
            }
        }
        documents.push(auth.engine().client.get_json(provider.trust, &url, headers).await?);
    }
    Ok(documents)
}

/// Makes a profile fit to be stored: no NUL characters, a bounded size, and only addresses that can be addresses.
pub(crate) fn tidy(profile: &mut Profile) -> Result<(), Unreadable> {
    for value in profile.claims.values_mut() {
        remove_nul(value);
    }
    let size = |claims: &Object| serde_json::to_string(claims).map_or(usize::MAX, |text| text.len());
    if size(&profile.claims) > MAX_CLAIMS {
        profile.claims.remove("custom_claims");
    }
    if size(&profile.claims) > MAX_CLAIMS {
        return Err(Unreadable("description of the person: it is too large"));
    }
    profile.emails.retain_mut(|email| match crate::model::ids::EmailAddress::parse(&email.address) {
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

impl ExchangeError {
    /// What the person is told; the cause goes to the log.
    pub(crate) fn into_profile_error(self) -> AuthError {
        AuthError::failed(ContractError::ProviderProfileFailed, self)
    }

    /// What the person is told when the code was not exchanged. The first characters help to find it in a provider's log.
    pub(crate) fn into_code_error(self, code: &str) -> AuthError {
        let code_start: String = code.chars().filter(|c| !c.is_control()).take(4).collect();
        AuthError::failed(ContractError::CodeExchangeFailed { code_start }, self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::oauth::provider::profile::ProfileBuilder;
    use reqwest::StatusCode;
    use serde_json::json;

    fn answer(status: StatusCode, body: &str) -> Answer {
        Answer { status, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn tokens_are_read_from_json_and_from_forms() {
        let tokens = read_tokens(&answer(StatusCode::OK, r#"{"access_token":"a","refresh_token":"r","id_token":"i"}"#))
            .ok()
            .unwrap();
        assert_eq!(
            (tokens.access.as_str(), tokens.refresh.as_deref(), tokens.id_token.as_deref()),
            ("a", Some("r"), Some("i"))
        );
        assert_eq!(read_tokens(&answer(StatusCode::OK, "access_token=a&expires=1")).ok().unwrap().access, "a");
    }

    #[test]
    fn what_is_no_token_is_an_error() {
        let long = format!(r#"{{"access_token":"{}"}}"#, "x".repeat(MAX_TOKEN + 1));
        for (status, body) in [
            (StatusCode::OK, r#"{"error":"bad_verification_code"}"#),
            (StatusCode::BAD_REQUEST, r#"{"access_token":"a"}"#),
            (StatusCode::OK, r#"{"access_token":7}"#),
            (StatusCode::OK, r#"{"access_token":""}"#),
            (StatusCode::OK, "[1]"),
            (StatusCode::OK, ""),
            (StatusCode::OK, &long),
        ] {
            assert!(read_tokens(&answer(status, body)).is_err(), "{body:.80}");
        }
    }

    #[test]
    fn profiles_are_made_fit_to_be_stored() {
        let mut profile = ProfileBuilder::new("https://issuer", "1")
            .unwrap()
            .name(Some("A\0da"))
            .custom("deep", Some(&json!({"a\0": 1, "b": ["x\0"]})))
            .email(Some("not an address"), true, true)
            .email(Some("Ada@Example.com"), true, false)
            .build();
        tidy(&mut profile).unwrap();
        assert_eq!(profile.claims["name"], "Ada");
        assert_eq!(profile.claims["custom_claims"], json!({"deep": {"b": ["x"]}}));
        assert_eq!(profile.verified(), ["ada@example.com"]);

        let large = json!("x".repeat(MAX_CLAIMS));
        let mut profile = ProfileBuilder::new("https://issuer", "1").unwrap().custom("large", Some(&large)).build();
        tidy(&mut profile).unwrap();
        assert!(!profile.claims.contains_key("custom_claims"));
        let mut profile = ProfileBuilder::new("https://issuer", "1").unwrap().name(large.as_str()).build();
        assert!(tidy(&mut profile).is_err());
    }
}
