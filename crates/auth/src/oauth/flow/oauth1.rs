//! Sign-in at the one provider that still speaks OAuth 1.0a: a request token, the person's consent,
//! an access token.
//!
//! There is no `state`, so the id of the flow travels in the callback URL. The request token and
//! its secret are stored where the PKCE verifiers of other providers are.

use url::Url;
use uuid::Uuid;

use super::provider_unreachable;
use crate::Auth;
use crate::error::AuthError;
use crate::http::extract::RequestInfo;
use crate::oauth::protocol::oauth1::{OAuth1Error, SigningClient, TokenCredentials, token_field};
use crate::oauth::protocol::token_endpoint::ProviderTokens;
use crate::oauth::provider::identification::{self, IdentificationError};
use crate::oauth::provider::profile::Profile;
use crate::oauth::provider::resolved::{ProviderEndpoints, ResolvedProvider};
use crate::sql::{Tx, flow_state};

fn signing_client<'a>(auth: &'a Auth, provider: &'a ResolvedProvider, request: &RequestInfo) -> SigningClient<'a> {
    SigningClient {
        http: &auth.provider_connections().client,
        trust: provider.trust,
        consumer_key: provider.client_id(),
        consumer_secret: provider.secret.expose(),
        timestamp: request.now.unix_timestamp(),
    }
}

/// Requests a token for the flow `state`, stores it as `client_state`, and returns the URL for the
/// browser.
///
/// # Errors
/// 500 when the provider does not respond.
pub(crate) async fn start(
    auth: &Auth,
    provider: &ResolvedProvider,
    state: &str,
    client_state: Option<Uuid>,
    request: &RequestInfo,
) -> Result<String, AuthError> {
    let (ProviderEndpoints::OAuth1 { request: request_url, authorize, .. }, Some(id)) =
        (&provider.endpoints, client_state)
    else {
        return Err(AuthError::internal(OAuth1Error::Unsupported));
    };
    let mut callback = Url::parse(&provider.redirect_uri).map_err(AuthError::internal)?;
    callback.query_pairs_mut().append_pair("state", state);
    let client = signing_client(auth, provider, request);
    let parameters = [("oauth_callback", callback.as_str())];
    let response = client.post(request_url, &parameters, None).await.map_err(provider_unreachable)?;
    let token = token_field(&response, "oauth_token").map_err(provider_unreachable)?;
    let secret = token_field(&response, "oauth_token_secret").map_err(provider_unreachable)?;
    let tx = Tx::begin(auth.database()).await?;
    flow_state::put_client_state(&tx, id, &provider.name, &format!("{token} {secret}"), request.now).await?;
    tx.commit().await?;
    let mut url = Url::parse(authorize).map_err(AuthError::internal)?;
    url.query_pairs_mut().append_pair("oauth_token", token);
    Ok(url.into())
}

/// The request token and verifier of a callback.
pub(crate) struct ReturnedVerifier<'a> {
    pub(crate) token: &'a str,
    pub(crate) verifier: &'a str,
    /// The stored request token and its secret, separated by a space.
    pub(crate) stored: &'a str,
}

/// Exchanges the verifier for an access token and reads the person's profile.
///
/// # Errors
/// When the callback belongs to another sign-in, or the provider does not respond as it should.
pub(crate) async fn finish(
    auth: &Auth,
    provider: &ResolvedProvider,
    returned: &ReturnedVerifier<'_>,
    request: &RequestInfo,
) -> Result<(ProviderTokens, Profile), IdentificationError> {
    let ProviderEndpoints::OAuth1 { token: token_url, .. } = &provider.endpoints else {
        return Err(OAuth1Error::Unsupported.into());
    };
    let (token, secret) = returned.stored.split_once(' ').unwrap_or_default();
    if token.is_empty() || token != returned.token {
        return Err(OAuth1Error::OtherRequestToken.into());
    }
    let client = signing_client(auth, provider, request);
    let parameters = [("oauth_verifier", returned.verifier)];
    let credentials = TokenCredentials { token, secret };
    let fields = client.post(token_url, &parameters, Some(&credentials)).await?;
    let access = token_field(&fields, "oauth_token")?.to_owned();
    let secret = token_field(&fields, "oauth_token_secret")?.to_owned();
    let credentials = TokenCredentials { token: &access, secret: &secret };
    let mut documents = Vec::new();
    for userinfo in &provider.userinfo {
        documents.push(client.get_json(&userinfo.url, &credentials).await?);
    }
    let profile = identification::read_profile(provider, provider.sources(&fields).with_documents(&documents))?;
    Ok((ProviderTokens { access, refresh: None, id_token: None, fields }, profile))
}
