//! One-time codes and links.

pub(crate) mod mail;
pub(crate) mod pending_phone_change;
pub(crate) mod sign_in;
pub(crate) mod text_code;
pub(crate) mod token;
