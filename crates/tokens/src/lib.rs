//! JWTs, signing keys, JWKS, API keys, and the [`Caller`] that they prove.
//!
//! The access token, the forms of keys and the checks of a bearer token are those of Supabase's
//! authentication service; the development keys are the published ones.
//!
//! Promises: a token is accepted only with a key for exactly its algorithm (`none` never); its
//! times are compared with the [`portico_base::Clock`] of the program, also if its signature was
//! verified before; secrets are compared in constant time and never printed.
//!
//! Must not know: HTTP, the database, any service.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api_key;
mod bearer;
mod caller;
mod claims;
mod current;
mod generate;
mod key;
mod rejected_role;
mod ring;
mod third_party;
mod token;
mod verified;

pub mod development;

pub use api_key::{ApiKeyError, ApiKeys, ApiRole, looks_opaque};
pub use bearer::bearer;
pub use caller::Caller;
pub use claims::Claims;
pub use current::{CurrentKeys, KEY_REFRESH_WAIT, KeyRefresh, KeySet, TokenIssuer};
pub use generate::generate_jwk;
pub use key::{Algorithm, KeyError, SigningKey};
pub use rejected_role::{LOGIN_ROLE, RejectedRole, check_request_role};
pub use ring::{KeptKey, KeyRing, RingFigures, SECRET_ID};
pub use third_party::{ThirdPartyIssuer, ThirdPartyKeys};
pub use token::{MAX_TOKEN_BYTES, TokenError, TokenHeader};
