//! The callers that alternate, and the context that SQL must see for their requests.

use portico_testkit::{Request, TestServer};
use serde_json::json;

/// One caller of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// A short name, which is part of the marks of the caller's requests.
    pub name: &'static str,
    /// The database role.
    pub role: &'static str,
    /// The claim `sub`.
    pub subject: Option<&'static str>,
    credential: Credential,
    sends_cookie: bool,
}

/// The credential of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Credential {
    /// No credential.
    Nothing,
    /// One token for all requests, with the caller's name as its `jti`.
    OneToken,
    /// A token for each request, with the request's mark as its `jti`.
    TokenPerRequest,
    /// A token without `jti`.
    BareToken,
}

const fn caller(
    name: &'static str,
    role: &'static str,
    subject: Option<&'static str>,
    credential: Credential,
    sends_cookie: bool,
) -> Caller {
    Caller { name, role, subject, credential, sends_cookie }
}

/// All callers: one without a token, three accounts, and the service role.
pub const CALLERS: [Caller; 5] = [
    caller("anon", "anon", None, Credential::Nothing, false),
    caller("ada", "authenticated", Some("00000000-0000-4000-8000-00000000000a"), Credential::OneToken, true),
    caller("ben", "authenticated", Some("00000000-0000-4000-8000-00000000000b"), Credential::TokenPerRequest, false),
    caller("cleo", "authenticated", Some("00000000-0000-4000-8000-00000000000c"), Credential::BareToken, true),
    caller("service", "service_role", None, Credential::BareToken, false),
];

impl Caller {
    /// Returns the claim `sub` as SQL shows it; a dash without one.
    pub fn subject_text(&self) -> &'static str {
        self.subject.unwrap_or("-")
    }

    /// Adds the caller's token, the header with the mark and the cookie to a request.
    pub fn sign(&self, server: &TestServer, request: Request, mark: &str) -> Request {
        let mut request = request.header("x-mark", mark);
        if self.sends_cookie {
            request = request.header("cookie", &format!("mark={mark}"));
        }
        if self.credential == Credential::Nothing {
            return request;
        }
        let mut claims = json!({
            "role": self.role,
            "exp": server.clock().now().unix_timestamp() + 36_000,
        });
        if let Some(subject) = self.subject {
            claims["sub"] = json!(subject);
        }
        match self.credential {
            Credential::OneToken => claims["jti"] = json!(self.name),
            Credential::TokenPerRequest => claims["jti"] = json!(mark),
            Credential::Nothing | Credential::BareToken => {}
        }
        request.bearer(&server.keys().ring.sign(&claims).unwrap())
    }

    /// Returns the text that `request_context()` of `base.sql` must return for a request, computed
    /// without the server.
    pub fn context(&self, method: &str, path: &str, mark: &str, user: Option<&str>) -> String {
        let subject = self.subject_text();
        let jti = match self.credential {
            Credential::OneToken => self.name,
            Credential::TokenPerRequest => mark,
            Credential::Nothing | Credential::BareToken => "-",
        };
        let cookie = if self.sends_cookie { mark } else { "-" };
        let user = user.unwrap_or(subject);
        format!("w({}|{subject}|{user}|{jti}|{method}|{path}|{mark}|{cookie})", self.role)
    }
}
