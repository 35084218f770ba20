//! `GET` and `POST /callback`: the browser returns from a provider.
//!
//! The response is always a redirect: to the app, or to the site when the app is not known.
//!
//! An attacker could make a victim's browser finish the attacker's link flow, which would link the
//! victim's identity to the attacker's account. So in a flow with PKCE the identity is stored, and
//! linked when the code is exchanged, which only the app that holds the verifier can do. A flow
//! without PKCE must be finished by the browser that started it ([`browser_binding`]).

use axum::extract::{Request, State};
use axum::response::Response;
use http::{Method as Verb, StatusCode};
use serde_json::Value;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::hooks;
use crate::http::extract::{Query, RequestInfo, read_body};
use crate::model::User;
use crate::model::ids::{FlowStateId, UserId};
use crate::oauth::flow::account_linking::{self, ExternalIdentity, SignInOutcome};
use crate::oauth::flow::authorize::ProviderSecrets;
use crate::oauth::flow::browser_binding::{self, BrowserContext};
use crate::oauth::flow::callback_redirect::{self, RedirectedError};
use crate::oauth::flow::manual_linking;
use crate::oauth::flow::{oauth1, provider_unreachable};
use crate::oauth::protocol::token_endpoint::{CodeExchange, CodeExchangeError, ProviderTokens};
use crate::oauth::provider::identification::Identification;
use crate::oauth::provider::lookup;
use crate::oauth::provider::profile::Profile;
use crate::oauth::provider::resolved::{ProviderEndpoints, ResolvedProvider};
use crate::operation::AccountOperation;
use crate::session::{self, AuthenticationMethod, TokenResponse};
use crate::sql::flow_state::{self, Arrival, ClientState, FlowState};
use crate::sql::{Tx, users};

/// The lifetime of a flow's secrets towards the provider.
const CLIENT_STATE_EXPIRY: time::Duration = time::Duration::minutes(5);

/// `GET /callback`, and `POST` from providers that respond with a form.
pub(crate) async fn callback(State(auth): State<Auth>, request: RequestInfo, raw: Request) -> Response {
    let browser = BrowserContext::from_request(raw.headers(), raw.uri());
    let is_form = raw.method() == Verb::POST;
    let fields = match fields(raw).await {
        Ok(fields) => fields,
        Err(error) => return callback_redirect::to_site(auth.error_url(), &error),
    };
    let untrusted = |error: AuthError| {
        error.log();
        callback_redirect::to_site(auth.error_url(), &error)
    };
    let found = match find(&auth, &fields).await {
        Ok(found) => found,
        Err(error) => return untrusted(error),
    };
    // A browser sends no `Lax` cookie with another site's form, but with the request that follows a
    // redirect
    if is_form
        && browser.has_no_key()
        && found.as_ref().is_some_and(|flow| is_elsewhere(flow, &browser, &request))
        && let Some(again) = browser_binding::as_query(fields.pairs())
    {
        return callback_redirect::redirect(StatusCode::SEE_OTHER, &again);
    }
    let flow = match check(&auth, &request, &browser, found) {
        Ok(flow) => flow,
        Err(error) => return untrusted(error),
    };
    let provider = provider_of(&auth, &flow).await;
    if let Ok(provider) = &provider
        && let Err(error) = check_issuer(&auth, provider, &fields).await
    {
        return untrusted(error);
    }
    let target = target(&auth, &flow);
    // OAuth 1.0a: the person declined
    let rejection = fields.get("error").or(fields.get("denied").map(|_| "access_denied"));
    if let Some(rejection) = rejection {
        return callback_redirect::failed(
            auth.allow_list().site_url(),
            &target,
            &RedirectedError::from_provider(rejection, fields.get("error_description")),
        );
    }
    let callback = CallbackRequest { request: &request, browser: &browser, fields: &fields };
    match finish(&auth, &callback, provider, &flow, &target).await {
        Ok(response) => response,
        Err(CallbackError::InvalidState(error)) => callback_redirect::to_site(auth.error_url(), &error),
        Err(CallbackError::SignIn(error)) => {
            error.log();
            callback_redirect::failed(auth.allow_list().site_url(), &target, &RedirectedError::from_auth_error(&error))
        }
        Err(CallbackError::Unconfirmed { error, email }) => {
            let failure = RedirectedError::from_auth_error(&error).with_email(email);
            callback_redirect::failed(auth.allow_list().site_url(), &target, &failure)
        }
    }
}

