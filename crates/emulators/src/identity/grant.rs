//! The codes and tokens that were issued.

use std::collections::HashMap;

use portico_base::random;
use time::{Duration, OffsetDateTime};

/// Time in which a code must be exchanged.
pub(super) const CODE_LIFETIME: Duration = Duration::seconds(60);
/// Life of access tokens and `id_token`s.
pub(super) const TOKEN_LIFETIME: Duration = Duration::seconds(3600);
/// Codes, and tokens of either kind, that are kept at most.
const MOST: usize = 10_000;

/// A person's consent to one authorization request.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub sub: String,
    pub scope: String,
    pub nonce: Option<String>,
    pub hosted_domain: Option<String>,
    pub offline: bool,
}

#[derive(Debug)]
struct Code {
    grant: Grant,
    redirect_uri: String,
    challenge: Option<String>,
    expires_at: OffsetDateTime,
    /// The tokens that it was exchanged for. A second exchange means that the code was stolen: they
    /// are revoked.
    tokens: Option<Vec<String>>,
}

#[derive(Debug)]
struct GrantedToken {
    grant: Grant,
    expires_at: Option<OffsetDateTime>,
}

/// The tokens of a successful exchange.
#[derive(Debug)]
pub(super) struct IssuedTokens {
    pub grant: Grant,
    pub access_token: String,
    pub refresh_token: Option<String>,
}

/// The parameters that a client sends with a code.
pub(super) struct Exchange<'r> {
    pub code: &'r str,
    pub redirect_uri: &'r str,
    /// SHA-256 of the PKCE verifier, base64url; `None` without a verifier.
    pub challenge: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Grants {
    codes: HashMap<String, Code>,
    tokens: HashMap<String, GrantedToken>,
}

impl Grants {
    pub(super) fn issue_code(
        &mut self,
        grant: Grant,
        redirect_uri: &str,
        challenge: Option<String>,
        now: OffsetDateTime,
    ) -> String {
        self.prune(now);
        let code = format!("4/{}", random::base64url(32));
        let expires_at = now + CODE_LIFETIME;
        self.codes.insert(
            code.clone(),
            Code { grant, redirect_uri: redirect_uri.to_owned(), challenge, expires_at, tokens: None },
        );
        code
    }

    /// Exchanges a code for tokens.
    ///
    /// # Errors
    ///
    /// The description of `invalid_grant`.
    pub(super) fn exchange(
        &mut self,
        exchange: &Exchange<'_>,
        now: OffsetDateTime,
    ) -> Result<IssuedTokens, &'static str> {
        let code = self
            .codes
            .get_mut(exchange.code)
            .ok_or("The code is not known. Codes can be used once, within a minute.")?;
        if let Some(tokens) = code.tokens.take() {
            for token in &tokens {
                self.tokens.remove(token);
            }
            code.tokens = Some(Vec::new());
            return Err("The code was used before. The tokens that it gave have been revoked.");
        }
        if code.expires_at <= now {
            return Err("The code has expired. Codes must be exchanged within a minute.");
        }
        if code.redirect_uri != exchange.redirect_uri {
            return Err("The redirect_uri is not the one of the authorization request.");
        }
        match (&code.challenge, &exchange.challenge) {
            (None, None) => {}
            (Some(_), None) => return Err("The code_verifier is missing."),
            (None, Some(_)) => {
                return Err("A code_verifier was sent, but the authorization request had no code_challenge.");
            }
            (Some(expected), Some(given)) if expected == given => {}
            (Some(_), Some(_)) => return Err("The code_verifier does not belong to the code_challenge."),
        }
        let grant = code.grant.clone();
        let access_token = new_token("ya29.");
        let refresh_token = grant.offline.then(|| new_token("1//"));
        code.tokens = Some(refresh_token.iter().chain([&access_token]).cloned().collect());
        self.keep(&access_token, &grant, Some(now + TOKEN_LIFETIME));
        if let Some(refresh_token) = &refresh_token {
            self.keep(refresh_token, &grant, None);
        }
        Ok(IssuedTokens { grant, access_token, refresh_token })
    }

    /// Returns a new access token for a refresh token; the refresh token stays valid, as Google's
    /// do.
    pub(super) fn refresh(&mut self, refresh_token: &str, now: OffsetDateTime) -> Option<IssuedTokens> {
        let known = self.tokens.get(refresh_token).filter(|token| token.expires_at.is_none())?;
        let grant = Grant { nonce: None, ..known.grant.clone() };
        self.prune(now);
        let access_token = new_token("ya29.");
        self.keep(&access_token, &grant, Some(now + TOKEN_LIFETIME));
        Some(IssuedTokens { grant, access_token, refresh_token: None })
    }

    /// Returns the grant of an access token.
    pub(super) fn access(&self, token: &str, now: OffsetDateTime) -> Option<&Grant> {
        self.tokens.get(token).filter(|token| token.expires_at.is_some_and(|end| now < end)).map(|token| &token.grant)
    }

    pub(super) fn revoke(&mut self, token: &str) {
        self.tokens.remove(token);
    }

    fn keep(&mut self, token: &str, grant: &Grant, expires_at: Option<OffsetDateTime>) {
        self.tokens.insert(token.to_owned(), GrantedToken { grant: grant.clone(), expires_at });
    }

    /// Drops what has expired, and everything when that does not help: this is a development
    /// server.
    fn prune(&mut self, now: OffsetDateTime) {
        if self.codes.len() >= 1_000 {
            self.codes.retain(|_, code| now < code.expires_at);
        }
        if self.tokens.len() >= 1_000 {
            self.tokens.retain(|_, token| token.expires_at.is_none_or(|end| now < end));
        }
        if self.codes.len() >= MOST {
            self.codes.clear();
        }
        if self.tokens.len() >= MOST {
            self.tokens.clear();
        }
    }
}

fn new_token(prefix: &str) -> String {
    format!("{prefix}{}", random::base64url(32))
}
