//! `/graphql/v1`: a call of the function `graphql_public.graphql` through the data API, as on the
//! hosted service. Without `pg_graphql` the function returns that the extension is not enabled.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use portico_gateway::{BoxedResponse, GatewayHeaders};
use portico_rest::Rest;
use serde_json::json;

use super::rest;
use super::service::Service;

const CONTENT_PROFILE: HeaderName = HeaderName::from_static("content-profile");

/// Returns the route of GraphQL, with the rules of the data API.
pub(super) fn service(rest: &Rest) -> Service {
    let responding = rest.clone();
    let respond = move |request: Request, gateway: GatewayHeaders| -> BoxedResponse {
        Box::pin(respond(responding.clone(), request, gateway))
    };
    Service::new().mount_function("/graphql", respond, rest::access(rest))
}

/// Responds to a request below the prefix, whose path comes without it.
async fn respond(rest: Rest, mut request: Request, gateway: GatewayHeaders) -> Response {
    let Some(uri) = function_uri(request.uri()) else {
        let body = json!({ "message": "no Route matched with those values" });
        return (StatusCode::NOT_FOUND, axum::Json(body)).into_response();
    };
    *request.uri_mut() = uri;
    request.headers_mut().insert(CONTENT_PROFILE, HeaderValue::from_static("graphql_public"));
    rest.respond(request, |headers| gateway.write_to(headers)).await
}

/// Returns the address of the function if the path is `/v1`.
fn function_uri(uri: &Uri) -> Option<Uri> {
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
