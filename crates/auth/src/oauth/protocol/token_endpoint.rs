//! The token endpoint (RFC 6749, 4.1.3): exchanges an authorization code for tokens.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::Value;

use crate::http_client::{CallError, HttpClient, HttpResponse, UrlTrust, secret_header};
use crate::model::JsonObject;

/// Longest token that is accepted from a provider: it is stored, and redirects carry it.
const MAX_PROVIDER_TOKEN_BYTES: usize = 16 * 1024;

/// The tokens that a provider issued.
#[derive(Debug)]
pub struct ProviderTokens {
    /// The access token.
    pub access: String,
    /// The refresh token, if one was issued.
    pub refresh: Option<String>,
    /// The id_token, if one was issued. Not verified.
    pub id_token: Option<String>,
    /// Every field of the response, for profile readers.
    pub fields: JsonObject,
}

/// The reason why a code was not exchanged. Texts are for the log and name no secret.
#[derive(Debug, thiserror::Error)]
pub enum CodeExchangeError {
    /// The token endpoint could not be called.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The token endpoint rejected the request.
    #[error("the token endpoint rejected the code: {0}")]
    Rejected(String),
}

/// The method by which a client authenticates at the token endpoint (RFC 6749, 2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthMethod {
    /// `client_secret_basic`: HTTP Basic.
    Basic,
    /// `client_secret_post`: fields of the form.
    Post,
}

/// The exchange of one code.
#[derive(Debug)]
pub struct CodeExchange<'a> {
    /// The trust in `url`.
    pub trust: UrlTrust,
    /// The token endpoint.
    pub url: &'a str,
    /// The client id.
    pub client_id: &'a str,
    /// The client secret.
    pub client_secret: &'a str,
    /// The redirect URI of the authorization request.
    pub redirect_uri: &'a str,
    /// The authorization code.
    pub code: &'a str,
    /// The PKCE verifier, if the authorization request had a challenge.
    pub verifier: Option<&'a str>,
}

impl CodeExchange<'_> {
    /// Sends the code, authenticated by each of `methods` in turn until one is accepted.
    ///
    /// # Errors
    /// The error of the last method that was tried.
    pub async fn send(
        &self,
        client: &HttpClient,
        methods: &[ClientAuthMethod],
    ) -> Result<ProviderTokens, CodeExchangeError> {
        let mut last = "no attempt".to_owned();
        for method in methods {
            match read_tokens(&self.send_with(client, *method).await?) {
                Ok(tokens) => return Ok(tokens),
                Err(reason) => {
                    last = reason;
                    // The client itself was accepted: another method would not help, and the code
                    // may be used up
                    if last.contains("invalid_grant") || last.contains("bad_verification_code") {
                        break;
                    }
                }
            }
        }
        Err(CodeExchangeError::Rejected(last))
    }

    async fn send_with(&self, client: &HttpClient, method: ClientAuthMethod) -> Result<HttpResponse, CallError> {
        let mut form =
            vec![("grant_type", "authorization_code"), ("code", self.code), ("redirect_uri", self.redirect_uri)];
        form.extend(self.verifier.map(|verifier| ("code_verifier", verifier)));
        let mut headers = HeaderMap::new();
        match method {
            ClientAuthMethod::Basic => {
                // RFC 6749, 2.3.1: both are form-encoded first
                let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encode(self.client_id), encode(self.client_secret));
                headers.insert(AUTHORIZATION, secret_header(&format!("Basic {}", STANDARD.encode(pair)))?);
            }
            ClientAuthMethod::Post => {
                form.extend([("client_id", self.client_id), ("client_secret", self.client_secret)]);
            }
        }
        client.post_form(self.trust, self.url, headers, &form).await
    }
}

/// Reads the tokens of a response, or the reason for which there are none.
fn read_tokens(response: &HttpResponse) -> Result<ProviderTokens, String> {
    let fields: JsonObject = serde_json::from_slice(&response.body).unwrap_or_else(|_| {
        // Older providers respond with a form
        form_urlencoded::parse(&response.body).take(32).map(|(name, value)| (name.into_owned(), value.into())).collect()
    });
    let text = |key: &str| {
        let text = fields.get(key).and_then(Value::as_str);
        text.filter(|text| !text.is_empty() && text.len() <= MAX_PROVIDER_TOKEN_BYTES)
    };
    let access = text("access_token").map(str::to_owned);
    match access {
        Some(access) if response.status.is_success() && !fields.contains_key("error") => Ok(ProviderTokens {
            access,
            refresh: text("refresh_token").map(str::to_owned),
            id_token: fields
                .get("id_token")
                .and_then(Value::as_str)
                .filter(|token| !token.is_empty())
                .map(str::to_owned),
            fields,
        }),
        _ => {
            let error: String =
                text("error").unwrap_or("no access token").chars().filter(|c| !c.is_control()).take(64).collect();
            Err(format!("{} (status {})", error, response.status.as_u16()))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use reqwest::StatusCode;

    fn response(status: StatusCode, body: &str) -> HttpResponse {
        HttpResponse { status, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn tokens_are_read_from_json_and_from_forms() {
        let body = r#"{"access_token":"a","refresh_token":"r","id_token":"i"}"#;
        let tokens = read_tokens(&response(StatusCode::OK, body)).unwrap();
        assert_eq!(
            (tokens.access.as_str(), tokens.refresh.as_deref(), tokens.id_token.as_deref()),
            ("a", Some("r"), Some("i"))
        );
        assert_eq!(read_tokens(&response(StatusCode::OK, "access_token=a&expires=1")).unwrap().access, "a");
    }

    #[test]
    fn a_response_without_a_usable_token_is_an_error() {
        let long = format!(r#"{{"access_token":"{}"}}"#, "x".repeat(MAX_PROVIDER_TOKEN_BYTES + 1));
        for (status, body) in [
            (StatusCode::OK, r#"{"error":"bad_verification_code"}"#),
            (StatusCode::BAD_REQUEST, r#"{"access_token":"a"}"#),
            (StatusCode::OK, r#"{"access_token":7}"#),
            (StatusCode::OK, r#"{"access_token":""}"#),
            (StatusCode::OK, "[1]"),
            (StatusCode::OK, ""),
            (StatusCode::OK, &long),
        ] {
            assert!(read_tokens(&response(status, body)).is_err(), "{body:.80}");
        }
    }
}
