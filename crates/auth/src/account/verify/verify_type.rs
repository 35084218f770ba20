//! The types of verification that a request can name.

use crate::model::User;
use crate::model::contact::ContactKind;
use crate::one_time::token::TokenKind;

/// The type of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerifyType {
    SignUp,
    Invite,
    MagicLink,
    Recovery,
    EmailChange,
    /// Any pending token of an address: a confirmation, or a sign-in or recovery link.
    Email,
    Sms,
    PhoneChange,
}

impl VerifyType {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "signup" => Self::SignUp,
            "invite" => Self::Invite,
            "magiclink" => Self::MagicLink,
            "recovery" => Self::Recovery,
            "email_change" => Self::EmailChange,
            "email" => Self::Email,
            "sms" => Self::Sms,
            "phone_change" => Self::PhoneChange,
            _ => return None,
        })
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::SignUp => "signup",
            Self::Invite => "invite",
            Self::MagicLink => "magiclink",
            Self::Recovery => "recovery",
            Self::EmailChange => "email_change",
            Self::Email => "email",
            Self::Sms => "sms",
            Self::PhoneChange => "phone_change",
        }
    }

    /// Returns the kind of contact that is verified.
    pub(super) fn contact(self) -> ContactKind {
        match self {
            Self::Sms | Self::PhoneChange => ContactKind::Phone,
            _ => ContactKind::Email,
        }
    }

    /// Returns the kinds of token that this type accepts, in the order in which they are tried.
    pub(super) fn kinds(self) -> &'static [TokenKind] {
        match self {
            Self::SignUp => &[TokenKind::Confirmation, TokenKind::EmailChangeNew],
            Self::Invite | Self::Sms => &[TokenKind::Confirmation],
            Self::MagicLink | Self::Recovery => &[TokenKind::Recovery],
            Self::EmailChange => &[TokenKind::EmailChangeNew, TokenKind::EmailChangeCurrent],
            Self::Email => &[TokenKind::Confirmation, TokenKind::Recovery, TokenKind::EmailChangeNew],
            Self::PhoneChange => &[TokenKind::PhoneChange],
        }
    }

    /// Returns true if a token of `kind` may be used under this type for `user`. A pending address
    /// is confirmed as a sign-up where the account has none: it came from a provider.
    pub(super) fn admits(self, kind: TokenKind, user: &User) -> bool {
        self == Self::EmailChange || kind != TokenKind::EmailChangeNew || user.email.is_empty()
    }
}
