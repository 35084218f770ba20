//! One-time codes and links: their tokens, the messages that carry them, and sign-in by them.

pub(crate) mod message;
pub(crate) mod pending_phone_change;
pub(crate) mod sign_in;
pub(crate) mod text_code;
pub(crate) mod text_message;
pub(crate) mod token;
