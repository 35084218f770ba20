//! Who calls, and how that is proved: JWTs, signing keys, JWKS, API keys and the [`Caller`].
//!
//! Contract: the access token, the key forms and the checks of a bearer token are those of the
//! authentication service's wire contract; the development keys are the published ones.
//!
//! Promises: a token is accepted only with a key made for exactly its algorithm (`none` never); its times
//! are compared with the caller's [`portico_base::Clock`], also for tokens that were verified before; secrets are compared
//! in constant time and never printed.
//!
//! Must not know: HTTP, the database, any service.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api_key;
mod bearer;
mod caller;
mod claims;
mod key;
mod ring;
mod token;
mod verified;

pub mod development;

pub use api_key::{ApiKeyError, ApiKeys, ApiRole, looks_opaque};
pub use bearer::bearer;
pub use caller::Caller;
pub use claims::Claims;
pub use key::{Algorithm, KeyError, SigningKey};
pub use ring::{KeyRing, RingFigures};
pub use token::{MAX_TOKEN_BYTES, TokenError, TokenHeader};
