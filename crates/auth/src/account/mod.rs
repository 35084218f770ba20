//! Accounts: sign-up, and the confirmation, change and recovery of their contacts and passwords.

pub(crate) mod contact;
mod dependents;
pub(crate) mod password_change;
pub(crate) mod reauthenticate;
pub(crate) mod recover;
pub(crate) mod registration;
pub(crate) mod resend;
pub(crate) mod sign_up;
pub(crate) mod unconfirmed_email;
pub(crate) mod update;
pub(crate) mod verify;
