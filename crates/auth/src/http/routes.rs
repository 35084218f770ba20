//! The routes of the service, and the layers around every handler.

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use portico_base::RequestId;

use crate::Auth;
use crate::account::reauthenticate;
use crate::account::recover;
use crate::account::resend;
use crate::account::sign_up;
use crate::account::update;
use crate::account::verify;
use crate::admin;
use crate::error::{API_VERSION_HEADER, ApiVersion, AuthError, ContractError, Failed, render};
use crate::factors::{self, challenge, enroll, recovery_codes, unenroll};
use crate::http::discovery;
use crate::http::extract::{MAX_BODY_BYTES, header};
use crate::http::info;
use crate::http::switched_off;
use crate::oauth;
use crate::one_time::sign_in;
use crate::passkeys;
use crate::session::grants;
use crate::session::logout;

/// Returns all routes of the service, without the prefix `/auth/v1`.
pub(crate) fn router(auth: Auth) -> Router {
    Router::new()
        .merge(accounts())
        .merge(sessions())
        .merge(factors())
        .merge(providers())
        .merge(passkeys())
        .merge(published())
        .merge(administration())
        .merge(switched_off::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(async || StatusCode::METHOD_NOT_ALLOWED)
        .route_layer(axum::middleware::from_fn(receive))
        .route_layer(axum::middleware::from_fn(only_named_methods))
        .layer(axum::middleware::from_fn_with_state(auth.clone(), finish))
        .with_state(auth)
}

/// Accounts and their messages.
fn accounts() -> Router<Auth> {
    Router::new()
        .route("/health", get(info::health))
        .route("/settings", get(info::settings))
        .route("/signup", post(sign_up::sign_up))
        .route("/otp", post(sign_in::otp))
        .route("/magiclink", post(sign_in::magic_link))
        .route("/recover", post(recover::recover))
        .route("/resend", post(resend::resend))
        .route("/verify", get(verify::follow).post(verify::verify))
        .route("/reauthenticate", get(reauthenticate::reauthenticate))
        .route("/user", get(update::get).put(update::put))
        .route("/user/password", get(update::password))
        .route("/user/email-change", get(update::email_change))
}

/// Returns the routes that start, refresh and end sessions.
fn sessions() -> Router<Auth> {
    Router::new()
        .route("/token", post(grants::token))
        .route("/logout", post(logout::logout))
        .route("/sessions", get(logout::list))
        .route("/sessions/{id}", delete(logout::revoke))
}

/// Returns the routes of second factors.
fn factors() -> Router<Auth> {
    Router::new()
        .route("/factors", post(enroll::enroll))
        .route("/factors/{id}", delete(unenroll::unenroll))
        .route("/factors/{id}/challenge", post(challenge::challenge))
        .route("/factors/{id}/verify", post(factors::verify::verify))
        .route("/factors/recovery-codes", get(recovery_codes::count).post(recovery_codes::create))
        .route("/factors/recovery-codes/verify", post(recovery_codes::verify))
}

/// Returns the routes of sign-in and linking at identity providers.
fn providers() -> Router<Auth> {
    Router::new()
        .route("/authorize", get(oauth::flow::authorize::authorize))
        .route("/callback", get(oauth::flow::callback::callback).post(oauth::flow::callback::callback))
        .route("/user/identities/authorize", get(oauth::flow::manual_linking::authorize))
        .route("/user/identities/{identity_id}", delete(oauth::flow::manual_linking::unlink))
}

/// Returns the routes of the administration of accounts.
fn administration() -> Router<Auth> {
    Router::new()
        .route("/invite", post(admin::invitation::invite))
        .route("/admin/generate_link", post(admin::link::generate))
        .route("/admin/audit", get(admin::audit_log::list))
        .route("/admin/custom-providers", get(admin::custom_providers::list).post(admin::custom_providers::create))
        .route(
            "/admin/custom-providers/{identifier}",
            get(admin::custom_providers::get).put(admin::custom_providers::put).delete(admin::custom_providers::delete),
        )
        .route("/admin/users/{user_id}/factors", get(admin::users::factors::list))
        .route(
            "/admin/users/{user_id}/factors/{factor_id}",
            put(admin::users::factors::put).delete(admin::users::factors::delete),
        )
        .route("/admin/users", get(admin::users::list::list).post(admin::users::create::create))
        .route(
            "/admin/users/{user_id}",
            get(admin::users::get).put(admin::users::update::put).delete(admin::users::delete::delete),
        )
}

/// Passkeys.
fn passkeys() -> Router<Auth> {
    Router::new()
        .route("/passkeys", get(passkeys::management::list))
        .route("/passkeys/{id}", patch(passkeys::management::rename).delete(passkeys::management::delete))
        .route("/admin/users/{user_id}/passkeys", get(passkeys::administration::list))
        .route("/admin/users/{user_id}/passkeys/{id}", delete(passkeys::administration::delete))
        .route("/passkeys/registration/options", post(passkeys::registration::options))
        .route("/passkeys/registration/verify", post(passkeys::registration::verify))
        .route("/passkeys/authentication/options", post(passkeys::authentication::options))
        .route("/passkeys/authentication/verify", post(passkeys::authentication::verify))
}

/// Returns the routes of the documents that verify access tokens.
fn published() -> Router<Auth> {
    Router::new()
        .route("/.well-known/jwks.json", get(discovery::jwks))
        .route("/.well-known/openid-configuration", get(discovery::openid_configuration))
        .route("/.well-known/oauth-authorization-server", get(discovery::oauth_authorization_server))
}

/// Clients expect plain text here.
async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "text/plain; charset=utf-8")], "404 page not found\n").into_response()
}

/// Rejects `HEAD`, which a `GET` handler would accept: mail scanners send it to follow links, and
/// would use up their tokens.
async fn only_named_methods(request: Request, next: Next) -> Response {
    if request.method() == Method::HEAD {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    next.run(request).await
}

/// Receives the whole body before the request is handled, so that its time, its limits and its
/// token are those of the moment at which it is complete. Otherwise a client could start many
/// requests, hold back their last bytes, and complete them at a time of its choice.
async fn receive(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Body::from(body.to_bytes()),
        // Left to the handler, whose earlier checks come first
        Err(error) => Body::from_stream(futures_util::stream::once(std::future::ready(Err::<Bytes, _>(error)))),
    };
    next.run(Request::from_parts(parts, body)).await
}

/// Limits the duration of a request, renders its error in the form of its API version, and keeps
/// personal data out of caches.
async fn finish(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    let version = ApiVersion::parse(header(request.headers(), API_VERSION_HEADER.as_str()));
    let request_id = request.extensions().get::<RequestId>().cloned();
    let limit = auth.settings().max_request_duration;
    let response = if limit.is_zero() {
        next.run(request).await
    } else {
        match tokio::time::timeout(limit, next.run(request)).await {
            Ok(response) => response,
            Err(_) => AuthError::from(ContractError::RequestTimedOut).into_response(),
        }
    };
    let mut response = match response.extensions().get::<Failed>() {
        Some(Failed(error)) => {
            let mut rendered = render(error, version, request_id.as_ref().map(|id| id.as_str()));
            // Headers that a handler added to its error are kept
            for (name, value) in response.headers() {
                if name != CONTENT_TYPE && name != http::header::CONTENT_LENGTH {
                    rendered.headers_mut().append(name, value.clone());
                }
            }
            rendered
        }
        None => response,
    };
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.entry(X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    response
}