async fn fields(raw: Request) -> Result<Query, AuthError> {
    let query = raw.uri().query().unwrap_or_default().to_owned();
    if raw.method() != Verb::POST {
        return Ok(Query::parse(&query));
    }
    let body = read_body(raw).await?;
    // The first of a name counts: the query before the form
    Ok(Query::parse(&format!("{query}&{}", String::from_utf8_lossy(&body))))
}

/// The request of a browser that returns from a provider.
struct CallbackRequest<'a> {
    request: &'a RequestInfo,
    browser: &'a BrowserContext,
    fields: &'a Query,
}

/// Finds the flow that the request names.
async fn find(auth: &Auth, fields: &Query) -> Result<Option<FlowState>, AuthError> {
    let state = fields.get("state").ok_or(ContractError::StateMissing)?;
    let id = FlowStateId::parse(state).ok_or(ContractError::StateInvalid)?;
    let client = auth.database().client().await?;
    Ok(flow_state::by_id(&client, id).await?)
}

/// Returns true if an implicit flow was started in another browser.
fn is_elsewhere(flow: &FlowState, browser: &BrowserContext, request: &RequestInfo) -> bool {
    flow.challenge.is_none() && !browser_binding::is_bound_to(flow.origin.as_deref(), browser, request)
}

/// Checks that the flow can still be finished, and by this browser.
fn check(
    auth: &Auth,
    request: &RequestInfo,
    browser: &BrowserContext,
    flow: Option<FlowState>,
) -> Result<FlowState, AuthError> {
    let flow = flow
        // Flows of emails are in the same table
        .filter(|flow| flow.authentication_method == flow_state::method::OAUTH)
        .ok_or(ContractError::StateUnknown)?;
    if flow.is_expired(request.now, auth.settings().flow_state_expiry) {
        return Err(ContractError::StateExpired.into());
    }
    if flow.challenge.is_some() && flow.user_id.is_some() {
        return Err(ContractError::StateUsed.into());
    }
    if is_elsewhere(&flow, browser, request) {
        tracing::warn!(
            flow = flow.id.to_string(),
            "a sign-in at a provider was started in another browser and is rejected: apps that pass it from one \
             browser to another, or link identities across networks, need the PKCE flow"
        );
        return Err(match flow.linking_target_id {
            Some(_) => ContractError::LinkOfAnotherBrowser.into(),
            None => ContractError::SignInOfAnotherBrowser.into(),
        });
    }
    Ok(flow)
}

fn target(auth: &Auth, flow: &FlowState) -> String {
    let fixed = auth.settings().external_redirect_url.as_deref().filter(|url| !url.is_empty());
    fixed.or(flow.referrer.as_deref()).unwrap_or(auth.allow_list().site_url()).to_owned()
}

/// A failed callback, by the target of its redirect.
enum CallbackError {
    /// The site: the flow is not trusted.
    InvalidState(AuthError),
    /// The app.
    SignIn(AuthError),
    /// The app, which also gets the address that a confirmation was sent to.
    Unconfirmed { error: AuthError, email: String },
}

impl From<AuthError> for CallbackError {
    fn from(error: AuthError) -> Self {
        Self::SignIn(error)
    }
}

async fn provider_of(auth: &Auth, flow: &FlowState) -> Result<ResolvedProvider, AuthError> {
    lookup::find(auth, &flow.provider_type).await.map_err(|error| match error {
        AuthError::Contract(_) => {
            ContractError::ProviderOfFlowUnsupported { provider: flow.provider_type.clone() }.into()
        }
        other => other,
    })
}

/// Checks the issuer of the response (RFC 9207, 2.4): a code of another issuer must not be sent to
/// this one.
async fn check_issuer(auth: &Auth, provider: &ResolvedProvider, fields: &Query) -> Result<(), AuthError> {
    let named = fields.get("iss");
    // Without the document the sign-in fails a moment later, with an error of its own
    let endpoints = provider.current_endpoints(&auth.provider_connections().issuers).await.ok();
    let promised = endpoints
        .as_ref()
        .and_then(|endpoints| endpoints.discovery.as_ref())
        .is_some_and(|discovery| discovery.authorization_response_iss_parameter_supported);
    let authorize = endpoints.as_ref().map_or("", |endpoints| endpoints.authorize.as_str());
    // A callback with neither a code nor an error has an error of its own
    let is_response = fields.get("code").or(fields.get("error")).is_some();
    let is_right = named.map_or(!(promised && is_response), |named| provider.may_be_issuer(authorize, named));
    if is_right {
        return Ok(());
    }
    Err(ContractError::CallbackOfAnotherIssuer.into())
}

