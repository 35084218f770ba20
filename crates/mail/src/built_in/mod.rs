//! The built-in emails: their names, and their texts ([`wording`]) in one layout ([`body`]).

mod body;
mod wording;

/// A kind of email. `docs/accounts.md` names the settings that replace its subject and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MailKind {
    /// Confirms the address of a new account.
    Confirmation,
    /// Invites a person to create an account.
    Invite,
    /// Signs in without a password.
    MagicLink,
    /// Begins setting a new password.
    Recovery,
    /// Confirms a change of the address.
    EmailChange,
    /// Carries a code that proves the person's presence.
    Reauthentication,
    /// Notifies the owner of an account of a sign-up with its address.
    AccountExists,
    /// Tells that the password was changed.
    PasswordChanged,
    /// Tells the old address that the address was changed.
    EmailChanged,
    /// Tells that the phone number was changed.
    PhoneChanged,
    /// Tells that a sign-in method was linked.
    IdentityLinked,
    /// Tells that a sign-in method was removed.
    IdentityUnlinked,
    /// Tells that a second factor was added.
    MfaFactorEnrolled,
    /// Tells that a second factor was removed.
    MfaFactorUnenrolled,
    /// Tells that a passkey was added.
    PasskeyAdded,
    /// Tells that a passkey was removed.
    PasskeyRemoved,
    /// Tells that a recovery code was used to sign in.
    RecoveryCodeUsed,
    /// Tells that new recovery codes were made.
    RecoveryCodesCreated,
}

impl MailKind {
    /// All kinds.
    pub const ALL: [Self; 18] = [
        Self::Confirmation,
        Self::Invite,
        Self::MagicLink,
        Self::Recovery,
        Self::EmailChange,
        Self::Reauthentication,
        Self::AccountExists,
        Self::PasswordChanged,
        Self::EmailChanged,
        Self::PhoneChanged,
        Self::IdentityLinked,
        Self::IdentityUnlinked,
        Self::MfaFactorEnrolled,
        Self::MfaFactorUnenrolled,
        Self::PasskeyAdded,
        Self::PasskeyRemoved,
        Self::RecoveryCodeUsed,
        Self::RecoveryCodesCreated,
    ];

    /// Returns the template key, such as `magic_link` or `password_changed_notification`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Confirmation => "confirmation",
            Self::Invite => "invite",
            Self::MagicLink => "magic_link",
            Self::Recovery => "recovery",
            Self::EmailChange => "email_change",
            Self::Reauthentication => "reauthentication",
            Self::AccountExists => "account_exists",
            Self::PasswordChanged => "password_changed_notification",
            Self::EmailChanged => "email_changed_notification",
            Self::PhoneChanged => "phone_changed_notification",
            Self::IdentityLinked => "identity_linked_notification",
            Self::IdentityUnlinked => "identity_unlinked_notification",
            Self::MfaFactorEnrolled => "mfa_factor_enrolled_notification",
            Self::MfaFactorUnenrolled => "mfa_factor_unenrolled_notification",
            Self::PasskeyAdded => "passkey_added_notification",
            Self::PasskeyRemoved => "passkey_removed_notification",
            Self::RecoveryCodeUsed => "recovery_code_used_notification",
            Self::RecoveryCodesCreated => "recovery_codes_created_notification",
        }
    }

    /// Returns the kind with this template key, or with this name in the project's configuration
    /// (`password_changed`).
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.key() == key || kind.config_name() == key)
    }

    /// Returns the name in `[auth.email.template.<name>]` or `[auth.email.notification.<name>]`.
    pub fn config_name(self) -> &'static str {
        self.key().trim_end_matches("_notification")
    }

    /// Returns true if it only reports an event: sent if switched on, and never a reason to fail a
    /// request.
    pub fn is_notification(self) -> bool {
        self.key().ends_with("_notification")
    }

    /// Returns the value of `$messageType` in configured headers.
    pub fn message_type(self) -> &'static str {
        match self {
            Self::Reauthentication => "reauthenticate",
            other => other.key(),
        }
    }

    /// Returns the value of a configured header in emails of this kind: `$messageType` is filled
    /// in.
    pub fn in_header(self, value: &str) -> String {
        value.replace("$messageType", self.message_type())
    }

    /// Returns the `type` of the link in the email; `None` for emails without a link.
    pub fn link_type(self) -> Option<&'static str> {
        match self {
            Self::Confirmation => Some("signup"),
            Self::Invite => Some("invite"),
            Self::MagicLink => Some("magiclink"),
            Self::Recovery => Some("recovery"),
            Self::EmailChange => Some("email_change"),
            _ => None,
        }
    }

    /// Returns the built-in subject, a template.
    pub fn default_subject(self) -> &'static str {
        wording::of(self).subject
    }
}
