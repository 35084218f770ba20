//! `GET /authorize`: starts a sign-in at a provider.

use axum::extract::State;
use axum::response::Response;
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use portico_base::random;
use url::Url;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Query, RequestInfo, SignedIn};
use crate::oauth::flow::browser_binding::{self, BrowserBinding, BrowserContext, CookieBinding, CookieReach};
use crate::oauth::flow::{callback_redirect, oauth1, provider_unreachable};
use crate::oauth::pkce::{self, Challenge};
use crate::oauth::protocol::reserved_parameters::is_reserved;
use crate::oauth::provider::lookup;
use crate::oauth::provider::resolved::{CurrentEndpoints, ProviderEndpoints, ResolvedProvider};
use crate::one_time::token::TokenKind;
use crate::protection::limits::Limiter;
use crate::sql::flow_state::{self, NewFlow, method};
use crate::sql::{Tx, link_sessions, users};

/// Parameters for this server, which are not forwarded. Invitations and API keys are secrets.
const WITHHELD: [&str; 10] = [
    browser_binding::REDIRECTED_PARAMETER,
    "",
    "provider",
    "scopes",
    "scope",
    "redirect_to",
    "invite_token",
    "skip_http_redirect",
    "workos_provider",
    "apikey",
];
/// Longest parameter that is forwarded, in bytes of name and value.
const MAX_FORWARDED_BYTES: usize = 2048;

/// The secrets of a flow towards the provider, and their stored form (see [`crate::oauth`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderSecrets {
    pub(crate) verifier: String,
    pub(crate) nonce: String,
}

impl ProviderSecrets {
    fn new(nonce: Option<&str>) -> Self {
        let nonce = nonce.map_or_else(|| random::base64url(24), str::to_owned);
        Self { verifier: random::base64url(48), nonce }
    }

    fn to_column(&self) -> String {
        format!("{} {}", self.verifier, self.nonce)
    }

    /// Parses the column. Rows that GoTrue wrote have a verifier only.
    pub(crate) fn from_column(text: &str) -> Self {
        let (verifier, nonce) = text.split_once(' ').unwrap_or((text, ""));
        Self { verifier: verifier.to_owned(), nonce: nonce.to_owned() }
    }

    /// Returns the nonce that an id_token must contain.
    pub(crate) fn expected_nonce(&self) -> Option<&str> {
        Some(self.nonce.as_str()).filter(|nonce| !nonce.is_empty())
    }
}

