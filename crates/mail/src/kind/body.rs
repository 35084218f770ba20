//! The built-in bodies: one layout, filled with the words of each kind.
//!
//! They need no images and no scripts, follow the reader's light or dark setting, and are read well
//! by a screen reader and as plain text. Each has at most one link, the one to follow, so that a
//! reader, and a test suite that looks for the link of a mail, cannot take the wrong one; the code
//! stands before it for the same reason. The link of a notification leads to the page where a change
//! can be undone.

use super::MailKind;

const LAYOUT: &str = include_str!("layout.html");

/// The note below the card, where a notification, which has its note inside, has none.
const FOOTNOTE: &str = "<p style=\"margin:0\">[[NOTE]]</p>\n<p style=\"margin:8px 0 0\">";

const CODE: &str = r#"<p class="soft" style="margin:24px 0 8px;font-size:14px;line-height:20px;color:#4c505a">[[ASK]]</p>
<p class="code strong" style="margin:0;padding:16px 12px;background:#f8f8f6;border:1px solid #e4e4df;border-radius:12px;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:30px;line-height:36px;font-weight:600;letter-spacing:0.24em;text-align:center;color:#1b1d22">{{ .Token }}</p>"#;

const BUTTON: &str = r#"<table role="presentation" cellpadding="0" cellspacing="0" border="0" style="margin:24px 0 0"><tr><td>
<a class="button" href="{{ .ConfirmationURL }}" style="display:inline-block;padding:13px 22px;border-radius:10px;background:#3547d6;color:#ffffff;font-size:16px;line-height:22px;font-weight:600;text-decoration:none">[[LABEL]]</a>
</td></tr></table>"#;

/// The end of a notification: what to do about a change that was not the reader's.
const NOT_YOU: &str = r#"<p class="soft" style="margin:16px 0 0;font-size:16px;line-height:25px;color:#4c505a">[[NOTE]]</p>
{{ with .SecurityURL }}<table role="presentation" cellpadding="0" cellspacing="0" border="0" style="margin:24px 0 0"><tr><td>
<a class="button" href="{{ . }}" style="display:inline-block;padding:13px 22px;border-radius:10px;background:#3547d6;color:#ffffff;font-size:16px;line-height:22px;font-weight:600;text-decoration:none">[[LABEL]]</a>
</td></tr></table>{{ end }}"#;

/// The words of a mail.
struct Words {
    heading: &'static str,
    text: &'static str,
    /// The sentence above the code. `None` without a code.
    ask: Option<&'static str>,
    /// The button's label. `None` without a link. That of a notification is left out where the server
    /// has no page for it.
    label: Option<&'static str>,
    note: &'static str,
}

const ASK: &str = "Enter the code:";
const OR_ASK: &str = "Use the button, or enter the code:";
const NOT_ASKED: &str = "If you did not ask for this, you can ignore this email. Nothing will change.";
const CHECK: &str =
    "If this was not you, check your sign-in methods now, and sign out the devices that you do not know.";
const CHECK_LABEL: &str = "Check your account";

/// The second factor, by the name that people know.
const FACTOR: &str = "{{ if eq .FactorType \"totp\" }}an authenticator app\
    {{ else if eq .FactorType \"phone\" }}codes by text message\
    {{ else if eq .FactorType \"webauthn\" }}a security key{{ else }}{{ .FactorType }}{{ end }}";

/// The identity provider, as it writes its own name.
const PROVIDER: &str = "{{ if eq .Provider \"google\" }}Google{{ else if eq .Provider \"apple\" }}Apple\
    {{ else if eq .Provider \"azure\" }}Microsoft{{ else if eq .Provider \"facebook\" }}Facebook\
    {{ else if eq .Provider \"github\" }}GitHub{{ else if eq .Provider \"gitlab\" }}GitLab\
    {{ else if eq .Provider \"discord\" }}Discord{{ else if eq .Provider \"linkedin_oidc\" }}LinkedIn\
    {{ else if eq .Provider \"twitter\" }}X{{ else if eq .Provider \"slack_oidc\" }}Slack\
    {{ else }}{{ .Provider }}{{ end }}";

