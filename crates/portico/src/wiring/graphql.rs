//! `/graphql/v1`: a call of the function `graphql_public.graphql` through the data API, as on the hosted service
//! (project 12.1). Without `pg_graphql` the function answers that the extension is not enabled.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use portico_gateway::GatewayHeaders;
use portico_rest::Rest;
use serde_json::json;

/// The prefix under which [`answer`] is mounted.
pub const PREFIX: &str = "/graphql";

const CONTENT_PROFILE: HeaderName = HeaderName::from_static("content-profile");

/// Answers a request below [`PREFIX`], whose path comes without it.
pub async fn answer(rest: Rest, mut request: Request, gateway_headers: GatewayHeaders) -> Response {
    let Some(uri) = function(request.uri()) else {
        let body = json!({ "message": "no Route matched with those values" });
        return (StatusCode::NOT_FOUND, axum::Json(body)).into_response();
    };
    *request.uri_mut() = uri;
    request.headers_mut().insert(CONTENT_PROFILE, HeaderValue::from_static("graphql_public"));
    rest.answer(request, |headers| gateway_headers.write_to(headers)).await
}

/// Returns the function's address for `/v1`.
fn function(uri: &Uri) -> Option<Uri> {
    if !matches!(uri.path(), "/v1" | "/v1/") {
        return None;
    }
    let path = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("/rpc/graphql?{query}")).ok()?,
        None => PathAndQuery::from_static("/rpc/graphql"),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}
