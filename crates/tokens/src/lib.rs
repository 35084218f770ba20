//! Who calls, and how that is proved: JWTs, signing keys, JWKS, API keys and the [`Caller`].
//!
//! Contract: the access token, the key forms and the checks of a bearer token are those of the
//! authentication service's wire contract; the development keys are the published ones.
//!
//! Promises: a token is accepted only with a key made for exactly its algorithm (`none` never); its times
//! are compared with the caller's [`Clock`], also for tokens that were verified before; secrets are compared
//! in constant time and never printed.
//!
//! [`bucket`] holds the token bucket of every limit of the program, which reads the [`Clock`] itself.
//!
//! Must not know: HTTP, the database, any service.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api_key;
mod caller;
mod claims;
mod clock;
mod key;
mod origin;
mod request;
mod ring;
mod secret;
mod token;
mod verified;

pub mod bucket;
pub mod development;
pub mod hash;
pub mod random;

pub use api_key::{ApiKeyError, ApiKeys, ApiRole, looks_opaque};
pub use caller::Caller;
pub use claims::Claims;
pub use clock::Clock;
pub use key::{Algorithm, KeyError, SigningKey};
pub use origin::AllowedOrigins;
pub use request::{ClientAddress, RequestId, bearer};
pub use ring::{KeyRing, RingFigures};
pub use secret::Secret;
pub use token::{MAX_TOKEN_BYTES, TokenError, TokenHeader};