async fn finish(
    auth: &Auth,
    callback: &CallbackRequest<'_>,
    provider: Result<ResolvedProvider, AuthError>,
    flow: &FlowState,
    target: &str,
) -> Result<Response, CallbackError> {
    let provider = provider?;
    let secrets = client_state(auth, callback.request, flow).await?;
    let (tokens, profile) = identify(auth, callback.request, &provider, callback.fields, secrets.as_ref()).await?;
    // The links in emails of this sign-in lead to the app as well
    let request = &RequestInfo { redirect_to: target.to_owned(), ..callback.request.clone() };
    let callback = &CallbackRequest { request, ..*callback };
    account_linking::look_up_domain(auth, &profile).await;
    let person = IdentifiedPerson { provider: &provider.name, profile: &profile, tokens: &tokens };
    let run = || hooks::complete(auth.hooks(), callback.request, || complete(auth, callback, flow, &person));
    let mut completed = run().await;
    for _ in 1..account_linking::MAX_RACE_ATTEMPTS {
        if !completed.as_ref().is_err_and(account_linking::is_lost_race) {
            break;
        }
        completed = run().await;
    }
    match completed? {
        CallbackOutcome::Code(code) => Ok(callback_redirect::with_code(auth.allow_list().site_url(), target, &code)),
        CallbackOutcome::Session(session) => Ok(callback_redirect::with_session(target, &session)),
        CallbackOutcome::Unconfirmed { error, email } => Err(CallbackError::Unconfirmed { error, email }),
        CallbackOutcome::InvalidState(error) => Err(CallbackError::InvalidState(error)),
    }
}

/// Takes the secrets of the flow towards the provider. They can be taken once only.
async fn client_state(auth: &Auth, request: &RequestInfo, flow: &FlowState) -> Result<Option<ClientState>, AuthError> {
    let Some(id) = flow.oauth_client_state_id else { return Ok(None) };
    let client = auth.database().client().await?;
    let taken = flow_state::take_client_state(&client, id).await?.ok_or(ContractError::ClientStateUnknown)?;
    drop(client);
    if taken.provider_type != flow.provider_type {
        return Err(ContractError::ClientStateOfAnotherProvider.into());
    }
    if request.now > taken.created_at + CLIENT_STATE_EXPIRY {
        return Err(ContractError::ClientStateExpired.into());
    }
    Ok(Some(taken))
}

/// Exchanges the code and identifies the person.
async fn identify(
    auth: &Auth,
    request: &RequestInfo,
    provider: &ResolvedProvider,
    fields: &Query,
    secrets: Option<&ClientState>,
) -> Result<(ProviderTokens, Profile), AuthError> {
    let missing = || AuthError::from(ContractError::CallbackCodeMissing);
    let stored = secrets.and_then(|secrets| secrets.code_verifier.as_deref()).unwrap_or_default();
    if matches!(provider.endpoints, ProviderEndpoints::OAuth1 { .. }) {
        let returned = oauth1::ReturnedVerifier {
            token: fields.get("oauth_token").ok_or_else(missing)?,
            verifier: fields.get("oauth_verifier").ok_or_else(missing)?,
            stored,
        };
        return Ok(oauth1::finish(auth, provider, &returned, request).await?);
    }
    let code = fields.get("code").ok_or_else(missing)?;
    let secrets = ProviderSecrets::from_column(stored);
    let verifier = Some(secrets.verifier.as_str()).filter(|verifier| !verifier.is_empty());
    let connections = auth.provider_connections();
    let endpoints = provider.current_endpoints(&connections.issuers).await.map_err(provider_unreachable)?;
    let exchange = CodeExchange {
        trust: provider.trust,
        url: &endpoints.token,
        client_id: provider.client_id(),
        client_secret: provider.secret.expose(),
        redirect_uri: &provider.redirect_uri,
        code,
        verifier,
    };
    let tokens = exchange
        .send(&connections.client, provider.client_auth_methods(&endpoints))
        .await
        .map_err(|error| exchange_failed(code, error))?;
    let form_user: Option<Value> = fields.get("user").and_then(|user| serde_json::from_str(user).ok());
    let identification = Identification {
        connections,
        provider,
        endpoints: &endpoints,
        nonce: secrets.expected_nonce(),
        form_user: form_user.as_ref(),
        now: request.now,
    };
    let profile = identification.profile(&tokens).await?;
    Ok((tokens, profile))
}

