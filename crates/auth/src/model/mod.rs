//! The rows of an account, the JSON that clients see, and the data of a request.

pub(crate) mod contact;
mod factor;
mod identity;
pub mod ids;
mod json;
pub(crate) mod metadata;
mod passkey;
mod request_info;
mod user;

pub use factor::Factor;
pub(crate) use factor::factor_columns;
pub use identity::Identity;
pub(crate) use identity::identity_columns;
pub use json::{JsonObject, Timestamp};
pub(crate) use passkey::Passkey;
pub(crate) use passkey::passkey_columns;
pub use request_info::RequestInfo;
pub use user::User;
pub(crate) use user::user_columns;
