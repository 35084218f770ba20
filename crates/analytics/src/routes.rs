//! `POST /events`.

use std::net::{IpAddr, Ipv4Addr};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use portico_base::ClientAddress;
use portico_tokens::Caller;
use uuid::Uuid;

use crate::Analytics;
use crate::event::{self, ProductEventError};
use crate::writer::Overloaded;

/// The largest body, in bytes. Browsers send beacons of up to 64 KiB.
const MAX_BODY_BYTES: usize = 64 * 1024;

pub(crate) fn router(analytics: Analytics) -> Router {
    Router::new().route("/events", post(collect)).with_state(analytics)
}

/// The reasons for which a request is rejected.
#[derive(Debug, thiserror::Error)]
enum EventRejection {
    #[error(transparent)]
    Event(#[from] ProductEventError),
    #[error("Request body too large (max {MAX_BODY_BYTES} bytes)")]
    TooLarge,
    #[error("Events are sent as application/json or text/plain")]
    MediaType,
    #[error("Events of other sites are not collected")]
    OtherSite,
    #[error("Too many events, try again later")]
    TooMany(u64),
    #[error("Events cannot be taken now")]
    Overloaded,
}

impl IntoResponse for EventRejection {
    fn into_response(self) -> Response {
        let (status, wait) = match self {
            Self::Event(_) => (StatusCode::BAD_REQUEST, None),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, None),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, None),
            Self::OtherSite => (StatusCode::FORBIDDEN, None),
            Self::TooMany(seconds) => (StatusCode::TOO_MANY_REQUESTS, Some(seconds)),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, Some(5)),
        };
        let body = serde_json::json!({ "message": self.to_string() }).to_string();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = wait {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

async fn collect(State(analytics): State<Analytics>, request: Request) -> Result<StatusCode, EventRejection> {
    let (parts, body) = request.into_parts();
    if asks_for_privacy(&parts.headers) {
        return Ok(StatusCode::NO_CONTENT);
    }
    if parts.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return Err(EventRejection::OtherSite);
    }
    if !is_taken(&parts.headers) {
        return Err(EventRejection::MediaType);
    }
    let collector = &analytics.inner;
    let address =
        parts.extensions.get::<ClientAddress>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.0);
    collector.rate.take_request(address).map_err(EventRejection::TooMany)?;
    let body = to_bytes(body, MAX_BODY_BYTES).await.map_err(|_| EventRejection::TooLarge)?;
    let user_id =
        parts.extensions.get::<Caller>().and_then(Caller::subject).and_then(|subject| Uuid::parse_str(subject).ok());
    // The body may have taken a while to arrive
    let events = event::parse(&body, user_id, collector.clock.now())?;
    collector.rate.take_events(address, events.len()).map_err(EventRejection::TooMany)?;
    collector.writer.add(events).map_err(|Overloaded| EventRejection::Overloaded)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns true for Global Privacy Control or Do Not Track.
fn asks_for_privacy(headers: &HeaderMap) -> bool {
    ["sec-gpc", "dnt"].into_iter().any(|name| headers.get(name).is_some_and(|value| value == "1"))
}

/// Beacons and scripts send text or JSON. Forms are rejected.
fn is_taken(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return true;
    };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    ["application/json", "text/plain"].into_iter().any(|taken| kind.eq_ignore_ascii_case(taken))
}
