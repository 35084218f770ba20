//! `supabase/portico.toml`: the settings of Portico itself.
//!
//! They are in a file of their own, because Supabase's command line rejects a folder with an
//! unknown table in `config.toml`. Only Portico reads the file, so an unknown key is an error. Each
//! key can be overridden by `PORTICO_` + its path, for example `PORTICO_SERVER_BIND`.

mod auth;
mod development_users;
mod messages;
mod object_store;
mod realtime;
mod storage;

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portico_base::Secret;
use portico_base::colour::Colour;
use url::Url;

pub use auth::{
    AccountSettings, BreachCheckMode, CustomProviderExtras, EmailExtras, EncryptionExtras, HookExtras, PasswordExtras,
    RefreshTokenExtras, SessionExtras,
};
pub use development_users::DevelopmentUser;
pub use messages::{LinkPaths, RateLimitExtras, SendRate, SmsExtras};
pub use object_store::{ObjectStoreCredentials, ObjectStoreRole, ObjectStoreSettings};
pub use realtime::{ClusterMode, RealtimeExtras, RealtimeLimitExtras};
pub use storage::{S3Extras, StorageExtras};

use crate::config::absolute;
use crate::document::DocumentNode;
use crate::error::{ProjectError, Warning, read_text};
use crate::project::{MAX_CONFIG, Project};
use crate::section::{ConfigReader, Section, UnknownKeys};

/// The settings of `portico.toml`, with defaults filled in.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[server]`
    pub server: ServerSettings,
    /// `[database]`
    pub database: DatabaseSettings,
    /// `[web]`
    pub web: WebSettings,
    /// `[auth]`
    pub auth: AccountSettings,
    /// `[storage]`
    pub storage: StorageExtras,
    /// `[realtime]`
    pub realtime: RealtimeExtras,
    /// `[texts]`
    pub texts: TextSettings,
    /// `[emulators]`
    pub emulators: EmulatorSettings,
    /// Warnings about the file.
    pub warnings: Vec<Warning>,
}

/// `[server]`
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The address to listen on, without port. Default: loopback.
    pub bind: Option<IpAddr>,
    /// The URL under which clients reach the server, without a slash at the end.
    pub public_url: Option<String>,
    /// Networks of proxies whose forwarding headers are trusted (`10.0.0.0/8`, or one address).
    pub trusted_proxies: Vec<String>,
    /// The time that requests in flight have to complete when the server stops.
    pub drain: Duration,
    /// The number of client connections. Default: as the limit of open files allows.
    pub max_connections: Option<NonZeroU32>,
    /// The number of connections of one address, other than proxies and this machine. Default: a
    /// quarter of `max_connections`, at most 1,000.
    pub max_connections_per_address: Option<NonZeroU32>,
}

/// `[database]`
#[derive(Debug, Clone)]
pub struct DatabaseSettings {
    /// An external PostgreSQL. Absent: the embedded one. (Only `portico serve` reads
    /// `DATABASE_URL`: the environment files of many applications set it to the development
    /// database itself.)
    pub url: Option<Secret>,
    /// The way to the same database past a connection pooler that `url` leads to. (`DIRECT_URL` of
    /// `portico serve`.)
    pub direct_url: Option<Secret>,
    /// The folder of the PostgreSQL programs.
    pub postgres_bin: Option<PathBuf>,
    /// The data folder of `portico serve`: secrets and the embedded PostgreSQL. Default:
    /// `portico-data` in the project.
    pub data: PathBuf,
    /// Connections per pool. They are opened when needed, and those of the data API are closed when
    /// idle.
    pub pool_size: u32,
}

/// `[web]`: the account pages.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// `[web.brand]`
    pub brand: BrandSettings,
    /// `[web.analytics]`
    pub analytics: AnalyticsAdapter,
}

/// `[web.brand]`: the name and look of another product.
#[derive(Debug, Clone)]
pub struct BrandSettings {
    /// The name of the product.
    pub name: String,
    /// The image file of its mark.
    pub mark: Option<PathBuf>,
    /// The accent colour.
    pub accent: Option<Colour>,
}