/// Returns the error of a failed exchange. Its log line has the first characters of the code, which
/// help to find it in a provider's log.
fn exchange_failed(code: &str, error: CodeExchangeError) -> AuthError {
    let code_start: String = code.chars().filter(|c| !c.is_control()).take(4).collect();
    AuthError::failed(ContractError::CodeExchangeFailed { code_start }, error)
}

enum CallbackOutcome {
    Code(String),
    Session(Box<TokenResponse>),
    Unconfirmed { error: AuthError, email: String },
    InvalidState(AuthError),
}

fn arrival_of(tokens: &ProviderTokens, user: UserId) -> Arrival<'_> {
    Arrival { user, access_token: &tokens.access, refresh_token: tokens.refresh.as_deref(), pending: None }
}

/// A person whom a provider has identified.
struct IdentifiedPerson<'a> {
    /// The name of the provider.
    provider: &'a str,
    profile: &'a Profile,
    tokens: &'a ProviderTokens,
}

/// Finds or creates the account and ends the flow, in one transaction.
async fn complete(
    auth: &Auth,
    callback: &CallbackRequest<'_>,
    flow: &FlowState,
    person: &IdentifiedPerson<'_>,
) -> Result<CallbackOutcome, AuthError> {
    let request = callback.request;
    let IdentifiedPerson { provider, profile, tokens } = *person;
    let tx = Tx::begin(auth.database()).await?;
    let op = AccountOperation::new(auth, request, &tx);
    // Locked: of two callbacks with one state, the second finds the flow finished
    let flow = match check(auth, request, callback.browser, flow_state::lock_by_id(&tx, flow.id).await?) {
        Ok(flow) => flow,
        Err(error) => return Ok(CallbackOutcome::InvalidState(error)),
    };
    let user = match flow.linking_target_id {
        Some(target) => {
            let Some(target) = users::lock_complete(&tx, target).await? else {
                return Ok(CallbackOutcome::InvalidState(AuthError::from(ContractError::LinkingTargetUnknown)));
            };
            manual_linking::check_session(&tx, &target, &flow).await?;
            if let Some(code) = flow.auth_code.clone() {
                manual_linking::check_link(op, &target, provider, profile).await?;
                let pending = manual_linking::store_pending_link(op, provider, profile).await?;
                let arrival = Arrival { pending: Some(pending), ..arrival_of(tokens, target.id) };
                flow_state::signed_in(&tx, flow.id, arrival, request.now).await?;
                tx.commit().await?;
                return Ok(CallbackOutcome::Code(code));
            }
            manual_linking::link(op, target, provider, profile).await?
        }
        None => {
            let external = ExternalIdentity {
                provider,
                profile,
                email_optional: flow.email_optional,
                invite: flow.invite_token.as_deref(),
            };
            account_linking::sign_in(op, &external).await?
        }
    };
    let user: Box<User> = match user {
        SignInOutcome::SignedIn(user) => user,
        SignInOutcome::AwaitsConfirmation { error, email } => {
            // The state has been used: the person continues by email
            flow_state::delete(&tx, flow.id).await?;
            tx.commit().await?;
            return Ok(CallbackOutcome::Unconfirmed { error, email });
        }
    };
    let completed = match flow.auth_code.clone() {
        Some(code) => {
            flow_state::signed_in(&tx, flow.id, arrival_of(tokens, user.id), request.now).await?;
            CallbackOutcome::Code(code)
        }
        None => {
            let session = session::issue(op, &user, AuthenticationMethod::OAuth).await?;
            flow_state::delete(&tx, flow.id).await?;
            let session = session.with_provider_tokens(Some(tokens.access.clone()), tokens.refresh.clone());
            CallbackOutcome::Session(Box::new(session))
        }
    };
    tx.commit().await?;
    Ok(completed)
}
