//! Stand-ins for the services that an application meets in production: a mail server whose emails
//! are read on a page ([`Mailbox`]), and an OpenID provider in Google's place
//! ([`IdentityProvider`]).
//!
//! Both speak the real protocols, so that the code that is tested with them is the code that runs
//! in production. None can be made without a [`Development`], which the production server never
//! makes.
//!
//! This crate must not know: accounts, sessions, the database. It never sends anything out.

mod admission;
mod development;
mod identity;
mod mailbox;

pub use development::Development;
pub use identity::{
    GOOGLE_CLIENT_ID, GOOGLE_CLIENT_SECRET, IdentityProvider, IdentityProviderError, IdentityProviderSettings,
};
pub use mailbox::{CapturedAddress, CapturedMail, CapturedText, Mailbox, MailboxEvent, MailboxLimits, SmtpListener};
