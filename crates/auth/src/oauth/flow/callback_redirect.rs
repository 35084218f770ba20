//! The redirects that end a callback: to the app or the site, with a code, a session or an error.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use url::Url;

use crate::error::{AuthError, ErrorCode};
use crate::http::link_redirect;
use crate::session::TokenResponse;

/// Longest text of a provider that is passed on, in characters.
const MAX_PROVIDER_TEXT: usize = 512;

/// An error as the fields of a redirect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedirectedError {
    error: String,
    error_code: Option<String>,
    error_description: String,
    /// The id of the request, for an error of the server.
    error_id: Option<String>,
    /// The address that a confirmation was sent to.
    email: Option<String>,
}

impl RedirectedError {
    /// Makes the fields of an error of this service.
    pub(crate) fn from_auth_error(error: &AuthError) -> Self {
        let kind = match (error.code(), error.status().as_u16()) {
            (ErrorCode::SignupDisabled | ErrorCode::UserBanned | ErrorCode::ProviderEmailNeedsVerification, _) => {
                "access_denied"
            }
            (_, 400) => "invalid_request",
            (_, 401) => "unauthorized_client",
            (_, 403) => "access_denied",
            (_, 503) => "temporarily_unavailable",
            _ => "server_error",
        };
        Self {
            error: kind.to_owned(),
            error_code: Some(error.code().as_str().to_owned()),
            error_description: error.to_string(),
            error_id: link_redirect::error_id(error),
            email: None,
        }
    }

    /// Returns the same with the address of the person, whom a confirmation was sent to.
    pub(crate) fn with_email(self, email: String) -> Self {
        Self { email: Some(email), ..self }
    }

    /// Makes the fields of a provider's error, bounded and without control characters.
    pub(crate) fn from_provider(error: &str, description: Option<&str>) -> Self {
        let clean =
            |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(MAX_PROVIDER_TEXT).collect() };
        Self {
            error: clean(error),
            error_code: None,
            error_description: clean(description.unwrap_or_default()),
            error_id: None,
            email: None,
        }
    }

    fn fields(&self) -> Vec<(&str, &str)> {
        let mut fields = vec![("error", self.error.as_str())];
        fields.extend(self.error_code.as_deref().map(|code| ("error_code", code)));
        if !self.error_description.is_empty() {
            fields.push(("error_description", &self.error_description));
        }
        fields.extend(self.error_id.as_deref().map(|id| ("error_id", id)));
        fields
    }
}

fn encode<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Returns `target` with these fields in its query, in place of fields of the same names. `None`:
/// it is not a URL.
fn with_query(target: &str, fields: &[(&str, &str)]) -> Option<Url> {
    let mut url = Url::parse(target).ok()?;
    let is_ours = |name: &str| fields.iter().any(|(own, _)| *own == name);
    let collides = url.query_pairs().any(|(name, _)| is_ours(&name));
    let prefix = match (url.query(), collides) {
        (Some(query), false) if !query.is_empty() => format!("{query}&"),
        (Some(_), true) => {
            let pairs: Vec<_> = url.query_pairs().filter(|(name, _)| !is_ours(name)).collect();
            match pairs.is_empty() {
                true => String::new(),
                false => format!("{}&", encode(pairs.iter().map(|(name, value)| (&**name, &**value)))),
            }
        }
        _ => String::new(),
    };
    url.set_query(Some(&format!("{prefix}{}", encode(fields.iter().copied()))));
    Some(url)
}

/// Redirects to a URL that may contain tokens or codes.
pub(crate) fn redirect(status: StatusCode, location: &str) -> Response {
    link_redirect::redirect(status, location)
}

/// Redirects to the site, which reads the error in the query: the app is not known.
pub(crate) fn to_site(site_url: &str, error: &AuthError) -> Response {
    let failure = RedirectedError::from_auth_error(error);
    match with_query(site_url, &failure.fields()) {
        Some(url) => redirect(StatusCode::SEE_OTHER, url.as_str()),
        None => AuthError::internal(anyhow::anyhow!("the site URL is not a URL")).into_response(),
    }
}

/// Redirects to the app, with the error in query and fragment.
///
/// An address is in the fragment only, which no server logs, and only for a page of the web: other
/// applications of a device can claim the scheme of an app.
pub(crate) fn failed(site_url: &str, target: &str, failure: &RedirectedError) -> Response {
    let mut fields = failure.fields();
    let Some(mut url) = with_query(target, &fields) else {
        return to_site(site_url, &AuthError::internal(anyhow::anyhow!("the target is not a URL")));
    };
    if matches!(url.scheme(), "http" | "https") {
        fields.extend(failure.email.as_deref().map(|email| ("email", email)));
    }
    fields.push(("sb", ""));
    url.set_fragment(Some(&encode(fields)));
    redirect(StatusCode::FOUND, url.as_str())
}

/// Redirects to the app, with a code that it exchanges.
pub(crate) fn with_code(site_url: &str, target: &str, code: &str) -> Response {
    match with_query(target, &[("code", code)]) {
        Some(url) => redirect(StatusCode::FOUND, url.as_str()),
        None => to_site(site_url, &AuthError::internal(anyhow::anyhow!("the target is not a URL"))),
    }
}

/// Redirects to the app, with the session in the fragment.
pub(crate) fn with_session(target: &str, session: &TokenResponse) -> Response {
    let fields = session.fragment();
    let fragment = encode(fields.iter().map(|(name, value)| (*name, value.as_str())));
    redirect(StatusCode::FOUND, &format!("{target}#{fragment}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::ContractError;

    #[test]
    fn the_query_of_a_target_is_kept() {
        let query = |target| with_query(target, &[("code", "a b")]).unwrap().to_string();
        assert_eq!(query("https://app.example.com/cb"), "https://app.example.com/cb?code=a+b");
        assert_eq!(query("https://app.example.com/cb?x=1%20&y"), "https://app.example.com/cb?x=1%20&y&code=a+b");
        assert_eq!(query("https://app.example.com/cb?code=old&x=1"), "https://app.example.com/cb?x=1&code=a+b");
        assert_eq!(query("https://app.example.com/?code=old"), "https://app.example.com/?code=a+b");
        assert_eq!(query("com.example.app://cb"), "com.example.app://cb?code=a+b");
        assert_eq!(query("https://app.example.com/#/route"), "https://app.example.com/?code=a+b#/route");
    }

    #[test]
    fn errors_have_an_oauth_category() {
        let kind = |error| RedirectedError::from_auth_error(&error).error;
        assert_eq!(kind(AuthError::from(ContractError::SignUpsDisabled)), "access_denied");
        assert_eq!(kind(AuthError::from(ContractError::Banned)), "access_denied");
        assert_eq!(kind(AuthError::from(ContractError::EmailRequired)), "invalid_request");
        assert_eq!(kind(AuthError::from(ContractError::EmailTaken)), "server_error");
        assert_eq!(kind(AuthError::internal(anyhow::anyhow!("x"))), "server_error");
    }

    #[test]
    fn the_text_of_a_provider_is_bounded_and_without_control_characters() {
        let failure = RedirectedError::from_provider("access_denied", Some(&format!("no\r\nway{}", "x".repeat(5000))));
        assert!(failure.error_description.starts_with("noway"));
        assert_eq!(failure.error_description.len(), MAX_PROVIDER_TEXT);
        assert_eq!(failure.error_code, None);
    }
}
