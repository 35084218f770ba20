//! Accounts with an e-mail address, and the mails they get.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use portico_mail::MailKind;

/// Accounts with an e-mail address.
#[derive(Debug, Clone)]
pub struct EmailSettings {
    /// Sign-up and sign-in by e-mail.
    pub enabled: bool,
    /// Sign-in by a link or code.
    pub magic_link_enabled: bool,
    /// If not empty, only these addresses get mail.
    pub authorized_addresses: Vec<String>,
    /// New addresses count as confirmed.
    pub autoconfirm: bool,
    /// Provider accounts with an unverified address may sign in.
    pub allow_unverified_sign_ins: bool,
    /// A change of address is confirmed from both addresses.
    pub secure_change: bool,
    /// Life time of codes and links.
    pub otp_expiry: Duration,
    /// Digits of a code, 6 to 10.
    pub otp_length: usize,
    /// Least time between two mails of a kind to one person.
    pub max_frequency: Duration,
    /// Paths or URLs that the links in mails point to.
    pub url_paths: UrlPaths,
    /// Own subjects and bodies.
    pub templates: BTreeMap<MailKind, TemplateSettings>,
    /// How long a body from an address is used before it is read again.
    pub template_max_age: Duration,
    /// When a body could not be read, the next attempt comes after this time; the pause doubles up to `template_max_age`.
    pub template_retry: Duration,
    /// Notifications that are sent.
    pub notifications: Vec<MailKind>,
    /// Name of the sender.
    pub sender_name: String,
    /// Address of the sender.
    pub sender_address: String,
    /// Further headers of every mail; `$messageType` becomes the kind.
    pub headers: Vec<(String, String)>,
    /// Host names by which this service may be addressed in links besides `external_url`.
    pub external_hosts: Vec<String>,
    /// Refuse addresses of reserved and obviously invented domains, and of domains that take no mail.
    pub extended_validation: bool,
    /// Mail servers by name: with `extended_validation`, addresses whose mail goes to one, or to one below its name, are refused.
    pub blocked_mail_servers: Vec<String>,
    /// Who is asked about domains; empty: the machine's own name servers.
    pub name_servers: Vec<SocketAddr>,
}

/// Where the links in mails point to; resolved against the external URL.
#[derive(Debug, Clone)]
pub struct UrlPaths {
    /// `type=invite`
    pub invite: String,
    /// `type=signup`
    pub confirmation: String,
    /// `type=recovery` and `type=magiclink`
    pub recovery: String,
    /// `type=email_change`
    pub email_change: String,
}

/// An own subject and body of one kind of mail.
#[derive(Debug, Clone, Default)]
pub struct TemplateSettings {
    /// Template text.
    pub subject: Option<String>,
    /// Template text.
    pub body: Option<String>,
    /// File with the body; read again when it changes.
    pub body_file: Option<PathBuf>,
    /// Address of the body, read again from time to time: https, or what is appended to [`AuthSettings::site_url`].
    pub body_url: Option<String>,
}

impl Default for EmailSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            magic_link_enabled: true,
            authorized_addresses: Vec::new(),
            autoconfirm: false,
            allow_unverified_sign_ins: false,
            secure_change: true,
            otp_expiry: Duration::from_secs(86_400),
            otp_length: 6,
            max_frequency: Duration::from_secs(60),
            url_paths: UrlPaths::default(),
            templates: BTreeMap::new(),
            template_max_age: Duration::from_secs(600),
            template_retry: Duration::from_secs(10),
            notifications: Vec::new(),
            sender_name: "Portico".into(),
            sender_address: "noreply@localhost".into(),
            headers: Vec::new(),
            external_hosts: Vec::new(),
            extended_validation: false,
            blocked_mail_servers: Vec::new(),
            name_servers: Vec::new(),
        }
    }
}

impl Default for UrlPaths {
    /// Empty: `/verify` below the external URL, prefix kept. (The reference's own default drops the prefix.)
    fn default() -> Self {
        Self {
            invite: String::new(),
            confirmation: String::new(),
            recovery: String::new(),
            email_change: String::new(),
        }
    }
}