/// `GET /authorize`
pub(crate) async fn authorize(
    State(auth): State<Auth>,
    request: RequestInfo,
    query: Query,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, AuthError> {
    let browser = BrowserContext::from_request(&headers, &uri);
    let started = start(&auth, &request, &query, &browser, None).await?;
    let mut response = callback_redirect::redirect(StatusCode::FOUND, &started.url);
    started.set_cookie(&mut response);
    Ok(response)
}

/// A started flow.
pub(crate) struct StartedFlow {
    /// The URL that the browser is sent to.
    pub(crate) url: String,
    /// Binds the flow to the browser.
    cookie: Option<HeaderValue>,
}

impl StartedFlow {
    pub(crate) fn set_cookie(self, response: &mut Response) {
        if let Some(cookie) = self.cookie {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
}

/// Starts a flow: a sign-in, or a link of an identity to the account of `linking`, which ends with
/// the session.
///
/// # Errors
/// 400 `validation_failed`, 404 for an unknown invitation, 429 when an address starts too many
/// flows.
pub(crate) async fn start(
    auth: &Auth,
    request: &RequestInfo,
    query: &Query,
    browser: &BrowserContext,
    linking: Option<&SignedIn>,
) -> Result<StartedFlow, AuthError> {
    // Each flow inserts a row, and may cause a call to the provider
    auth.limits().check(Limiter::Authorize, request)?;
    let provider = lookup::find(auth, query.get("provider").unwrap_or_default()).await?;
    let challenge = Challenge::from_request(query.get("code_challenge"), query.get("code_challenge_method"))?;
    let reach = browser_binding::cookie_reach(&auth.settings().external_url, &provider.redirect_uri, browser);
    if challenge.is_none()
        && linking.is_none()
        && let Some(url) = other_host(&reach, query)
    {
        return Ok(StartedFlow { url: url.into(), cookie: None });
    }
    let nonce = query.get("nonce").filter(|nonce| nonce.len() <= 255 && !nonce.contains(char::is_whitespace));

    // Before a connection is checked out: an issuer may be slow
    let issuers = &auth.provider_connections().issuers;
    let endpoints = provider.current_endpoints(issuers).await.map_err(provider_unreachable)?;
    let secrets = ProviderSecrets::new(nonce);
    let is_oauth1 = matches!(provider.endpoints, ProviderEndpoints::OAuth1 { .. });
    let uses_pkce = provider.needs_pkce || offers_pkce(&endpoints);

    let mut parameters = provider.parameters.clone();
    parameters.extend(forwarded_parameters(&provider, query));

    let tx = Tx::begin(auth.database()).await?;
    let invite = invitation(&tx, query.get("invite_token")).await?;
    let client_state = if uses_pkce || provider.returns_nonce {
        Some(flow_state::insert_client_state(&tx, &provider.name, &secrets.to_column(), request.now).await?)
    } else if is_oauth1 {
        // Its row is inserted when the provider has issued a request token
        Some(random::uuid())
    } else {
        None
    };
    let binding = challenge.is_none().then(|| {
        let (by_cookie, by_network) = bindings(&reach, linking.is_some());
        let responds_with_form = parameters.iter().any(|(name, value)| name == "response_mode" && value == "form_post");
        BrowserBinding::new(
            by_cookie.then(|| CookieBinding {
                browser,
                redirect_uri: &provider.redirect_uri,
                responds_with_form,
                lifetime: auth.settings().flow_state_expiry,
            }),
            by_network.then_some(request),
        )
    });
    let flow = NewFlow {
        challenge: challenge.as_ref(),
        origin: binding.as_ref().map(|binding| binding.column.as_str()),
        provider_type: &provider.name,
        authentication_method: method::OAUTH,
        referrer: Some(&request.redirect_to),
        invite_token: invite.as_deref(),
        oauth_client_state_id: client_state,
        linking_target_id: linking.map(|signed_in| signed_in.user.id),
        email_optional: provider.email_optional,
        ..NewFlow::default()
    };
    let id = flow_state::insert(&tx, &flow, request.now).await?;
    if let Some(signed_in) = linking {
        link_sessions::insert(&tx, id, signed_in.session_id(), request.now).await?;
    }
    tx.commit().await?;
    let state = id.to_string();

    let cookie = binding.and_then(|binding| binding.cookie);
    if is_oauth1 {
        let url = oauth1::start(auth, &provider, &state, client_state, request).await?;
        return Ok(StartedFlow { url, cookie });
    }
    let mut url = Url::parse(&endpoints.authorize)
        .map_err(|error| AuthError::failed(ContractError::ProviderAddressInvalid, error))?;
    let mut own = own_parameters(&provider, query, state, uses_pkce.then_some(secrets.verifier.as_str()));
    if provider.returns_nonce {
        own.push(("nonce".to_owned(), secrets.nonce));
    }
    own.extend(parameters);
    set_query(&mut url, own);
    Ok(StartedFlow { url: url.into(), cookie })
}

/// Returns the address of this request on the host of the callback, if the browser used another
/// one, whose cookies the callback would not receive.
fn other_host(reach: &CookieReach, query: &Query) -> Option<Url> {
    let CookieReach::OtherHost(url) = reach else { return None };
    // A proxy may hide the host that the browser used, so the redirect happens once only
    if query.get(browser_binding::REDIRECTED_PARAMETER).is_some() {
        return None;
    }
    let mut url = url.clone();
    url.query_pairs_mut().extend_pairs(query.pairs()).append_pair(browser_binding::REDIRECTED_PARAMETER, "true");
    Some(url)
}

/// Returns whether the flow is bound to the browser by a cookie, and by its network.
fn bindings(reach: &CookieReach, is_link: bool) -> (bool, bool) {
    match (reach, is_link) {
        (CookieReach::SameHost | CookieReach::OtherHost(_), false) => (true, false),
        (CookieReach::SameHost, true) => (true, true),
        _ => (false, true),
    }
}

/// Returns true if the provider announces that it supports PKCE.
fn offers_pkce(endpoints: &CurrentEndpoints) -> bool {
    let discovery = endpoints.discovery.as_ref();
    discovery.is_some_and(|found| found.code_challenge_methods_supported.iter().any(|method| method == "S256"))
}

/// Returns the parameters for the provider that the request cannot change, and the scopes.
fn own_parameters(
    provider: &ResolvedProvider,
    query: &Query,
    state: String,
    verifier: Option<&str>,
) -> Vec<(String, String)> {
    let mut own = vec![
        ("client_id".to_owned(), provider.client_id().to_owned()),
        ("redirect_uri".to_owned(), provider.redirect_uri.clone()),
        ("response_type".to_owned(), "code".to_owned()),
        ("state".to_owned(), state),
    ];
    let scopes = scopes(provider, query.get("scopes"));
    if !scopes.is_empty() {
        own.push(("scope".to_owned(), scopes));
    }
    if let Some(verifier) = verifier {
        own.push(("code_challenge".to_owned(), pkce::s256(verifier)));
        own.push(("code_challenge_method".to_owned(), "S256".to_owned()));
    }
    own
}

/// Returns the hash of a pending invitation, if the request names one.
async fn invitation(tx: &Tx, token: Option<&str>) -> Result<Option<String>, AuthError> {
    let Some(token) = token else { return Ok(None) };
    match users::lock_by_token(tx, token, &[TokenKind::Confirmation.as_str()]).await? {
        Some(_) => Ok(Some(token.to_owned())),
        None => Err(ContractError::LinkingSubjectUnknown.into()),
    }
}

/// Returns the default scopes joined with those of the request.
fn scopes(provider: &ResolvedProvider, requested: Option<&str>) -> String {
    let Some(requested) = requested.filter(|_| provider.forwarded.scopes) else {
        return provider.scopes.clone();
    };
    let requested: Vec<&str> =
        requested.split(|c: char| c.is_whitespace() || c == ',').filter(|scope| !scope.is_empty()).collect();
    let mut scopes: Vec<&str> = match provider.scopes_replace {
        true => Vec::new(),
        false => provider.scopes.split(' ').filter(|scope| !scope.is_empty()).collect(),
    };
    for scope in requested {
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    scopes.join(" ")
}

/// Returns the parameters of the request that are forwarded to the provider.
fn forwarded_parameters(provider: &ResolvedProvider, query: &Query) -> Vec<(String, String)> {
    if !provider.forwarded.others {
        return Vec::new();
    }
    let mut forwarded: Vec<(String, String)> = query
        .pairs()
        .iter()
        .filter(|(name, value)| {
            let own_nonce = name == "nonce" && provider.returns_nonce;
            let withheld = is_reserved(name) || own_nonce || WITHHELD.contains(&name.as_str());
            !withheld && name.len() + value.len() <= MAX_FORWARDED_BYTES
        })
        .cloned()
        .collect();
    if provider.name == "workos"
        && let Some(value) = query.get("workos_provider")
    {
        forwarded.push(("provider".to_owned(), value.to_owned()));
    }
    forwarded
}

/// Sets query parameters. The first of a name wins over later ones, and over those that the URL
/// had.
fn set_query(url: &mut Url, parameters: Vec<(String, String)>) {
    let previous: Vec<(String, String)> =
        url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    let mut merged: Vec<(String, String)> = Vec::new();
    for (name, value) in parameters.into_iter().chain(previous) {
        if !merged.iter().any(|(known, _)| *known == name) {
            merged.push((name, value));
        }
    }
    url.query_pairs_mut().clear().extend_pairs(merged);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn secrets_round_trip() {
        let secrets = ProviderSecrets::new(None);
        assert_eq!(ProviderSecrets::from_column(&secrets.to_column()), secrets);
        assert_eq!(secrets.verifier.len(), 64);
        assert_eq!(ProviderSecrets::from_column("only-a-verifier").expected_nonce(), None);
        assert_eq!(ProviderSecrets::new(Some("own")).expected_nonce(), Some("own"));
    }

    #[test]
    fn parameters_cannot_be_overridden() {
        let mut url = Url::parse("https://provider.example/authorize?client_id=x&keep=1").unwrap();
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        set_query(&mut url, vec![own("client_id", "ours"), own("state", "s"), own("state", "other")]);
        assert_eq!(url.as_str(), "https://provider.example/authorize?client_id=ours&state=s&keep=1");
    }
}
