//! Tokens of a third party: an issuer besides this server whose users may use the data.
//!
//! Its keys verify only tokens that name it, so that it cannot issue tokens in this server's name.
//! Some issuers sign the tokens of all their customers with the same keys; theirs must also name
//! the audience.

use std::sync::Arc;

use serde_json::Value;

use crate::claims::Claims;
use crate::key::KeyError;
use crate::ring::KeyRing;
use crate::token::{TokenError, TokenHeader, named_issuer};

/// A third party whose tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThirdPartyIssuer {
    /// `iss` of its tokens. A slash at the end makes no difference.
    pub url: String,
    /// Further names of the same issuer in `iss`, such as that of a custom domain.
    pub other_names: Vec<String>,
    /// The `aud` that its tokens must have. `None`: any.
    pub audience: Option<String>,
}

impl ThirdPartyIssuer {
    /// Returns true if `iss` is the name of this issuer.
    #[must_use]
    pub fn is_named(&self, iss: &str) -> bool {
        let iss = iss.trim_end_matches('/');
        std::iter::once(&self.url).chain(&self.other_names).any(|name| name.trim_end_matches('/') == iss)
    }

    fn check(&self, claims: &Claims) -> Result<(), TokenError> {
        if !claims.issuer().is_some_and(|iss| self.is_named(iss)) {
            return Err(TokenError::BadSignature);
        }
        match &self.audience {
            Some(audience) if !claims.is_for(audience) => Err(TokenError::OtherAudience),
            _ => Ok(()),
        }
    }
}

/// A third party with its published keys, as far as they are known.
#[derive(Debug)]
pub struct ThirdPartyKeys {
    issuer: ThirdPartyIssuer,
    /// `None` until they were fetched.
    ring: Option<KeyRing>,
}

impl ThirdPartyKeys {
    /// Returns the third party before its keys were fetched: its tokens have an unknown key.
    #[must_use]
    pub fn unknown(issuer: ThirdPartyIssuer) -> Self {
        Self { issuer, ring: None }
    }

    /// Returns the third party with the keys that it published (`{"keys":[...]}`).
    ///
    /// # Errors
    /// Those of [`KeyRing::foreign`].
    pub fn published(issuer: ThirdPartyIssuer, jwks: &Value) -> Result<Self, KeyError> {
        Ok(Self { issuer, ring: Some(KeyRing::foreign(jwks)?.with_large_cache()) })
    }

    /// Returns the issuer.
    #[must_use]
    pub fn issuer(&self) -> &ThirdPartyIssuer {
        &self.issuer
    }

    /// Returns true if there are keys.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns true if a key of this id was published, or one that may have signed a token with it
    /// all the same.
    #[must_use]
    pub fn may_know(&self, id: &str) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.may_know(id))
    }

    /// Returns true if a key of this id was published.
    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.has_key(id))
    }

    /// Returns true if the token names this issuer, which is not verified.
    #[must_use]
    pub fn is_named_in(&self, token: &str) -> bool {
        named_issuer(token).is_some_and(|iss| self.issuer.is_named(&iss))
    }

    /// Returns true if verified claims name this issuer.
    pub(crate) fn is_named_by(&self, claims: &Claims) -> bool {
        claims.issuer().is_some_and(|iss| self.issuer.is_named(iss))
    }

    pub(crate) fn remembered(&self, fingerprint: &[u8; 32]) -> Option<Arc<Claims>> {
        self.ring.as_ref()?.remembered(fingerprint)
    }

    /// Verifies signature, issuer and audience of a token, not its times.
    ///
    /// # Errors
    /// Those of [`KeyRing::verify_signature`]; [`TokenError::OtherAudience`].
    pub fn verify_signature(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        let Some(ring) = &self.ring else {
            return Err(TokenHeader::read(token)?.unknown_key());
        };
        ring.verify_with(token, |claims| {
            self.issuer.check(claims)?;
            claims.mark_third_party();
            Ok(())
        })
    }
}
