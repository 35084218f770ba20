//! The built-in bodies: one layout, filled with the words of each kind.
//!
//! They need no images and no scripts, follow the reader's light or dark setting, and are read well
//! by a screen reader and as plain text. Each has at most one link, the one to follow, so that a
//! reader, and a test suite that looks for the link of a mail, cannot take the wrong one; the code
//! stands before it for the same reason. The link of a notification leads to the page where a
//! change can be undone, and has no token in it; nor has that of a mail about an existing account.

use portico_base::colour::Colour;

use super::MailKind;

const LAYOUT: &str = include_str!("layout.html");

/// The note below the card, where a notification, which has its note inside, has none.
const FOOTNOTE: &str = "<p style=\"margin:0\">[[NOTE]]</p>\n<p style=\"margin:8px 0 0\">";

const CODE: &str = r#"<p class="soft" style="margin:24px 0 8px;font-size:14px;line-height:20px;color:#4a5a5c">[[ASK]]</p>
<p class="code strong" style="margin:0;padding:16px 12px;background:#f9f8f5;border:1px solid #dddbd5;border-radius:10px;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:30px;line-height:36px;font-weight:600;letter-spacing:0.24em;text-align:center;color:#13222b">{{ .Token }}</p>"#;

const BUTTON: &str = r#"<table role="presentation" cellpadding="0" cellspacing="0" border="0" style="margin:24px 0 0"><tr><td>
<a href="{{ [[TARGET]] }}" style="display:inline-block;padding:13px 22px;border-radius:10px;background:[[ACCENT]];color:[[ON_ACCENT]];font-size:16px;line-height:22px;font-weight:600;text-decoration:none">[[LABEL]]</a>
</td></tr></table>"#;

/// The end of a notification: what to do about a change that was not the reader's.
const NOT_YOU: &str =
    r#"<p class="soft" style="margin:16px 0 0;font-size:16px;line-height:25px;color:#4a5a5c">[[NOTE]]</p>"#;

/// The words of a mail.
struct Words {
    heading: &'static str,
    text: &'static str,
    /// The sentence above the code. `None` without a code.
    ask: Option<&'static str>,
    /// The button's label. `None` without a link. A button that leads to a page of the application
    /// is left out where the server does not know the page.
    label: Option<&'static str>,
    note: &'static str,
}

const ASK: &str = "Enter this code:";
const OR_ASK: &str = "Use the button below, or enter this code:";
const CHECK: &str = "If this wasn’t you, check your sign-in methods now, and sign out the devices that you don’t know.";
const CHECK_LABEL: &str = "Check your account";

/// The second factor, by the name that people know.
const FACTOR: &str = "{{ if eq .FactorType \"totp\" }}an authenticator app\
    {{ else if eq .FactorType \"phone\" }}codes by text message\
    {{ else if eq .FactorType \"webauthn\" }}a security key{{ else }}{{ .FactorType }}{{ end }}";

/// The names of the identity providers as they write them, and of the contacts of an account, which
/// are identities as well.
const PROVIDERS: [(&str, &str); 26] = [
    ("apple", "Apple"),
    ("azure", "Microsoft"),
    ("bitbucket", "Bitbucket"),
    ("discord", "Discord"),
    ("email", "an email address"),
    ("facebook", "Facebook"),
    ("figma", "Figma"),
    ("fly", "Fly.io"),
    ("github", "GitHub"),
    ("gitlab", "GitLab"),
    ("google", "Google"),
    ("kakao", "Kakao"),
    ("keycloak", "Keycloak"),
    ("linkedin", "LinkedIn"),
    ("linkedin_oidc", "LinkedIn"),
    ("notion", "Notion"),
    ("phone", "a phone number"),
    ("slack", "Slack"),
    ("slack_oidc", "Slack"),
    ("snapchat", "Snapchat"),
    ("spotify", "Spotify"),
    ("twitch", "Twitch"),
    ("twitter", "X"),
    ("workos", "WorkOS"),
    ("x", "X"),
    ("zoom", "Zoom"),
];

