//! `GET` and `POST /callback` (auth-core 10.2): the person comes back from a provider.
//!
//! Whatever happens, the answer is a redirect: to the app, or to the site when nobody knows which app it was.
//!
//! A flow that links an identity to an account could be given to another person: their browser would
//! finish it, and their identity would lead into the other one's account. So with a proof key the
//! identity waits here, and is linked when the code is exchanged, which only the app that holds the
//! key can do. A flow without a proof key must be finished by the browser that began it ([`browser`]).

use axum::extract::{Request, State};
use axum::response::Response;
use http::{Method as Verb, StatusCode};
use serde_json::Value;

use crate::Auth;
use crate::error::{AuthError, ContractError};
use crate::http::extract::{Query, RequestInfo, read_body};
use crate::model::User;
use crate::model::ids::{FlowStateId, UserId};
use crate::oauth::flow::account_linking::{self, Claim, Outcome};
use crate::oauth::flow::authorize::ProviderSecrets;
use crate::oauth::flow::browser_binding::{self, Browser};
use crate::oauth::flow::callback_redirect::{self, Failure};
use crate::oauth::flow::manual_linking;
use crate::oauth::flow::oauth1;
use crate::oauth::provider::exchange::{self, Tokens};
use crate::oauth::provider::profile::Profile;
use crate::oauth::provider::resolved::{self, Configured, Place};
use crate::session::{self, Method, TokenResponse};
use crate::sql::flow_state::{self, Arrival, ClientState, FlowState};
use crate::sql::{Tx, users};

/// How long our own secrets towards a provider are good.
const CLIENT_STATE_EXPIRY: time::Duration = time::Duration::minutes(5);

/// `GET /callback`, and `POST` from providers that answer with a form.
pub(crate) async fn callback(State(auth): State<Auth>, request: RequestInfo, raw: Request) -> Response {
    let browser = Browser::of(raw.headers(), raw.uri());
    let is_form = raw.method() == Verb::POST;
    let fields = match fields(raw).await {
        Ok(fields) => fields,
        Err(error) => return callback_redirect::to_site(&auth, &error),
    };
    let untrusted = |error: AuthError| {
        error.log();
        callback_redirect::to_site(&auth, &error)
    };
    let found = match find(&auth, &fields).await {
        Ok(found) => found,
        Err(error) => return untrusted(error),
    };
    // A browser sends no `Lax` cookie with the form of another site, but with the next request
    if is_form
        && browser.is_unknown()
        && found.as_ref().is_some_and(|flow| is_elsewhere(flow, &browser, &request))
        && let Some(again) = browser_binding::repeated(fields.pairs())
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
    // Twitter's word for a person who changed their mind
    let refusal = fields.get("error").or(fields.get("denied").map(|_| "access_denied"));
    if let Some(refusal) = refusal {
        return callback_redirect::failed(
            &auth,
            &target,
            &Failure::of_provider(refusal, fields.get("error_description")),
        );
    }
    let arrived = Arrived { request: &request, browser: &browser, fields: &fields };
    match finish(&auth, &arrived, provider, &flow, &target).await {
        Ok(response) => response,
        Err(Failed::State(error)) => callback_redirect::to_site(&auth, &error),
        Err(Failed::SignIn(error)) => {
            error.log();
            callback_redirect::failed(&auth, &target, &Failure::of(&error))
        }
    }
}

async fn fields(raw: Request) -> Result<Query, AuthError> {
    let query = raw.uri().query().unwrap_or_default().to_owned();
    if raw.method() != Verb::POST {
        return Ok(Query::parse(&query));
    }
    let body = read_body(raw).await?;
    // The query counts where both have a field
    Ok(Query::parse(&format!("{query}&{}", String::from_utf8_lossy(&body))))
}

/// The request that brought a person back.
struct Arrived<'a> {
    request: &'a RequestInfo,
    browser: &'a Browser,
    fields: &'a Query,
}

/// The flow that the request names.
async fn find(auth: &Auth, fields: &Query) -> Result<Option<FlowState>, AuthError> {
    let state = fields.get("state").ok_or(ContractError::StateMissing)?;
    let id = FlowStateId::parse(state).ok_or(ContractError::StateInvalid)?;
    let client = auth.database().auth().await?;
    Ok(flow_state::by_id(&client, id).await?)
}

