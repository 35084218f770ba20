//! Query parameters.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::Auth;
use crate::error::AuthError;

/// The query parameters of a request. The first of a name counts.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query of a URL, or a form body.
    pub fn parse(text: &str) -> Self {
        Self(
            form_urlencoded::parse(text.as_bytes())
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .take(256)
                .collect(),
        )
    }

    /// Returns the value of a parameter, if it is present and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty() && !value.contains('\0'))
    }

    /// Returns all parameters in their order.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

impl FromRequestParts<Auth> for Query {
    type Rejection = AuthError;

    async fn from_request_parts(parts: &mut Parts, _auth: &Auth) -> Result<Self, AuthError> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}
