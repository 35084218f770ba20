//! The settings of accounts with an email address, and of their emails.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use portico_base::colour::Colour;
use portico_mail::MailKind;

/// The settings of accounts with an email address.
#[derive(Debug, Clone)]
pub struct EmailSettings {
    /// Sign-up and sign-in by email.
    pub enabled: bool,
    /// Sign-in by a link or code.
    pub magic_link_enabled: bool,
    /// If not empty, only these addresses are sent email.
    pub authorized_addresses: Vec<String>,
    /// New addresses count as confirmed.
    pub autoconfirm: bool,
    /// Provider accounts with an unverified address may sign in.
    pub allow_unverified_sign_ins: bool,
    /// A change of address is confirmed from both addresses.
    pub secure_change: bool,
    /// Lifetime of codes and links.
    pub otp_expiry: Duration,
    /// Digits of a code, 6 to 10.
    pub otp_length: usize,
    /// Least time between two emails of a kind to one person.
    pub max_frequency: Duration,
    /// Paths or URLs that the links in emails point to.
    pub url_paths: UrlPaths,
    /// Own subjects and bodies.
    pub templates: BTreeMap<MailKind, TemplateSettings>,
    /// The time for which a body from a URL is used before it is fetched again.
    pub template_max_age: Duration,
    /// First pause after a body could not be fetched. It doubles up to `template_max_age`.
    pub template_retry: Duration,
    /// The enabled notifications.
    pub notifications: Vec<MailKind>,
    /// The page where people check their sign-in methods, which notifications link to.
    pub security_page: Option<String>,
    /// The page where people request a new password, which the notification of a changed password
    /// links to.
    pub recovery_page: Option<String>,
    /// The page where people sign in, which the email about a sign-up with an address that has an
    /// account links to.
    pub sign_in_page: Option<String>,
    /// The name of the product in the built-in emails.
    pub brand_name: String,
    /// The colour of buttons in the built-in emails. `None`: Portico's.
    pub brand_accent: Option<Colour>,
    /// Name of the sender.
    pub sender_name: String,
    /// Address of the sender.
    pub sender_address: String,
    /// Further headers of every email; `$messageType` becomes the kind.
    pub headers: Vec<(String, String)>,
    /// Host names that links may contain besides that of `external_url`.
    pub external_hosts: Vec<String>,
    /// Reject addresses of reserved and obviously invented domains, and of domains that accept no
    /// email.
    pub extended_validation: bool,
    /// Names of mail servers. With `extended_validation`, addresses whose email goes to one, or to
    /// one below its name, are rejected.
    pub blocked_mail_servers: Vec<String>,
    /// Name servers for the lookup of domains. Empty: those of the machine.
    pub name_servers: Vec<SocketAddr>,
}

/// The targets of links in emails, resolved against the external URL.
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

/// The subject and body of one kind of email. `None`: the built-in one.
#[derive(Debug, Clone, Default)]
pub struct TemplateSettings {
    /// Template text.
    pub subject: Option<String>,
    /// Template text.
    pub body: Option<String>,
    /// File with the body; read again when it changes.
    pub body_file: Option<PathBuf>,
    /// URL of the body, fetched again from time to time: https, or a path that is appended to
    /// [`AuthSettings::site_url`].
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
            security_page: None,
            recovery_page: None,
            sign_in_page: None,
            brand_name: "Portico".into(),
            brand_accent: None,
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
    /// Returns empty paths: `/verify` below the external URL, including its prefix, which GoTrue's
    /// own default drops.
    fn default() -> Self {
        Self {
            invite: String::new(),
            confirmation: String::new(),
            recovery: String::new(),
            email_change: String::new(),
        }
    }
}
