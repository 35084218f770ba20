//! The redirect that ends a link of an email: the target with the outcome in its fragment or query.

use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, LOCATION, REFERRER_POLICY};
use http::{HeaderValue, StatusCode};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use portico_base::with_current_request;

use crate::error::AuthError;

/// The names and values of an outcome, in any order.
pub(crate) type RedirectFields = Vec<(&'static str, String)>;

/// Returns `target#a=..&b=..`, sorted by name. An existing fragment is replaced.
pub(crate) fn with_fragment(target: &str, mut fields: RedirectFields) -> String {
    fields.sort_by_key(|(name, _)| *name);
    let base = target.split('#').next().unwrap_or_default();
    format!("{base}#{}", encode(&fields))
}

/// Returns `target?..&a=..`. An existing query is kept.
pub(crate) fn with_query(target: &str, fields: &RedirectFields) -> String {
    let (base, fragment) = match target.split_once('#') {
        Some((base, fragment)) => (base, Some(fragment)),
        None => (target, None),
    };
    let separator = match base.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    let mut url = format!("{base}{separator}{}", encode(fields));
    if let Some(fragment) = fragment {
        url.push('#');
        url.push_str(fragment);
    }
    url
}

fn encode(fields: &RedirectFields) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Returns the id of the current request for the fields of a server error, as in JSON bodies:
/// `None` for other errors, whose cause is the caller's.
pub(crate) fn error_id(error: &AuthError) -> Option<String> {
    error.status().is_server_error().then(|| with_current_request(|request| request.id.to_string())).flatten()
}

/// Returns the fields of an error. `error` is present for the statuses that have an OAuth error.
pub(crate) fn error_fields(error: &AuthError) -> RedirectFields {
    let word = match error.status() {
        StatusCode::BAD_REQUEST => Some("invalid_request"),
        StatusCode::UNAUTHORIZED => Some("unauthorized_client"),
        StatusCode::FORBIDDEN => Some("access_denied"),
        StatusCode::INTERNAL_SERVER_ERROR => Some("server_error"),
        StatusCode::SERVICE_UNAVAILABLE => Some("temporarily_unavailable"),
        _ => None,
    };
    let mut fields: RedirectFields = word.map(|word| ("error", word.to_owned())).into_iter().collect();
    fields.push(("error_code", error.code().as_str().to_owned()));
    fields.push(("error_description", error.to_string()));
    fields.extend(error_id(error).map(|id| ("error_id", id)));
    fields
}

/// Redirects a browser. The URL may contain tokens, so it is kept out of caches and of `Referer`.
pub(crate) fn redirect(status: StatusCode, url: &str) -> Response {
    match HeaderValue::from_str(&in_ascii(url)) {
        Ok(location) => (
            status,
            [
                (LOCATION, location),
                (CACHE_CONTROL, HeaderValue::from_static("no-store")),
                (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            ],
        )
            .into_response(),
        Err(error) => AuthError::internal(error).into_response(),
    }
}

/// Encodes a URL for a header: a target is kept as the app wrote it, which may contain any
/// characters.
pub(crate) fn in_ascii(url: &str) -> String {
    utf8_percent_encode(url, CONTROLS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ContractError;

    #[test]
    fn every_character_is_encoded_for_a_header() {
        assert_eq!(in_ascii("https://a.example/gr\u{fc}\u{df}e?x=%20#y"), "https://a.example/gr%C3%BC%C3%9Fe?x=%20#y");
    }

    #[test]
    fn fragments_are_sorted_and_queries_are_extended() {
        let fields = || vec![("b", "x y".to_owned()), ("a", "1&2".to_owned())];
        assert_eq!(with_fragment("https://a.example/#old", fields()), "https://a.example/#a=1%262&b=x+y");
        assert_eq!(with_query("https://a.example/", &fields()), "https://a.example/?b=x+y&a=1%262");
        assert_eq!(with_query("https://a.example/?q=1#f", &fields()), "https://a.example/?q=1&b=x+y&a=1%262#f");
        assert_eq!(with_query("https://a.example/?", &fields()), "https://a.example/?b=x+y&a=1%262");
    }

    #[test]
    fn errors_are_in_the_fragment() {
        let mut fields = error_fields(&AuthError::from(ContractError::LinkExpired));
        fields.push(("sb", String::new()));
        assert_eq!(
            with_fragment("https://a.example", fields),
            "https://a.example#error=access_denied&error_code=otp_expired\
             &error_description=Email+link+is+invalid+or+has+expired&sb="
        );
    }
}
