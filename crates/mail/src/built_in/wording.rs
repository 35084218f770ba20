//! The wording of the built-in emails, one constant for each. Each text is a template.
//!
//! `[[FACTOR]]` and `[[PROVIDER]]` become the name of the second factor and of the identity
//! provider that the email is about.

use super::MailKind;

/// The wording of an email.
pub(super) struct Wording {
    /// The built-in subject.
    pub subject: &'static str,
    pub heading: &'static str,
    pub text: &'static str,
    /// The sentence above the code. `None` without a code.
    pub ask: Option<&'static str>,
    /// The button's label. `None` without a link. A button that leads to a page of the application
    /// is left out where the server does not know the page.
    pub label: Option<&'static str>,
    pub note: &'static str,
}

const ASK: &str = "Enter this code:";
const OR_ASK: &str = "Use the button below, or enter this code:";
const CHECK: &str = "If this wasn’t you, check your sign-in methods now, and sign out the devices that you don’t know.";
const CHECK_LABEL: &str = "Check your account";

const CONFIRMATION: Wording = Wording {
    subject: "Confirm your email address",
    heading: "Confirm your email address",
    text: "Thanks for signing up for {{ .BrandName }}. Confirm that {{ .Email }} is your address to finish.",
    ask: Some(OR_ASK),
    label: Some("Confirm email address"),
    note: "If you didn’t sign up, you can ignore this email. Never share this code.",
};

const INVITE: Wording = Wording {
    subject: "You’ve been invited to {{ .BrandName }}",
    heading: "You’ve been invited to {{ .BrandName }}",
    text: "Accept the invitation to create an account with the address {{ .Email }}.",
    ask: Some(OR_ASK),
    label: Some("Accept invitation"),
    note: "If you weren’t expecting this invitation, you can ignore this email. Never share this code.",
};

const MAGIC_LINK: Wording = Wording {
    subject: "Your sign-in link",
    heading: "Sign in to {{ .BrandName }}",
    text: "Use this link to sign in as {{ .Email }}. It works once and expires soon.",
    ask: Some(OR_ASK),
    label: Some("Sign in"),
    note: "If you didn’t request this, you can ignore this email. Never share this code.",
};

const RECOVERY: Wording = Wording {
    subject: "Reset your password",
    heading: "Reset your password",
    text: "Use this link to set a new password for {{ .Email }}.",
    ask: Some(OR_ASK),
    label: Some("Set a new password"),
    note: "If you didn’t request this, you can ignore this email: your password stays the same. Never share this \
           code.",
};

const EMAIL_CHANGE: Wording = Wording {
    subject: "{{ if and .Email (eq .SendingTo .Email) }}Approve changing your email address\
              {{ else }}Confirm your new email address{{ end }}",
    heading: "{{ if and .Email (eq .SendingTo .Email) }}Approve changing your email address\
              {{ else }}Confirm your new email address{{ end }}",
    text: "{{ if .Email }}Your email address changes from {{ .Email }} to {{ .NewEmail }}.\
           {{ else }}Your email address becomes {{ .NewEmail }}.{{ end }}",
    ask: Some(OR_ASK),
    label: Some("{{ if and .Email (eq .SendingTo .Email) }}Approve the change{{ else }}Confirm email address{{ end }}"),
    note: "If you didn’t request this, you can ignore this email: nothing changes. Never share this code.",
};

const REAUTHENTICATION: Wording = Wording {
    subject: "{{ .Token }} is your verification code",
    heading: "Confirm that it’s you",
    text: "You are about to make an important change to your account.",
    ask: Some(ASK),
    label: None,
    note: "If you didn’t request this code, someone may know your password: sign in and change it. Never share \
           this code.",
};

const ACCOUNT_EXISTS: Wording = Wording {
    subject: "You already have an account",
    heading: "You already have an account",
    text: "You, or someone else, just signed up for {{ .BrandName }} with the address {{ .Email }}, which already \
           has an account. Sign in instead. If you don’t know your password, reset it.",
    ask: None,
    label: Some("Go to sign in"),
    note: "If this wasn’t you, you can ignore this email: nothing has changed.",
};

const PASSWORD_CHANGED: Wording = Wording {
    subject: "Your password was changed",
    heading: "Your password was changed",
    text: "The password of {{ .Email }} was just changed. All other devices were signed out.",
    ask: None,
    label: Some("Reset your password"),
    note: "If this wasn’t you, reset your password now.",
};

const EMAIL_CHANGED: Wording = Wording {
    subject: "Your email address was changed",
    heading: "Your email address was changed",
    text: "The email address of your account was changed from {{ .OldEmail }} to {{ .Email }}.",
    ask: None,
    label: Some(CHECK_LABEL),
    note: "If this wasn’t you, and you are still signed in on one of your devices, change the address back \
           there now. Otherwise contact support.",
};

