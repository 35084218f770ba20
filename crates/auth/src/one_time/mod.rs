//! One-time codes and links.

pub(crate) mod otp;
pub(crate) mod token;