/// The name of another provider: its id, without the prefix of those that an operator adds.
const OTHER_PROVIDER: &str = "{{ if and (gt (len .Provider) 7) (eq (printf \"%.7s\" .Provider) \"custom:\") }}\
    {{ slice .Provider 7 }}{{ else }}{{ .Provider }}{{ end }}";

fn words(kind: MailKind) -> Words {
    match kind {
        MailKind::Confirmation => Words {
            heading: "Confirm your email address",
            text: "Thanks for signing up for {{ .BrandName }}. Confirm that {{ .Email }} is your address to finish.",
            ask: Some(OR_ASK),
            label: Some("Confirm email address"),
            note: "If you didn’t sign up, you can ignore this email. Never share this code.",
        },
        MailKind::Invite => Words {
            heading: "You’ve been invited to {{ .BrandName }}",
            text: "Accept the invitation to create an account with the address {{ .Email }}.",
            ask: Some(OR_ASK),
            label: Some("Accept invitation"),
            note: "If you weren’t expecting this invitation, you can ignore this email. Never share this code.",
        },
        MailKind::MagicLink => Words {
            heading: "Sign in to {{ .BrandName }}",
            text: "Use this link to sign in as {{ .Email }}. It works once and expires soon.",
            ask: Some(OR_ASK),
            label: Some("Sign in"),
            note: "If you didn’t request this, you can ignore this email. Never share this code.",
        },
        MailKind::Recovery => Words {
            heading: "Reset your password",
            text: "Use this link to set a new password for {{ .Email }}.",
            ask: Some(OR_ASK),
            label: Some("Set a new password"),
            note: "If you didn’t request this, you can ignore this email: your password stays the same. Never share this \
                   code.",
        },
        MailKind::EmailChange => Words {
            heading: "{{ if and .Email (eq .SendingTo .Email) }}Approve changing your email address\
                      {{ else }}Confirm your new email address{{ end }}",
            text: "{{ if .Email }}Your email address changes from {{ .Email }} to {{ .NewEmail }}.\
                   {{ else }}Your email address becomes {{ .NewEmail }}.{{ end }}",
            ask: Some(OR_ASK),
            label: Some(
                "{{ if and .Email (eq .SendingTo .Email) }}Approve the change{{ else }}Confirm email address{{ end }}",
            ),
            note: "If you didn’t request this, you can ignore this email: nothing changes. Never share this code.",
        },
        MailKind::Reauthentication => Words {
            heading: "Confirm that it’s you",
            text: "You are about to make an important change to your account.",
            ask: Some(ASK),
            label: None,
            note: "If you didn’t request this code, someone may know your password: sign in and change it. Never share \
                   this code.",
        },
        MailKind::AccountExists => Words {
            heading: "You already have an account",
            text: "You, or someone else, just signed up for {{ .BrandName }} with the address {{ .Email }}, which already \
                   has an account. Sign in instead. If you don’t know your password, reset it.",
            ask: None,
            label: Some("Go to sign in"),
            note: "If this wasn’t you, you can ignore this email: nothing has changed.",
        },
        MailKind::PasswordChanged => Words {
            heading: "Your password was changed",
            text: "The password of {{ .Email }} was just changed. All other devices were signed out.",
            ask: None,
            label: Some("Reset your password"),
            note: "If this wasn’t you, reset your password now.",
        },
        MailKind::EmailChanged => Words {
            heading: "Your email address was changed",
            text: "The email address of your account was changed from {{ .OldEmail }} to {{ .Email }}.",
            ask: None,
            label: Some(CHECK_LABEL),
            note: "If this wasn’t you, and you are still signed in on one of your devices, change the address back \
                   there now. Otherwise contact support.",
        },
        MailKind::PhoneChanged => Words {
            heading: "Your phone number was changed",
            text: "The phone number of {{ .Email }} was changed{{ if .OldPhone }} from +{{ .OldPhone }}{{ end }}\
                   {{ if .Phone }} to +{{ .Phone }}{{ end }}.",
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
            text: "You can now sign in to {{ .Email }} with {{ with .PasskeyName }}the passkey “{{ . }}”{{ else }}a passkey{{ end }}.",
            ask: None,
            label: Some(CHECK_LABEL),
            note: CHECK,
        },
        MailKind::PasskeyRemoved => Words {
            heading: "A passkey was removed from your account",
            text: "You can no longer sign in to {{ .Email }} with {{ with .PasskeyName }}the passkey “{{ . }}”{{ else }}one of your passkeys{{ end }}.",
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
            note: "If this wasn’t you, change your password now, create new recovery codes, and sign out the devices \
                   that you don’t know.",
        },
        MailKind::RecoveryCodesCreated => Words {
            heading: "New recovery codes were created for your account",
            text: "Each of the new codes can replace the second step of a sign-in to {{ .Email }} once. Earlier codes no \
                   longer work.",
            ask: None,
            label: Some(CHECK_LABEL),
            note: "If this wasn’t you, change your password now, create new recovery codes, and sign out the devices \
                   that you don’t know.",
        },
    }
}