/// The destination of the pages' product events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnalyticsAdapter {
    /// The collector of this server.
    Builtin,
    /// PostHog
    Posthog {
        /// The project key; it is public.
        key: String,
        /// The host.
        host: String,
    },
    /// Google Analytics 4
    Ga4 {
        /// `G-...`; it is public.
        measurement_id: String,
    },
    /// No destination.
    None,
}

/// `[texts]`: settings of text messages that `[auth.sms]` does not have.
#[derive(Debug, Clone, Default)]
pub struct TextSettings {
    /// Another address of the enabled gateway's API: of a region, or of a stand-in.
    pub gateway_url: Option<String>,
    /// Twilio's approved template (`HX...`) of WhatsApp messages.
    pub twilio_content_sid: Option<String>,
}

/// `[emulators]`, which exist in `portico dev` only.
#[derive(Debug, Clone)]
pub struct EmulatorSettings {
    /// True if the stand-in for Google runs when no client id is configured.
    pub google: bool,
}

impl Settings {
    /// Reads the project's `supabase/portico.toml`; without the file, every setting has its
    /// default.
    ///
    /// # Errors
    /// When the file cannot be read or parsed, or contains an unknown key or an invalid value. The
    /// error contains every problem.
    pub fn load(project: &Project) -> Result<Self, ProjectError> {
        let shown = Path::new("supabase/portico.toml");
        let tree = match read_text(&project.root().join(shown), MAX_CONFIG)? {
            Some(text) => DocumentNode::parse(&text, shown)?,
            None => DocumentNode::empty(),
        };
        let reading = ConfigReader::new(project.environment(), "PORTICO", UnknownKeys::Fail);
        let mut settings = Self::read(reading.root(&tree), project);
        let (mut problems, warnings) = reading.into_findings();
        if !problems.is_empty() {
            problems.sort_by_key(|problem| problem.position.as_ref().and_then(|position| position.line));
            return Err(ProjectError::Invalid(problems));
        }
        settings.warnings = warnings;
        Ok(settings)
    }

    fn read(mut root: Section<'_, '_, '_>, project: &Project) -> Self {
        let folder = project.supabase_dir();
        Self {
            server: ServerSettings::read(root.section("server")),
            database: DatabaseSettings::read(root.section("database"), project, &folder),
            web: WebSettings::read(root.section("web"), &folder),
            auth: AccountSettings::read(root.section("auth")),
            storage: StorageExtras::read(root.section("storage")),
            realtime: RealtimeExtras::read(root.section("realtime")),
            texts: TextSettings::read(root.section("texts")),
            emulators: EmulatorSettings { google: root.section("emulators").flag_or("google", true) },
            warnings: Vec::new(),
        }
    }
}

impl ServerSettings {
    fn read(mut server: Section<'_, '_, '_>) -> Self {
        let bind = server.text("bind").filter(|text| !text.is_empty()).and_then(|text| {
            let address = match text.as_str() {
                "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
                text => text.trim_matches(['[', ']']).parse(),
            };
            if address.is_err() {
                server.fail("bind", format!("{}: expected an IP address, found {text:?}", server.key("bind")));
            }
            address.ok()
        });
        let public_url = server.text("public_url").filter(|text| !text.is_empty()).and_then(|text| {
            let is_web = Url::parse(&text).is_ok_and(|url| {
                matches!(url.scheme(), "http" | "https") && url.host().is_some() && url.query().is_none()
            });
            if !is_web {
                let key = server.key("public_url");
                server.fail("public_url", format!("{key}: expected a URL such as \"https://app.example.com\""));
            }
            is_web.then(|| text.trim_end_matches('/').to_owned())
        });
        let trusted_proxies = server.list_or("trusted_proxies", &[]);
        for network in &trusted_proxies {
            if !is_network(network) {
                let key = server.key("trusted_proxies");
                server.fail("trusted_proxies", format!("{key}: expected an address or network, found {network:?}"));
            }
        }
        let max_connections: Option<u32> = server.number("max_connections");
        let max_connections_per_address: Option<u32> = server.number("max_connections_per_address");
        Self {
            bind,
            public_url,
            trusted_proxies,
            // 0 means the same as the absent key
            max_connections: max_connections.and_then(NonZeroU32::new),
            max_connections_per_address: max_connections_per_address.and_then(NonZeroU32::new),
            drain: Duration::from_secs(server.number_or("drain_seconds", 10_u16).into()),
        }
    }
}

