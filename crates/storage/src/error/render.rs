//! The responses of errors.
//!
//! The logical status is in the body, as a string. The HTTP status of nearly every error is 400:
//! clients depend on both.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use portico_base::LoggedErrorCode;
use portico_images::RenderError;
use serde_json::json;

use super::StorageError;
use super::contract::ErrorContract;

impl StorageError {
    /// Returns the status that protocols other than REST respond with.
    pub fn status(&self) -> u16 {
        self.contract().status
    }

    /// Returns the logical status and the code, for protocols whose HTTP status is the logical one.
    pub fn status_and_code(&self) -> (u16, &'static str) {
        let ErrorContract { status, code, .. } = self.contract();
        (status, code)
    }

    /// Returns the response of a REST route.
    pub fn into_response(self) -> Response {
        let ErrorContract { http, status, code, error } = self.contract();
        let message = self.message();
        let error = if error.is_empty() { code } else { error };
        let body = match self {
            // 404s outside of the services' own prefixes have another form
            Self::NoRoute(ref route) if !has_own_not_found(route) => {
                json!({ "message": message, "error": error, "statusCode": status })
            }
            _ => json!({ "statusCode": status.to_string(), "error": error, "message": message, "code": code }),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = StatusCode::from_u16(http).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.extensions_mut().insert(LoggedErrorCode(code));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        if self == Self::ContentLost {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        if matches!(self, Self::Aborted | Self::Stalled | Self::TooSlow) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let is_passing = matches!(
            self,
            Self::TooManyConnections | Self::TooManyUploads | Self::Render(RenderError::TooManyRequests)
        );
        if is_passing {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Returns true if the route (`GET:/object/x`) is below a prefix whose 404 has a code.
fn has_own_not_found(route: &str) -> bool {
    let path = route.split_once(':').map_or("", |(_, path)| path);
    let first = path.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
    matches!(first, "bucket" | "object" | "render" | "cdn" | "vector")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_tells_when_to_try_again() {
        for (error, seconds) in [
            (StorageError::TooManyUploads, Some("1")),
            (StorageError::Render(RenderError::TooManyRequests), Some("1")),
            // It takes until other uploads have ended
            (StorageError::TooManyUnfinished, None),
            (StorageError::NoSuchKey, None),
        ] {
            let response = error.into_response();
            let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, seconds);
        }
    }
}