impl MailKind {
    /// Returns the built-in body, a template, with buttons in the accent colour of the product.
    pub fn default_body(self, accent: Colour) -> String {
        let words = words(self);
        let mut action = String::new();
        if let Some(ask) = words.ask {
            action.push_str(&CODE.replace("[[ASK]]", ask));
            action.push('\n');
        }
        let mut layout = LAYOUT.to_owned();
        if self.is_notification() {
            action.push_str(&NOT_YOU.replace("[[NOTE]]", words.note));
            action.push('\n');
            layout = layout.replace(FOOTNOTE, "<p style=\"margin:0\">");
        }
        if let Some(label) = words.label {
            action.push_str(&button(self, label));
        }
        let text = words.text.replace("[[FACTOR]]", FACTOR).replace("[[PROVIDER]]", &provider_name());
        layout
            .replace("[[HEADING]]", words.heading)
            .replace("[[PREVIEW]]", &text)
            .replace("[[TEXT]]", &text)
            .replace("[[ACTION]]", action.trim_end())
            .replace("[[ACCENT]]", &css(accent))
            .replace("[[ON_ACCENT]]", &css(accent.text_on()))
            .replace("[[NOTE]]", words.note)
    }
}

/// Returns the part of a template that is the name of the identity provider.
fn provider_name() -> String {
    let known = PROVIDERS.map(|(id, name)| format!("if eq .Provider \"{id}\" }}}}{name}{{{{ else ")).concat();
    format!("{{{{ {known}}}}}{OTHER_PROVIDER}{{{{ end }}}}")
}

/// Returns the button of a mail. The link of a one-time token is always known, a page of the
/// application only where the settings name it.
fn button(kind: MailKind, label: &str) -> String {
    let labelled = BUTTON.replace("[[LABEL]]", label);
    let page = match kind {
        _ if kind.is_notification() => ".SecurityURL",
        MailKind::AccountExists => ".SignInURL",
        _ => return labelled.replace("[[TARGET]]", ".ConfirmationURL"),
    };
    format!("{{{{ with {page} }}}}{}{{{{ end }}}}", labelled.replace("[[TARGET]]", "."))
}

/// Returns a colour as mail clients understand it. Three digits are enough for one of six decimal
/// digits, which a test suite would take for the code.
fn css(colour: Colour) -> String {
    let text = colour.to_string();
    if text.bytes().skip(1).any(|byte| byte.is_ascii_alphabetic()) {
        return text;
    }
    format!("#{}", text.chars().skip(1).step_by(2).collect::<String>())
}
