//! `[auth.email]`: email and sign-in by email.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portico_base::Secret;

use super::folders::{Folders, absolute};
use crate::section::Section;

/// `[auth.email]`
#[derive(Debug, Clone)]
pub struct EmailConfig {
    /// True if the email provider is on, including sign-in.
    pub enable_signup: bool,
    /// True if both addresses have to confirm a change.
    pub double_confirm_changes: bool,
    /// True if a new address has to be confirmed.
    pub enable_confirmations: bool,
    /// True if a new password needs a recent sign-in.
    pub secure_password_change: bool,
    /// The pause between two emails to one address.
    pub max_frequency: Duration,
    /// The digits of a one-time code.
    pub otp_length: u32,
    /// The lifetime of a one-time code in seconds.
    pub otp_expiry: u32,
    /// `[auth.email.smtp]`, when enabled.
    pub smtp: Option<SmtpConfig>,
    /// `[auth.email.template.<id>]`, by id.
    pub template: BTreeMap<String, EmailTemplate>,
    /// `[auth.email.notification.<id>]`, by id.
    pub notification: BTreeMap<String, EmailNotification>,
}

/// `[auth.email.smtp]`
#[derive(Debug, Clone)]
pub struct SmtpConfig {
    /// Server name.
    pub host: String,
    /// Server port.
    pub port: u16,
    /// User name.
    pub user: String,
    /// Password.
    pub pass: Secret,
    /// From address.
    pub admin_email: String,
    /// From name.
    pub sender_name: Option<String>,
}

/// `[auth.email.template.<id>]`
#[derive(Debug, Clone)]
pub struct EmailTemplate {
    /// Subject, a template itself.
    pub subject: Option<String>,
    /// File of the body; re-read when it changes.
    pub content_path: Option<PathBuf>,
    /// Address of the body, in place of the file; re-read periodically.
    pub content_url: Option<String>,
}

/// `[auth.email.notification.<id>]`
#[derive(Debug, Clone)]
pub struct EmailNotification {
    /// True if it is sent.
    pub enabled: bool,
    /// Subject, a template itself.
    pub subject: Option<String>,
    /// File of the body; re-read when it changes.
    pub content_path: Option<PathBuf>,
    /// Address of the body, in place of the file; re-read periodically.
    pub content_url: Option<String>,
}

pub(crate) const TEMPLATES: [&str; 7] =
    ["invite", "confirmation", "recovery", "magic_link", "email_change", "reauthentication", "account_exists"];

pub(crate) const NOTIFICATIONS: [&str; 11] = [
    "password_changed",
    "email_changed",
    "phone_changed",
    "identity_linked",
    "identity_unlinked",
    "mfa_factor_enrolled",
    "mfa_factor_unenrolled",
    "passkey_added",
    "passkey_removed",
    "recovery_code_used",
    "recovery_codes_created",
];

impl EmailConfig {
    pub(crate) fn read(mut email: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        let mut templates = email.section("template");
        let template = TEMPLATES
            .into_iter()
            .filter_map(|id| {
                let mut section = templates.section(id);
                // Relative to the project root here, and to `supabase/` below
                let subject = section.text("subject");
                let (content_path, content_url) = content(&mut section, folders.root);
                section.is_present().then(|| (id.to_owned(), EmailTemplate { subject, content_path, content_url }))
            })
            .collect();
        let mut notifications = email.section("notification");
        let notification = NOTIFICATIONS
            .into_iter()
            .filter_map(|id| {
                let mut section = notifications.section(id);
                let enabled = section.flag_or("enabled", false);
                section.quiet_unless(enabled);
                let subject = section.text("subject");
                let (content_path, content_url) = content(&mut section, &folders.supabase);
                let notification = EmailNotification { enabled, subject, content_path, content_url };
                section.is_present().then(|| (id.to_owned(), notification))
            })
            .collect();
        Self {
            enable_signup: email.flag_or("enable_signup", true),
            double_confirm_changes: email.flag_or("double_confirm_changes", true),
            enable_confirmations: email.flag_or("enable_confirmations", false),
            secure_password_change: email.flag_or("secure_password_change", false),
            max_frequency: email.duration_or("max_frequency", Duration::from_secs(1)),
            otp_length: email.number_or("otp_length", 6),
            otp_expiry: email.number_or("otp_expiry", 3600),
            smtp: SmtpConfig::read(email.section("smtp")),
            template,
            notification,
        }
    }
}

impl SmtpConfig {
    fn read(mut smtp: Section<'_, '_, '_>) -> Option<Self> {
        let enabled = smtp.flag_or("enabled", smtp.is_present());
        smtp.quiet_unless(enabled);
        let host = smtp.text("host").filter(|host| !host.is_empty());
        let port = smtp.number("port").filter(|port| *port != 0);
        let user = smtp.text("user").filter(|user| !user.is_empty());
        let pass = smtp.secret("pass");
        let admin_email = smtp.text("admin_email").filter(|address| !address.is_empty());
        let sender_name = smtp.text("sender_name").filter(|name| !name.is_empty());
        smtp.require("host", host.is_some());
        smtp.require("port", port.is_some());
        smtp.require("user", user.is_some());
        smtp.require("pass", pass.is_some());
        smtp.require("admin_email", admin_email.is_some());
        if !enabled {
            return None;
        }
        // The unset part has been reported; an incomplete mail server counts as none
        Some(Self { host: host?, port: port?, user: user?, pass: pass?, admin_email: admin_email?, sender_name })
    }
}

/// Returns the file or the address of an email's body. A file is read here once, so that a wrong
/// path fails at the start.
fn content(section: &mut Section<'_, '_, '_>, base: &Path) -> (Option<PathBuf>, Option<String>) {
    if section.text("content").is_some() {
        section
            .fail("content", format!("Invalid config for {}: please use content_path instead", section.key("content")));
    }
    let Some(written) = section.text("content_path").filter(|text| !text.is_empty()) else { return (None, None) };
    if written.starts_with("https://") || written.starts_with("http://") {
        return (None, Some(written));
    }
    let path = absolute(base, PathBuf::from(written));
    if !section.is_quiet()
        && let Err(error) = std::fs::File::open(&path)
    {
        let message = format!("Invalid config for {}: {}: {error}", section.key("content_path"), path.display());
        section.fail("content_path", message);
    }
    (Some(path), None)
}
