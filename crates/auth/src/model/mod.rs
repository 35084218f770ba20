//! The rows of an account, and the JSON that clients see.

pub(crate) mod contact;
mod factor;
mod identity;
pub mod ids;
mod json;
pub(crate) mod metadata;
mod passkey;
mod user;

pub use factor::Factor;
pub(crate) use factor::factor_columns;
pub use identity::Identity;
pub(crate) use identity::identity_columns;
pub use json::{JsonObject, Timestamp};
pub(crate) use passkey::Passkey;
pub(crate) use passkey::passkey_columns;
pub use user::User;
pub(crate) use user::user_columns;
