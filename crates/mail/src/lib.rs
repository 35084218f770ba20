//! Email: addresses, messages, templates and delivery over SMTP; and text messages
//! ([`text_message`]).
//!
//! A service renders an email with [`Templates`], makes an [`Email`] of it and hands it to a
//! [`Transport`]. Nothing that enters a header can hold a line break ([`HeaderLine`], [`Address`]),
//! so input cannot inject a header; nothing is written into a body without the escaping of its
//! context ([`Template`]).
//!
//! `template` parses and fills texts, `built_in` has the emails of the program, and `text_message`
//! the gateways.
//!
//! This crate must not know accounts, limits, or when an email is due. It keeps no queue; a caller
//! that may not lose an email stores it first and deletes it when [`Transport::send`] has
//! succeeded.

mod address;
mod built_in;
mod character_references;
mod email;
mod plain_text;
mod smtp;
mod template;
mod templates;
pub mod text_message;
mod transport;
mod variables;

pub use address::{Address, AddressError};
pub use built_in::MailKind;
pub use email::{Email, HeaderError, HeaderLine, Sender};
pub use plain_text::plain_text;
pub use smtp::{SmtpSettings, SmtpTls, SmtpTransport};
pub use template::{Template, TemplateError};
pub use templates::{RenderedMail, Templates};
pub use transport::{Discard, SendError, Transport};
pub use variables::Variables;

/// Returns an email as the lines that travel over the wire, with its plain-text part, date and
/// identifier.
///
/// # Errors
///
/// [`SendError::Permanent`] when the parts cannot be joined to a message.
pub fn compose(email: &Email) -> Result<Vec<u8>, SendError> {
    Ok(smtp::message(email)?.bytes)
}