fn words(kind: MailKind) -> Words {
    match kind {
        MailKind::Confirmation => Words {
            heading: "Confirm your email address",
            text: "Thank you for signing up. Confirm that {{ .Email }} is your address, and your account is ready.",
            ask: Some(OR_ASK),
            label: Some("Confirm email address"),
            note: "If you did not sign up, you can ignore this email. No account will be opened with your address.",
        },
        MailKind::Invite => Words {
            heading: "You've been invited",
            text: "You have been invited to open an account on {{ .SiteURL }} with the address {{ .Email }}.",
            ask: Some(OR_ASK),
            label: Some("Accept the invitation"),
            note: "If you do not know what this is about, you can ignore this email.",
        },
        MailKind::MagicLink => Words {
            heading: "Your sign-in link",
            text: "Here is your way in as {{ .Email }}. It works once and only for a short time.",
            ask: Some(OR_ASK),
            label: Some("Sign in"),
            note: "If you did not ask for this, you can ignore this email. Do not pass the code on to anybody.",
        },
        MailKind::Recovery => Words {
            heading: "Reset your password",
            text: "We received a request to reset the password of {{ .Email }}. Choose a new one with the button below.",
            ask: Some(OR_ASK),
            label: Some("Choose a new password"),
            note: "If you did not ask for this, you can ignore this email. Your password stays as it is.",
        },
        MailKind::EmailChange => Words {
            heading: "Confirm your new email address",
            text: "Confirm that the address of your account changes from {{ .Email }} to {{ .NewEmail }}.",
            ask: Some(OR_ASK),
            label: Some("Confirm the change"),
            note: NOT_ASKED,
        },
        MailKind::Reauthentication => Words {
            heading: "Confirm that it is you",
            text: "You are about to change something important in your account.",
            ask: Some(ASK),
            label: None,
            note: "If you did not ask for this code, somebody may know your password: sign in and change it. Do not pass the \
                   code on to anybody.",
        },
        MailKind::PasswordChanged => Words {
            heading: "Your password was changed",
            text: "The password of {{ .Email }} was changed just now. All other devices were signed out.",
            ask: None,
            label: Some("Reset your password"),
            note: "If this was not you, reset your password now.",
        },
        MailKind::EmailChanged => Words {
            heading: "Your email address was changed",
            text: "The address of your account was changed from {{ .OldEmail }} to {{ .Email }}.",
            ask: None,
            label: Some(CHECK_LABEL),
            note: "If this was not you, and you are still signed in on one of your devices, change the address back \
                   there now. Otherwise contact support.",
        },
        MailKind::PhoneChanged => Words {
            heading: "Your phone number was changed",
            text: "The phone number of {{ .Email }} was changed{{ if .OldPhone }} from {{ .OldPhone }}{{ end }}\
                   {{ if .Phone }} to {{ .Phone }}{{ end }}.",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::IdentityLinked => Words {
            heading: "A new sign-in method was linked to your account",
            text: "You can now sign in to {{ .Email }} with [[PROVIDER]].",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::IdentityUnlinked => Words {
            heading: "A sign-in method was removed from your account",
            text: "You can no longer sign in to {{ .Email }} with [[PROVIDER]].",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::MfaFactorEnrolled => Words {
            heading: "A new verification method was added to your account",
            text: "Signing in to {{ .Email }} now needs a second step: [[FACTOR]].",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::MfaFactorUnenrolled => Words {
            heading: "A verification method was removed from your account",
            text: "A second step was removed from {{ .Email }}: [[FACTOR]].",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::PasskeyAdded => Words {
            heading: "A passkey was added to your account",
            text: "You can now sign in to {{ .Email }} with a passkey{{ with .PasskeyName }}: {{ . }}{{ end }}.",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::PasskeyRemoved => Words {
            heading: "A passkey was removed from your account",
            text: "You can no longer sign in to {{ .Email }} with the passkey{{ with .PasskeyName }} {{ . }}{{ end }}.",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::RecoveryCodeUsed => Words {
            heading: "A recovery code was used to sign in to your account",
            text: "A recovery code replaced the second step of a sign-in to {{ .Email }}.\
                   {{ with .RecoveryCodesLeft }} Codes left: {{ . }}.{{ end }}",
            ask: None,
            label: Some(CHECK_LABEL),
            note: "If this was not you, change your password now, make new recovery codes, and sign out the devices that \
                   you do not know.",
        },
    }
}

pub(super) fn body(kind: MailKind) -> String {
    let words = words(kind);
    let mut action = String::new();
    if let Some(ask) = words.ask {
        action.push_str(&CODE.replace("[[ASK]]", ask));
        action.push('\n');
    }
    let label = words.label.unwrap_or_default();
    let mut layout = LAYOUT.to_owned();
    if kind.is_notification() {
        action.push_str(&NOT_YOU.replace("[[LABEL]]", label).replace("[[NOTE]]", words.note));
        layout = layout.replace(FOOTNOTE, "<p style=\"margin:0\">");
    } else if !label.is_empty() {
        action.push_str(&BUTTON.replace("[[LABEL]]", label));
    }
    let text = words.text.replace("[[FACTOR]]", FACTOR).replace("[[PROVIDER]]", PROVIDER);
    layout
        .replace("[[HEADING]]", words.heading)
        .replace("[[PREVIEW]]", &text)
        .replace("[[TEXT]]", &text)
        .replace("[[ACTION]]", action.trim_end())
        .replace("[[NOTE]]", words.note)
}
