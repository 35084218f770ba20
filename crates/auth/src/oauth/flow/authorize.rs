//! `GET /authorize` (auth-core 10.1): a sign-in at a provider begins.

use axum::extract::State;
use axum::response::Response;
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use portico_base::random;
use url::Url;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Query, RequestInfo};
use crate::model::ids::UserId;
use crate::oauth::flow::browser_binding::{self, Browser, Reach};
use crate::oauth::flow::callback_redirect;
use crate::oauth::flow::oauth1;
use crate::oauth::pkce::{self, Challenge};
use crate::oauth::provider::resolved::{self, Configured, Place};
use crate::one_time::token::Kind;
use crate::protection::limits::Limiter;
use crate::sql::flow_state::{self, NewFlow, method};
use crate::sql::{Tx, users};

/// Parameters that no caller may set, whatever their case.
const RESERVED: [&str; 8] = [
    "client_id",
    "client_secret",
    "redirect_uri",
    "response_type",
    "state",
    "code_challenge",
    "code_challenge_method",
    "code_verifier",
];
/// Parameters that are meant for us. An invitation is a secret, and API keys are none of a provider's business.
const WITHHELD: [&str; 10] = [
    browser_binding::ARRIVED,
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
/// Longest parameter that is sent on.
const MAX_PARAMETER: usize = 2048;

pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Our secrets towards a provider, as they are kept: see the module [`super`].
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

    /// The column's text. A row of the reference has a verifier only.
    pub(crate) fn from_column(text: &str) -> Self {
        let (verifier, nonce) = text.split_once(' ').unwrap_or((text, ""));
        Self { verifier: verifier.to_owned(), nonce: nonce.to_owned() }
    }

    /// The nonce that an id_token must carry.
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
    let browser = Browser::of(&headers, &uri);
    let begun = begin(&auth, &request, &query, &browser, None).await?;
    let mut response = callback_redirect::redirect(StatusCode::FOUND, &begun.url);
    begun.give_cookie(&mut response);
    Ok(response)
}

/// A flow that has begun.
pub(crate) struct Begun {
    /// The address that the browser goes to.
    pub(crate) url: String,
    /// By which the browser is known again.
    cookie: Option<HeaderValue>,
}