/// Returns whether an implicit flow began in another browser.
fn is_elsewhere(flow: &FlowState, browser: &Browser, request: &RequestInfo) -> bool {
    flow.challenge.is_none() && !browser_binding::is_same(flow.origin.as_deref(), browser, request)
}

/// The flow, if it can still be finished, and by this browser.
fn check(
    auth: &Auth,
    request: &RequestInfo,
    browser: &Browser,
    flow: Option<FlowState>,
) -> Result<FlowState, AuthError> {
    let flow = flow
        // Flows of mails live in the same table
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
            "A sign-in at a provider was begun in another browser, and not finished: apps that hand it from one \
             browser to another, or link identities across networks, need the flow with a proof key"
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

/// Where the person hears of a failure.
enum Failed {
    /// At the site: the flow is not to be trusted.
    State(AuthError),
    /// At the app.
    SignIn(AuthError),
}

impl From<AuthError> for Failed {
    fn from(error: AuthError) -> Self {
        Self::SignIn(error)
    }
}

async fn provider_of(auth: &Auth, flow: &FlowState) -> Result<Configured, AuthError> {
    resolved::find(auth, &flow.provider_type).await.map_err(|error| match error {
        AuthError::Contract(_) => {
            ContractError::ProviderOfFlowUnsupported { provider: flow.provider_type.clone() }.into()
        }
        other => other,
    })
}

/// Checks which issuer answered (RFC 9207, 2.4): a code of another one must not be sent to this one.
async fn check_issuer(auth: &Auth, provider: &Configured, fields: &Query) -> Result<(), AuthError> {
    let named = fields.get("iss");
    // Without the document the sign-in fails a moment later, for its own reason
    let addresses = provider.addresses(auth).await.ok();
    let promised = addresses
        .as_ref()
        .and_then(|addresses| addresses.discovery.as_ref())
        .is_some_and(|discovery| discovery.authorization_response_iss_parameter_supported);
    let authorize = addresses.as_ref().map_or("", |addresses| addresses.authorize.as_str());
    // What is neither a code nor an error is refused as that
    let is_answer = fields.get("code").or(fields.get("error")).is_some();
    let is_right = named.map_or(!(promised && is_answer), |named| exchange::may_be_issuer(provider, authorize, named));
    if is_right {
        return Ok(());
    }
    Err(ContractError::CallbackOfAnotherIssuer.into())
}

async fn finish(
    auth: &Auth,
    arrived: &Arrived<'_>,
    provider: Result<Configured, AuthError>,
    flow: &FlowState,
    target: &str,
) -> Result<Response, Failed> {
    let provider = provider?;
    let secrets = client_state(auth, arrived.request, flow).await?;
    let (tokens, profile) = identify(auth, arrived.request, &provider, arrived.fields, secrets.as_ref()).await?;
    // Mails of this sign-in lead to the app as well
    let request = &RequestInfo { redirect_to: target.to_owned(), ..arrived.request.clone() };
    let arrived = &Arrived { request, ..*arrived };
    account_linking::look_up_domain(auth, &profile).await;
    let mut settled = settle(auth, arrived, flow, &provider, &profile, &tokens).await;
    for _ in 1..account_linking::ATTEMPTS {
        if !settled.as_ref().is_err_and(account_linking::is_race) {
            break;
        }
        settled = settle(auth, arrived, flow, &provider, &profile, &tokens).await;
    }
    match settled? {
        Settled::Code(code) => Ok(callback_redirect::with_code(auth, target, &code)),
        Settled::Session(session) => Ok(callback_redirect::with_session(target, &session)),
        Settled::Refused(error) => Err(Failed::SignIn(error)),
        Settled::BadState(error) => Err(Failed::State(error)),
    }
}

/// Our own secrets of this flow; nobody gets them a second time.
async fn client_state(auth: &Auth, request: &RequestInfo, flow: &FlowState) -> Result<Option<ClientState>, AuthError> {
    let Some(id) = flow.oauth_client_state_id else { return Ok(None) };
    let client = auth.database().auth().await?;
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

/// Asks the provider who came.
async fn identify(
    auth: &Auth,
    request: &RequestInfo,
    provider: &Configured,
    fields: &Query,
    secrets: Option<&ClientState>,
) -> Result<(Tokens, Profile), AuthError> {
    let missing = || AuthError::from(ContractError::CallbackCodeMissing);
    let kept = secrets.and_then(|secrets| secrets.code_verifier.as_deref()).unwrap_or_default();
    if matches!(provider.place, Place::Signed { .. }) {
        let verified = oauth1::Verified {
            token: fields.get("oauth_token").ok_or_else(missing)?,
            verifier: fields.get("oauth_verifier").ok_or_else(missing)?,
            kept,
        };
        return oauth1::finish(auth, provider, &verified, request)
            .await
            .map_err(exchange::ExchangeError::into_profile_error);
    }
    let code = fields.get("code").ok_or_else(missing)?;
    let secrets = ProviderSecrets::from_column(kept);
    let verifier = Some(secrets.verifier.as_str()).filter(|verifier| !verifier.is_empty());
    let addresses = provider.addresses(auth).await?;
    let tokens = exchange::redeem(auth, provider, &addresses, code, verifier)
        .await
        .map_err(|error| error.into_code_error(code))?;
    let form_user: Option<Value> = fields.get("user").and_then(|user| serde_json::from_str(user).ok());
    let nonce = secrets.expected_nonce();
    let profile = exchange::profile(auth, provider, &addresses, &tokens, nonce, form_user.as_ref(), request.now)
        .await
        .map_err(exchange::ExchangeError::into_profile_error)?;
    Ok((tokens, profile))
}

enum Settled {
    Code(String),
    Session(Box<TokenResponse>),
    Refused(AuthError),
    BadState(AuthError),
}

fn arrival_of(tokens: &Tokens, user: UserId) -> Arrival<'_> {
    Arrival { user, access_token: &tokens.access, refresh_token: tokens.refresh.as_deref(), pending: None }
}

/// Decides about the account and ends the flow, in one transaction.
async fn settle(
    auth: &Auth,
    arrived: &Arrived<'_>,
    flow: &FlowState,
    provider: &Configured,
    profile: &Profile,
    tokens: &Tokens,
) -> Result<Settled, AuthError> {
    let request = arrived.request;
    let tx = Tx::begin(auth.database()).await?;
    // Locked now: of two callbacks with one state, the second finds the flow finished
    let flow = match check(auth, request, arrived.browser, flow_state::lock_by_id(&tx, flow.id).await?) {
        Ok(flow) => flow,
        Err(error) => return Ok(Settled::BadState(error)),
    };
    let user = match flow.linking_target_id {
        Some(target) => {
            let Some(target) = users::lock_complete(&tx, target).await? else {
                return Ok(Settled::BadState(AuthError::from(ContractError::LinkingTargetUnknown)));
            };
            if let Some(code) = flow.auth_code.clone() {
                manual_linking::check_link(auth, &tx, &target, &provider.name, profile, request).await?;
                let pending = manual_linking::keep_link(&tx, &provider.name, profile, request).await?;
                let arrival = Arrival { pending: Some(pending), ..arrival_of(tokens, target.id) };
                flow_state::signed_in(&tx, flow.id, arrival, request.now).await?;
                tx.commit().await?;
                return Ok(Settled::Code(code));
            }
            manual_linking::link(auth, &tx, request, target, &provider.name, profile).await?
        }
        None => {
            let claim = Claim {
                provider: &provider.name,
                profile,
                email_optional: flow.email_optional,
                invite: flow.invite_token.as_deref(),
            };
            account_linking::sign_in(auth, &tx, request, &claim).await?
        }
    };
    let user: Box<User> = match user {
        Outcome::SignedIn(user) => user,
        Outcome::Kept(error) => {
            // The state has served: what follows is a mail
            flow_state::delete(&tx, flow.id).await?;
            tx.commit().await?;
            return Ok(Settled::Refused(error));
        }
    };
    let settled = match flow.auth_code.clone() {
        Some(code) => {
            flow_state::signed_in(&tx, flow.id, arrival_of(tokens, user.id), request.now).await?;
            Settled::Code(code)
        }
        None => {
            let session = session::issue(auth, &tx, &user, Method::OAuth, request).await?;
            flow_state::delete(&tx, flow.id).await?;
            let session = session.with_provider_tokens(Some(tokens.access.clone()), tokens.refresh.clone());
            Settled::Session(Box::new(session))
        }
    };
    tx.commit().await?;
    Ok(settled)
}