const PHONE_CHANGED: Wording = Wording {
    subject: "Your phone number was changed",
    heading: "Your phone number was changed",
    text: "The phone number of {{ .Email }} was changed{{ if .OldPhone }} from +{{ .OldPhone }}{{ end }}\
           {{ if .Phone }} to +{{ .Phone }}{{ end }}.",
    ask: None,
    label: Some(CHECK_LABEL),
    note: CHECK,
};

const IDENTITY_LINKED: Wording = Wording {
    subject: "A new sign-in method was linked to your account",
    heading: "A new sign-in method was linked to your account",
    text: "You can now sign in to {{ .Email }} with [[PROVIDER]].",
    ask: None,
    label: Some(CHECK_LABEL),
    note: CHECK,
};

const IDENTITY_UNLINKED: Wording = Wording {
    subject: "A sign-in method was removed from your account",
    heading: "A sign-in method was removed from your account",
    text: "You can no longer sign in to {{ .Email }} with [[PROVIDER]].",
    ask: None,
    label: Some(CHECK_LABEL),
    note: CHECK,
};

const MFA_FACTOR_ENROLLED: Wording = Wording {
    subject: "A new verification method was added to your account",
    heading: "A new verification method was added to your account",
    text: "Signing in to {{ .Email }} now needs a second step: [[FACTOR]].",
    ask: None,
    label: Some(CHECK_LABEL),
    note: CHECK,
};

const MFA_FACTOR_UNENROLLED: Wording = Wording {
    subject: "A verification method was removed from your account",
    heading: "A verification method was removed from your account",
    text: "A second step was removed from {{ .Email }}: [[FACTOR]].",
    ask: None,
    label: Some(CHECK_LABEL),
    note: CHECK,
};

const PASSKEY_ADDED: Wording = Wording {
    subject: "A passkey was added to your account",
    heading: "A passkey was added to your account",
    text: "You can now sign in to {{ .Email }} with {{ with .PasskeyName }}the passkey “{{ . }}”{{ else }}a passkey{{ end }}.",
    ask: None,
    label: Some(CHECK_LABEL),
    note: CHECK,
};

const PASSKEY_REMOVED: Wording = Wording {
    subject: "A passkey was removed from your account",
    heading: "A passkey was removed from your account",
    text: "You can no longer sign in to {{ .Email }} with {{ with .PasskeyName }}the passkey “{{ . }}”{{ else }}one of your passkeys{{ end }}.",
    ask: None,
    label: Some(CHECK_LABEL),
    note: CHECK,
};

const RECOVERY_CODE_USED: Wording = Wording {
    subject: "A recovery code was used to sign in to your account",
    heading: "A recovery code was used to sign in to your account",
    text: "A recovery code replaced the second step of a sign-in to {{ .Email }}.\
           {{ with .RecoveryCodesLeft }} Codes left: {{ . }}.{{ end }}",
    ask: None,
    label: Some(CHECK_LABEL),
    note: "If this wasn’t you, change your password now, create new recovery codes, and sign out the devices \
           that you don’t know.",
};

const RECOVERY_CODES_CREATED: Wording = Wording {
    subject: "New recovery codes were created for your account",
    heading: "New recovery codes were created for your account",
    text: "Each of the new codes can replace the second step of a sign-in to {{ .Email }} once. Earlier codes no \
           longer work.",
    ask: None,
    label: Some(CHECK_LABEL),
    note: "If this wasn’t you, change your password now, create new recovery codes, and sign out the devices \
           that you don’t know.",
};

/// Returns the wording of a kind of email.
pub(super) const fn of(kind: MailKind) -> &'static Wording {
    match kind {
        MailKind::Confirmation => &CONFIRMATION,
        MailKind::Invite => &INVITE,
        MailKind::MagicLink => &MAGIC_LINK,
        MailKind::Recovery => &RECOVERY,
        MailKind::EmailChange => &EMAIL_CHANGE,
        MailKind::Reauthentication => &REAUTHENTICATION,
        MailKind::AccountExists => &ACCOUNT_EXISTS,
        MailKind::PasswordChanged => &PASSWORD_CHANGED,
        MailKind::EmailChanged => &EMAIL_CHANGED,
        MailKind::PhoneChanged => &PHONE_CHANGED,
        MailKind::IdentityLinked => &IDENTITY_LINKED,
        MailKind::IdentityUnlinked => &IDENTITY_UNLINKED,
        MailKind::MfaFactorEnrolled => &MFA_FACTOR_ENROLLED,
        MailKind::MfaFactorUnenrolled => &MFA_FACTOR_UNENROLLED,
        MailKind::PasskeyAdded => &PASSKEY_ADDED,
        MailKind::PasskeyRemoved => &PASSKEY_REMOVED,
        MailKind::RecoveryCodeUsed => &RECOVERY_CODE_USED,
        MailKind::RecoveryCodesCreated => &RECOVERY_CODES_CREATED,
    }
}
