//! Accounts: sign-up, confirmation, change, recovery.

pub(crate) mod phone;
pub(crate) mod reauthenticate;
pub(crate) mod recover;
pub(crate) mod redeem;
pub(crate) mod resend;
pub(crate) mod sign_up;
pub(crate) mod unconfirmed_email;
pub(crate) mod update;
pub(crate) mod verify;