impl TextSettings {
    fn read(mut texts: Section<'_, '_, '_>) -> Self {
        let mut text = |name| texts.text(name).filter(|text| !text.is_empty());
        Self { gateway_url: text("gateway_url"), twilio_content_sid: text("twilio_content_sid") }
    }
}

/// Parses `10.0.0.0/8` or one address.
fn is_network(text: &str) -> bool {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, bits.parse::<u8>().ok()),
        None => (text, Some(0)),
    };
    match (address.parse::<IpAddr>(), bits) {
        (Ok(IpAddr::V4(_)), Some(bits)) => bits <= 32,
        (Ok(IpAddr::V6(_)), Some(bits)) => bits <= 128,
        _ => false,
    }
}

impl DatabaseSettings {
    fn read(mut database: Section<'_, '_, '_>, project: &Project, folder: &Path) -> Self {
        let pool_size = database.number_or("pool_size", 20);
        if pool_size == 0 {
            database.fail("pool_size", format!("{}: expected at least 1", database.key("pool_size")));
        }
        Self {
            url: database.secret("url"),
            direct_url: database.secret("direct_url"),
            postgres_bin: database.path("postgres_bin").map(|path| absolute(folder, path)),
            data: match database.path("data") {
                Some(path) => absolute(folder, path),
                None => project.root().join("portico-data"),
            },
            pool_size,
        }
    }
}

impl WebSettings {
    fn read(mut web: Section<'_, '_, '_>, folder: &Path) -> Self {
        Self {
            brand: BrandSettings::read(web.section("brand"), folder),
            analytics: AnalyticsAdapter::read(web.section("analytics")),
        }
    }
}

impl BrandSettings {
    fn read(mut brand: Section<'_, '_, '_>, folder: &Path) -> Self {
        let accent = brand.text("accent").filter(|text| !text.is_empty()).and_then(|text| {
            let colour = Colour::parse(&text);
            if colour.is_none() {
                brand.fail("accent", format!("{}: expected a colour such as \"#4f46e5\"", brand.key("accent")));
            }
            colour
        });
        Self {
            name: brand.text("name").filter(|name| !name.trim().is_empty()).unwrap_or_else(|| "Portico".to_owned()),
            mark: brand.path("mark").map(|path| absolute(folder, path)),
            accent,
        }
    }
}

#[derive(Clone, Copy)]
enum AdapterName {
    Builtin,
    Posthog,
    Ga4,
    None,
}

impl AnalyticsAdapter {
    fn read(mut analytics: Section<'_, '_, '_>) -> Self {
        let names = [
            ("builtin", AdapterName::Builtin),
            ("posthog", AdapterName::Posthog),
            ("ga4", AdapterName::Ga4),
            ("none", AdapterName::None),
        ];
        let name = analytics.choice("adapter", &names).unwrap_or(AdapterName::Builtin);
        let key = analytics.text_or("posthog_key", "");
        let host = analytics.text_or("posthog_host", "https://eu.i.posthog.com");
        let measurement_id = analytics.text_or("ga4_measurement_id", "");
        match name {
            AdapterName::Builtin => Self::Builtin,
            AdapterName::None => Self::None,
            AdapterName::Posthog => {
                analytics.require("posthog_key", !key.is_empty());
                if !host.starts_with("https://") && !host.starts_with("http://") {
                    let name = analytics.key("posthog_host");
                    analytics.fail("posthog_host", format!("{name}: expected a URL, found {host:?}"));
                }
                Self::Posthog { key, host: host.trim_end_matches('/').to_owned() }
            }
            AdapterName::Ga4 => {
                analytics.require("ga4_measurement_id", !measurement_id.is_empty());
                Self::Ga4 { measurement_id }
            }
        }
    }
}
