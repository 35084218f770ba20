//! The authorization endpoint: checks the request, shows the chooser, and takes the decision.

use axum::{
    extract::{RawForm, RawQuery, State},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderValue, StatusCode, header};
use url::Url;

use super::{
    IdentityProvider,
    account::Account,
    grant::Grant,
    key,
    page::{self, Chooser},
};

/// The longest value of a parameter.
const LONGEST: usize = 8_192;

/// An authorization request whose client and redirect target are known to be right.
struct AuthorizationRequest {
    redirect_uri: Url,
    /// The text that was sent: the token endpoint compares letters.
    redirect_text: String,
    state: Option<String>,
    scope: String,
    nonce: Option<String>,
    challenge: Option<String>,
    offline: bool,
    prompt: String,
    login_hint: String,
    hosted_domain: Option<String>,
    /// The whole request, for the forms of the chooser.
    query: String,
}

/// The outcome of a rejected request.
enum AuthorizeError {
    /// The redirect target cannot be trusted: the browser gets a page.
    Page { title: &'static str, text: String },
    /// The client gets the error in its redirect, as OAuth specifies.
    Redirect { to: Box<Url>, state: Option<String>, error: &'static str, text: String },
}

/// `GET /authorize`
pub(super) async fn show(State(provider): State<IdentityProvider>, RawQuery(query): RawQuery) -> Response {
    begin(&provider, query.unwrap_or_default())
}

/// `POST /authorize`, which OpenID Connect asks for as well.
pub(super) async fn show_posted(State(provider): State<IdentityProvider>, RawForm(form): RawForm) -> Response {
    begin(&provider, String::from_utf8_lossy(&form).into_owned())
}

fn begin(provider: &IdentityProvider, query: String) -> Response {
    let request = match AuthorizationRequest::read(provider, query) {
        Ok(request) => request,
        Err(rejection) => return provider.reject(rejection),
    };
    key::prepare();
    if request.prompt.split(' ').any(|word| word == "none") {
        let hinted = provider.accounts().find(&request.login_hint).cloned();
        return match hinted {
            Some(account) => provider.send_back(&request, &account),
            None => provider
                .reject(request.reject("login_required", "No account is signed in, and the page may not be shown.")),
        };
    }
    provider.chooser(&request, None, ("", ""))
}

/// `POST /authorize/decision`
pub(super) async fn decide(State(provider): State<IdentityProvider>, RawForm(form): RawForm) -> Response {
    let fields: Vec<(String, String)> = form_urlencoded::parse(&form).into_owned().take(20).collect();
    let field = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let request = match AuthorizationRequest::read(&provider, field("request").unwrap_or_default().to_owned()) {
        Ok(request) => request,
        Err(rejection) => return provider.reject(rejection),
    };
    if let Some(sub) = field("forget") {
        let removed = provider.accounts().remove(sub);
        return provider.chooser(&request, removed.err(), ("", ""));
    }
    if let Some(wanted) = field("account") {
        let account = provider.accounts().find(wanted).cloned();
        return match account {
            Some(account) => provider.send_back(&request, &account),
            None => provider.chooser(&request, Some("This account does not exist any more.".to_owned()), ("", "")),
        };
    }
    match field("action") {
        Some("add") => {
            let (name, email) = (field("name").unwrap_or_default(), field("email").unwrap_or_default());
            let made = Account::new(name, email, field("unverified").is_none());
            let kept = made.and_then(|account| provider.accounts().put(account.clone()).map(|()| account));
            match kept {
                Ok(account) => provider.send_back(&request, &account),
                Err(reason) => provider.chooser(&request, Some(reason), (name, email)),
            }
        }
        Some("cancel") => provider.reject(request.reject("access_denied", "The person declined.")),
        Some("fail") => provider.reject(request.reject("server_error", "The provider was asked to fail.")),
        _ => provider.chooser(&request, Some("Choose an account, or add one.".to_owned()), ("", "")),
    }
}

impl AuthorizationRequest {
    fn read(provider: &IdentityProvider, query: String) -> Result<Self, AuthorizeError> {
        let settings = &provider.inner.settings;
        let page = |title, text: String| AuthorizeError::Page { title, text };
        if query.len() > 4 * LONGEST {
            return Err(page("The request is too long", "Its parameters take more than 32 KiB.".to_owned()));
        }
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().take(64).collect();
        let find = |name: &str| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        if pairs.iter().any(|(_, value)| value.len() > LONGEST) {
            return Err(page("The request is too long", "One of its parameters takes more than 8 KiB.".to_owned()));
        }
        let client = find("client_id").unwrap_or_default();
        if client != settings.client_id {
            let text = format!(
                "The request came with the client id {client:?}. This stand-in knows only {:?}. With credentials of a real \
                 Google project, point the provider's URL at Google.",
                settings.client_id
            );
            return Err(page("The client is not known (invalid_client)", text));
        }
        let redirect_text = find("redirect_uri").unwrap_or_default();
        let redirect_uri = Url::parse(&redirect_text).ok().filter(|_| settings.redirect_uris.contains(&redirect_text));
        let Some(redirect_uri) = redirect_uri else {
            let text = format!(
                "The request asks to send people back to {redirect_text:?}. That must be, letter by letter, {}. Check the \
                 redirect_uri of the provider and the server's public URL: 127.0.0.1 and localhost are different.",
                settings.redirect_uris.iter().map(|known| format!("{known:?}")).collect::<Vec<_>>().join(" or ")
            );
            return Err(page("The redirect target is not allowed (redirect_uri_mismatch)", text));
        };
        let request = Self {
            redirect_uri,
            redirect_text,
            state: find("state"),
            scope: find("scope").unwrap_or_default(),
            nonce: find("nonce").filter(|nonce| !nonce.is_empty()),
            challenge: find("code_challenge").filter(|challenge| !challenge.is_empty()),
            offline: find("access_type").as_deref() == Some("offline"),
            prompt: find("prompt").unwrap_or_default(),
            login_hint: find("login_hint").unwrap_or_default(),
            hosted_domain: find("hd").filter(|domain| !domain.is_empty() && domain != "*"),
            query: query.clone(),
        };
        if find("response_type").as_deref() != Some("code") {
            return Err(request.reject("unsupported_response_type", "Only response_type=code is supported."));
        }
        if find("response_mode").is_some_and(|mode| mode != "query") {
            return Err(request.reject("invalid_request", "Only response_mode=query is supported."));
        }
        if request.scope.split_whitespace().next().is_none() {
            return Err(request.reject("invalid_scope", "The scope is missing; ask for openid, email and profile."));
        }
        let method = find("code_challenge_method").unwrap_or_else(|| "plain".to_owned());
        if let Some(challenge) = &request.challenge {
            let sized = BASE64_URL_SAFE_NO_PAD.decode(challenge).is_ok_and(|bytes| bytes.len() == 32);
            if method != "S256" || !sized {
                return Err(request.reject("invalid_request", "A code_challenge must be made with the method S256."));
            }
        }
        Ok(request)
    }

    fn reject(&self, error: &'static str, text: &str) -> AuthorizeError {
        let to = Box::new(self.redirect_uri.clone());
        AuthorizeError::Redirect { to, state: self.state.clone(), error, text: text.to_owned() }
    }
}

impl IdentityProvider {
    fn reject(&self, rejection: AuthorizeError) -> Response {
        match rejection {
            AuthorizeError::Page { title, text } => {
                (StatusCode::BAD_REQUEST, page::error(&self.url("/style.css"), title, &text)).into_response()
            }
            AuthorizeError::Redirect { mut to, state, error, text } => {
                to.query_pairs_mut().append_pair("error", error).append_pair("error_description", &text);
                self.redirect(*to, state)
            }
        }
    }

    /// Sends the person back as this account.
    fn send_back(&self, request: &AuthorizationRequest, account: &Account) -> Response {
        if let Some(domain) =
            request.hosted_domain.as_deref().filter(|domain| !account.domain().eq_ignore_ascii_case(domain))
        {
            let reason = format!("Only accounts of {domain} may sign in here.");
            return self.chooser(request, Some(reason), ("", ""));
        }
        let grant = Grant {
            sub: account.sub.clone(),
            scope: request.scope.clone(),
            nonce: request.nonce.clone(),
            hosted_domain: request.hosted_domain.clone(),
            offline: request.offline,
        };
        let now = self.inner.clock.now();
        let code = self.grants().issue_code(grant, &request.redirect_text, request.challenge.clone(), now);
        let mut to = request.redirect_uri.clone();
        to.query_pairs_mut().append_pair("code", &code).append_pair("scope", &request.scope);
        self.redirect(to, request.state.clone())
    }

    fn redirect(&self, mut to: Url, state: Option<String>) -> Response {
        // RFC 9207: the client can tell who responds
        to.query_pairs_mut().append_pair("iss", &self.inner.settings.issuer);
        if let Some(state) = state {
            to.query_pairs_mut().append_pair("state", &state);
        }
        match HeaderValue::from_str(to.as_str()) {
            Ok(location) => (
                StatusCode::SEE_OTHER,
                [
                    (header::LOCATION, location),
                    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
                    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
                ],
            )
                .into_response(),
            // A parsed URL is ASCII without control characters
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    fn chooser(&self, request: &AuthorizationRequest, problem: Option<String>, typed: (&str, &str)) -> Response {
        let status = if problem.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
        let accounts = self.accounts();
        let domain = request.hosted_domain.as_deref();
        let mut people: Vec<&Account> = accounts
            .all()
            .iter()
            .filter(|account| domain.is_none_or(|domain| account.domain().eq_ignore_ascii_case(domain)))
            .collect();
        // The account that the application expects comes first
        people.sort_by_key(|account| account.email != request.login_hint && account.sub != request.login_hint);
        let hint_is_new = request.login_hint.contains('@') && accounts.find(&request.login_hint).is_none();
        let email = if typed.1.is_empty() && hint_is_new { &request.login_hint } else { typed.1 };
        let host = request.redirect_uri.host_str().unwrap_or_default();
        let client = request.redirect_uri.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let page = page::chooser(&Chooser {
            issuer: &self.inner.settings.issuer,
            request: &request.query,
            client: &client,
            people: &people,
            problem: problem.as_deref(),
            hosted_domain: domain,
            name: typed.0,
            email,
        });
        (status, page).into_response()
    }
}