impl Begun {
    pub(crate) fn give_cookie(self, response: &mut Response) {
        if let Some(cookie) = self.cookie {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
}

/// Begins a flow, to sign in or to link an identity to `linking`, and says where the person goes.
///
/// # Errors
/// 400 `validation_failed`, 404 for an unknown invitation, 429 for an address that begins too many.
pub(crate) async fn begin(
    auth: &Auth,
    request: &RequestInfo,
    query: &Query,
    browser: &Browser,
    linking: Option<UserId>,
) -> Result<Begun, AuthError> {
    // Each leaves a row behind, and may cost a call to the provider
    auth.limits().check(Limiter::Authorize, request)?;
    let provider = resolved::find(auth, query.get("provider").unwrap_or_default()).await?;
    let challenge = Challenge::from_request(query.get("code_challenge"), query.get("code_challenge_method"))?;
    let reach = browser_binding::reach(auth, &provider.redirect_uri, browser);
    if let Reach::CookieAt(url) = &reach
        && challenge.is_none()
        && linking.is_none()
        && query.get(browser_binding::ARRIVED).is_none()
    {
        // A proxy may hide the name that the browser used, so it is sent once only
        let mut url = url.clone();
        url.query_pairs_mut().extend_pairs(query.pairs()).append_pair(browser_binding::ARRIVED, "true");
        return Ok(Begun { url: url.into(), cookie: None });
    }
    let nonce = query.get("nonce").filter(|nonce| nonce.len() <= 255 && !nonce.contains(char::is_whitespace));

    // Before a connection is taken: an issuer may be slow
    let addresses = provider.addresses(auth).await?;
    let offers_pkce = addresses
        .discovery
        .as_ref()
        .is_some_and(|discovery| discovery.code_challenge_methods_supported.iter().any(|method| method == "S256"));
    let secrets = ProviderSecrets::new(nonce);
    let is_signed = matches!(provider.place, Place::Signed { .. });
    let uses_pkce = provider.needs_pkce || offers_pkce;

    let mut parameters = provider.parameters.clone();
    parameters.extend(passed_on(&provider, query));

    let tx = Tx::begin(auth.database()).await?;
    let invite = invitation(&tx, query.get("invite_token")).await?;
    let client_state = if uses_pkce || provider.returns_nonce {
        Some(flow_state::insert_client_state(&tx, &provider.name, &secrets.to_column(), request.now).await?)
    } else if is_signed {
        // Filled when the provider has named its secret
        Some(random::uuid())
    } else {
        None
    };
    let binding = challenge.is_none().then(|| {
        let (by_cookie, by_network) = match (reach, linking) {
            (Reach::Cookie, None) | (Reach::CookieAt(_), None) => (true, None),
            (Reach::Cookie, Some(_)) => (true, Some(request)),
            _ => (false, Some(request)),
        };
        let answers_with_form = parameters.iter().any(|(name, value)| name == "response_mode" && value == "form_post");
        browser_binding::bind(auth, &provider.redirect_uri, browser, answers_with_form, by_cookie, by_network)
    });
    let flow = NewFlow {
        challenge: challenge.as_ref(),
        origin: binding.as_ref().map(|binding| binding.column.as_str()),
        provider_type: &provider.name,
        authentication_method: method::OAUTH,
        referrer: Some(&request.redirect_to),
        invite_token: invite.as_deref(),
        oauth_client_state_id: client_state,
        linking_target_id: linking,
        email_optional: provider.email_optional,
        ..NewFlow::default()
    };
    let state = flow_state::insert(&tx, &flow, request.now).await?.to_string();
    tx.commit().await?;

    let cookie = binding.and_then(|binding| binding.cookie);
    if is_signed {
        let url = oauth1::begin(auth, &provider, &state, client_state, request).await?;
        return Ok(Begun { url, cookie });
    }
    let mut url = Url::parse(&addresses.authorize)
        .map_err(|error| AuthError::failed(ContractError::ProviderAddressInvalid, error))?;
    let mut own = vec![
        ("client_id".to_owned(), provider.client_id().to_owned()),
        ("redirect_uri".to_owned(), provider.redirect_uri.clone()),
        ("response_type".to_owned(), "code".to_owned()),
        ("state".to_owned(), state),
    ];
    let scopes = scopes(&provider, query.get("scopes"));
    if !scopes.is_empty() {
        own.push(("scope".to_owned(), scopes));
    }
    if uses_pkce {
        own.push(("code_challenge".to_owned(), pkce::s256(&secrets.verifier)));
        own.push(("code_challenge_method".to_owned(), "S256".to_owned()));
    }
    if provider.returns_nonce {
        own.push(("nonce".to_owned(), secrets.nonce));
    }
    own.extend(parameters);
    put(&mut url, own);
    Ok(Begun { url: url.into(), cookie })
}

/// The hash of a pending invitation, if one is given.
async fn invitation(tx: &Tx, token: Option<&str>) -> Result<Option<String>, AuthError> {
    let Some(token) = token else { return Ok(None) };
    match users::lock_by_token(tx, token, &[Kind::Confirmation.as_str()]).await? {
        Some(_) => Ok(Some(token.to_owned())),
        None => Err(ContractError::LinkingSubjectUnknown.into()),
    }
}

/// The default scopes and the request's.
fn scopes(provider: &Configured, requested: Option<&str>) -> String {
    let Some(requested) = requested.filter(|_| provider.passes.scopes) else {
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

/// What else the request says to the provider.
fn passed_on(provider: &Configured, query: &Query) -> Vec<(String, String)> {
    if !provider.passes.others {
        return Vec::new();
    }
    let mut passed: Vec<(String, String)> = query
        .pairs()
        .iter()
        .filter(|(name, value)| {
            let own_nonce = name == "nonce" && provider.returns_nonce;
            let withheld = is_reserved(name) || own_nonce || WITHHELD.contains(&name.as_str());
            !withheld && name.len() + value.len() <= MAX_PARAMETER
        })
        .cloned()
        .collect();
    if provider.name == "workos"
        && let Some(value) = query.get("workos_provider")
    {
        passed.push(("provider".to_owned(), value.to_owned()));
    }
    passed
}

/// Puts parameters into the query; the first of a name wins over later ones, and over what the address had.
fn put(url: &mut Url, parameters: Vec<(String, String)>) {
    let had: Vec<(String, String)> =
        url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    let mut kept: Vec<(String, String)> = Vec::new();
    for (name, value) in parameters.into_iter().chain(had) {
        if !kept.iter().any(|(known, _)| *known == name) {
            kept.push((name, value));
        }
    }
    url.query_pairs_mut().clear().extend_pairs(kept);
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
    fn parameters_can_not_be_overridden() {
        let mut url = Url::parse("https://provider.example/authorize?client_id=x&keep=1").unwrap();
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        put(&mut url, vec![own("client_id", "ours"), own("state", "s"), own("state", "other")]);
        assert_eq!(url.as_str(), "https://provider.example/authorize?client_id=ours&state=s&keep=1");
        for name in ["State", "REDIRECT_URI", "client_secret"] {
            assert!(is_reserved(name));
        }
        assert!(!is_reserved("prompt"));
    }
}
