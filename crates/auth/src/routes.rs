//! URL to handler, and the layer that every answer passes.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use portico_tokens::RequestId;

use crate::Auth;
use crate::error::{API_VERSION_HEADER, ApiVersion, AuthError, ErrorCode, Failed, render};
use crate::extract::header;
use crate::logout;

/// All paths of the service, without the prefix `/auth/v1`.
pub(crate) fn router(auth: Auth) -> Router {
    Router::new()
        .merge(accounts())
        .merge(sessions())
        .fallback(not_found)
        .method_not_allowed_fallback(async || StatusCode::METHOD_NOT_ALLOWED)
        .layer(axum::middleware::from_fn_with_state(auth.clone(), finish))
        .with_state(auth)
}

/// Accounts and the messages they get.
fn accounts() -> Router<Auth> {
    Router::new()
}

/// Sessions of a signed-in person.
fn sessions() -> Router<Auth> {
    Router::new()
        .route("/logout", post(logout::logout))
        .route("/sessions", get(logout::list))
        .route("/sessions/{id}", delete(logout::revoke))
}

/// Wire contract: plain text (auth-core 1.4).
async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, [(CONTENT_TYPE, "text/plain; charset=utf-8")], "404 page not found\n").into_response()
}

/// Limits the time of a request, and renders its error in the shape that it asked for.
async fn finish(State(auth): State<Auth>, request: Request, next: Next) -> Response {
    let version = ApiVersion::parse(header(request.headers(), API_VERSION_HEADER.as_str()));
    let request_id = request.extensions().get::<RequestId>().cloned();
    let limit = auth.settings().max_request_duration;
    let response = if limit.is_zero() {
        next.run(request).await
    } else {
        match tokio::time::timeout(limit, next.run(request)).await {
            Ok(response) => response,
            Err(_) => AuthError::refuse(
                ErrorCode::RequestTimeout,
                "Processing this request timed out, please retry after a moment.",
            )
            .into_response(),
        }
    };
    match response.extensions().get::<Failed>() {
        Some(Failed(error)) => {
            let mut rendered = render(error, version, request_id.as_ref().map(|id| id.as_str()));
            // Headers that a handler added to its error stay
            for (name, value) in response.headers() {
                if name != CONTENT_TYPE && name != http::header::CONTENT_LENGTH {
                    rendered.headers_mut().append(name, value.clone());
                }
            }
            rendered
        }
        None => response,
    }
}
