//! Accounts: sign-up, confirmation, change, recovery.

pub(crate) mod reauthenticate;
pub(crate) mod recover;
pub(crate) mod redeem;
pub(crate) mod resend;
pub(crate) mod signup;
pub(crate) mod unconfirmed_email;
pub(crate) mod user;
pub(crate) mod verify;
