//! The contacts of an account: an email address, a phone number, or both.

use std::fmt;

use crate::error::AuthError;
use crate::model::User;
use crate::model::ids::{EmailAddress, PhoneNumber};

/// The kinds of contact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContactKind {
    /// An email address.
    Email,
    /// A phone number.
    Phone,
}

impl ContactKind {
    /// Returns the provider of the identity that stands for a contact of this kind.
    pub const fn provider(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Phone => "phone",
        }
    }

    /// Returns true if the account has confirmed its contact of this kind.
    pub fn is_confirmed(self, user: &User) -> bool {
        match self {
            Self::Email => user.is_email_confirmed(),
            Self::Phone => user.is_phone_confirmed(),
        }
    }

    /// Returns the account's contact of this kind; empty when there is none.
    pub fn stored(self, user: &User) -> &str {
        match self {
            Self::Email => &user.email,
            Self::Phone => &user.phone,
        }
    }

    /// Returns the new contact that the account has not confirmed yet; empty when no change is
    /// pending.
    pub fn pending_change(self, user: &User) -> &str {
        match self {
            Self::Email => &user.email_change,
            Self::Phone => &user.phone_change,
        }
    }
}

/// An email address or a phone number, in the stored form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Contact {
    /// An email address.
    Email(EmailAddress),
    /// A phone number.
    Phone(PhoneNumber),
}

impl Contact {
    /// Checks and normalises a contact.
    ///
    /// # Errors
    /// 400 `validation_failed` for a malformed one.
    pub fn parse(kind: ContactKind, text: &str) -> Result<Self, AuthError> {
        Ok(match kind {
            ContactKind::Email => Self::Email(EmailAddress::parse(text)?),
            ContactKind::Phone => Self::Phone(PhoneNumber::parse(text)?),
        })
    }

    /// Returns the kind.
    pub const fn kind(&self) -> ContactKind {
        match self {
            Self::Email(_) => ContactKind::Email,
            Self::Phone(_) => ContactKind::Phone,
        }
    }

    /// Returns the stored form.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Email(email) => email.as_str(),
            Self::Phone(phone) => phone.as_str(),
        }
    }

    /// Returns the email address, if the contact is one.
    pub fn email(&self) -> Option<&EmailAddress> {
        match self {
            Self::Email(email) => Some(email),
            Self::Phone(_) => None,
        }
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
