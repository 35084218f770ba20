//! Where a browser goes after a sign-in at a provider, and what its address then says (auth-core 10.2).

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use url::Url;

use crate::Auth;
use crate::error::{AuthError, ErrorCode};
use crate::http::landing;
use crate::session::TokenResponse;

/// Longest text of a provider that is passed on.
const MAX_PROVIDER_TEXT: usize = 512;

/// What went wrong, as the address says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    error: String,
    error_code: Option<String>,
    error_description: String,
}

impl Failure {
    /// Our own refusal.
    pub(crate) fn of(error: &AuthError) -> Self {
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
        }
    }

    /// The provider's own words, bounded and without control characters.
    pub(crate) fn of_provider(error: &str, description: Option<&str>) -> Self {
        let clean =
            |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(MAX_PROVIDER_TEXT).collect() };
        Self { error: clean(error), error_code: None, error_description: clean(description.unwrap_or_default()) }
    }

    fn fields(&self) -> Vec<(&str, &str)> {
        let mut fields = vec![("error", self.error.as_str())];
        fields.extend(self.error_code.as_deref().map(|code| ("error_code", code)));
        if !self.error_description.is_empty() {
            fields.push(("error_description", &self.error_description));
        }
        fields
    }
}

fn encode<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// `target` with these fields in its query, in place of fields of the same names. `None`: it is not a URL.
fn with_query(target: &str, fields: &[(&str, &str)]) -> Option<Url> {
    let mut url = Url::parse(target).ok()?;
    let is_ours = |name: &str| fields.iter().any(|(own, _)| *own == name);
    let collides = url.query_pairs().any(|(name, _)| is_ours(&name));
    let kept = match (url.query(), collides) {
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
    url.set_query(Some(&format!("{kept}{}", encode(fields.iter().copied()))));
    Some(url)
}

/// Tokens and codes are in the address: no cache may keep it, no other site may learn it.
pub(crate) fn redirect(status: StatusCode, location: &str) -> Response {
    landing::redirect(status, location)
}

/// Nobody knows where the person came from: to the site, which reads the query.
pub(crate) fn to_site(auth: &Auth, error: &AuthError) -> Response {
    let failure = Failure::of(error);
    match with_query(auth.allow_list().site_url(), &failure.fields()) {
        Some(url) => redirect(StatusCode::SEE_OTHER, url.as_str()),
        None => AuthError::internal(anyhow::anyhow!("the site URL is not a URL")).into_response(),
    }
}

/// To the app, with what went wrong in query and fragment.
pub(crate) fn failed(auth: &Auth, target: &str, failure: &Failure) -> Response {
    let mut fields = failure.fields();
    let Some(mut url) = with_query(target, &fields) else {
        return to_site(auth, &AuthError::internal(anyhow::anyhow!("the target is not a URL")));
    };
    fields.push(("sb", ""));
    url.set_fragment(Some(&encode(fields)));
    redirect(StatusCode::FOUND, url.as_str())
}

/// To the app, with a code that it exchanges.
pub(crate) fn with_code(auth: &Auth, target: &str, code: &str) -> Response {
    match with_query(target, &[("code", code)]) {
        Some(url) => redirect(StatusCode::FOUND, url.as_str()),
        None => to_site(auth, &AuthError::internal(anyhow::anyhow!("the target is not a URL"))),
    }
}

/// To the app, with the session in the fragment.
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
    fn the_query_of_a_target_stays() {
        let query = |target| with_query(target, &[("code", "a b")]).unwrap().to_string();
        assert_eq!(query("https://app.example.com/cb"), "https://app.example.com/cb?code=a+b");
        assert_eq!(query("https://app.example.com/cb?x=1%20&y"), "https://app.example.com/cb?x=1%20&y&code=a+b");
        assert_eq!(query("https://app.example.com/cb?code=old&x=1"), "https://app.example.com/cb?x=1&code=a+b");
        assert_eq!(query("https://app.example.com/?code=old"), "https://app.example.com/?code=a+b");
        assert_eq!(query("com.example.app://cb"), "com.example.app://cb?code=a+b");
        assert_eq!(query("https://app.example.com/#/route"), "https://app.example.com/?code=a+b#/route");
    }

    #[test]
    fn kinds_of_errors() {
        let kind = |error| Failure::of(&error).error;
        assert_eq!(kind(AuthError::from(ContractError::SignUpsDisabled)), "access_denied");
        assert_eq!(kind(AuthError::from(ContractError::Banned)), "access_denied");
        assert_eq!(kind(AuthError::from(ContractError::EmailRequired)), "invalid_request");
        assert_eq!(kind(AuthError::from(ContractError::EmailTaken)), "server_error");
        assert_eq!(kind(AuthError::internal(anyhow::anyhow!("x"))), "server_error");
    }

    #[test]
    fn a_providers_text_is_bounded_and_clean() {
        let failure = Failure::of_provider("access_denied", Some(&format!("no\r\nway{}", "x".repeat(5000))));
        assert!(failure.error_description.starts_with("noway"));
        assert_eq!(failure.error_description.len(), MAX_PROVIDER_TEXT);
        assert_eq!(failure.error_code, None);
    }
}
