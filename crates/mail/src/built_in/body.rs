//! The built-in bodies: one layout, filled with the wording of each email.
//!
//! They need no images and no scripts, follow the reader's light or dark setting, and are read well
//! by a screen reader and as plain text. Each has at most one link, the one to follow, so that a
//! reader, and a test suite that looks for the link of an email, cannot take the wrong one; the
//! code stands before it for the same reason. The link of a notification leads to the page where a
//! change can be undone, and has no token in it; nor has that of an email about an existing
//! account.

use portico_base::colour::Colour;

use super::{MailKind, wording};

const LAYOUT: &str = include_str!("layout.html");

/// The note below the card, where a notification, which has its note inside, has none.
const FOOTNOTE: &str = "<p style=\"margin:0\">[[NOTE]]</p>\n<p style=\"margin:8px 0 0\">";

const CODE: &str = r#"<p class="soft" style="margin:24px 0 8px;font-size:14px;line-height:20px;color:#4a5a5c">[[ASK]]</p>
<p class="code strong" style="margin:0;padding:16px 12px;background:#f9f8f5;border:1px solid #dddbd5;border-radius:10px;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:30px;line-height:36px;font-weight:600;letter-spacing:0.12em;white-space:nowrap;text-align:center;color:#13222b">{{ .Token }}</p>"#;

const BUTTON: &str = r#"<table role="presentation" cellpadding="0" cellspacing="0" border="0" style="margin:24px 0 0"><tr><td>
<a href="{{ [[TARGET]] }}" style="display:inline-block;padding:13px 22px;border-radius:10px;background:[[ACCENT]];color:[[ON_ACCENT]];font-size:16px;line-height:22px;font-weight:600;text-decoration:none">[[LABEL]]</a>
</td></tr></table>"#;

/// The end of a notification: what to do about a change that was not the reader's.
const NOT_YOU: &str =
    r#"<p class="soft" style="margin:16px 0 0;font-size:16px;line-height:25px;color:#4a5a5c">[[NOTE]]</p>"#;

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

impl MailKind {
    /// Returns the built-in body, a template, with buttons in the accent colour of the product.
    pub fn default_body(self, accent: Colour) -> String {
        let wording = wording::of(self);
        let mut action = String::new();
        if let Some(ask) = wording.ask {
            action.push_str(&CODE.replace("[[ASK]]", ask));
            action.push('\n');
        }
        let mut layout = LAYOUT.to_owned();
        if self.is_notification() {
            action.push_str(&NOT_YOU.replace("[[NOTE]]", wording.note));
            action.push('\n');
            layout = layout.replace(FOOTNOTE, "<p style=\"margin:0\">");
        }
        if let Some(label) = wording.label {
            action.push_str(&button(self, label));
        }
        let text = wording.text.replace("[[FACTOR]]", FACTOR).replace("[[PROVIDER]]", &provider_name());
        layout
            .replace("[[HEADING]]", wording.heading)
            .replace("[[PREVIEW]]", &text)
            .replace("[[TEXT]]", &text)
            .replace("[[ACTION]]", action.trim_end())
            .replace("[[ACCENT]]", &css(accent))
            .replace("[[ON_ACCENT]]", &css(accent.text_on()))
            .replace("[[NOTE]]", wording.note)
    }
}

/// Returns the part of a template that is the name of the identity provider.
fn provider_name() -> String {
    let known = PROVIDERS.map(|(id, name)| format!("if eq .Provider \"{id}\" }}}}{name}{{{{ else ")).concat();
    format!("{{{{ {known}}}}}{OTHER_PROVIDER}{{{{ end }}}}")
}

/// Returns the button of an email. The link of a one-time token is always known, a page of the
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
