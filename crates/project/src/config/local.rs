//! The smaller sections: realtime, dashboard, mailbox, analytics, experimental.

use std::path::PathBuf;

use portico_base::Secret;

use super::api::ApiConfig;
use super::folders::{Folders, absolute};
use crate::section::Section;

/// `[realtime]`
#[derive(Debug, Clone)]
pub struct RealtimeConfig {
    /// True if realtime runs.
    pub enabled: bool,
    /// The family of addresses to bind.
    pub ip_version: IpVersion,
    /// Longest request header in bytes.
    pub max_header_length: u32,
}

/// A family of internet addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4
    V4,
    /// IPv6
    V6,
}

impl RealtimeConfig {
    pub(crate) fn read(mut realtime: Section<'_, '_, '_>) -> Self {
        let versions = [("IPv4", IpVersion::V4), ("IPv6", IpVersion::V6)];
        Self {
            enabled: realtime.flag_or("enabled", true),
            ip_version: realtime.choice("ip_version", &versions).unwrap_or(IpVersion::V4),
            max_header_length: realtime.number_or("max_header_length", 4096),
        }
    }
}

/// `[studio]`: the dashboard.
#[derive(Debug, Clone)]
pub struct StudioConfig {
    /// True if the dashboard runs.
    pub enabled: bool,
    /// Its port.
    pub port: u16,
    /// The API URL it shows.
    pub api_url: String,
    /// Key of an assistant; unused.
    pub openai_api_key: Option<Secret>,
}

impl StudioConfig {
    pub(crate) fn read(mut studio: Section<'_, '_, '_>, api: &ApiConfig) -> Self {
        let enabled = studio.flag_or("enabled", true);
        let port = studio.number_or("port", 54323);
        studio.quiet_unless(enabled);
        studio.require("port", port != 0);
        // The template names a variable that is rarely set
        studio.quiet_unless(false);
        let written = studio.text_or("api_url", "http://127.0.0.1");
        let host = url::Url::parse(&written).ok().and_then(|url| url.host_str().map(str::to_owned));
        let is_local = host.is_none_or(|host| host == api.host || host == "127.0.0.1");
        Self {
            enabled,
            port,
            api_url: if is_local { api.external_url.clone() } else { written },
            openai_api_key: studio.secret("openai_api_key"),
        }
    }
}

/// `[inbucket]`: the local mailbox. `[local_smtp]` is read as another name of it.
#[derive(Debug, Clone)]
pub struct InbucketConfig {
    /// True if local email is captured.
    pub enabled: bool,
    /// Port of the page and its HTTP API.
    pub port: u16,
    /// SMTP port, if it should be reachable.
    pub smtp_port: Option<u16>,
    /// POP3 port, if it should be reachable.
    pub pop3_port: Option<u16>,
    /// From address of local email.
    pub admin_email: String,
    /// From name of local email.
    pub sender_name: String,
}

impl InbucketConfig {
    pub(crate) fn read(root: &mut Section<'_, '_, '_>) -> Self {
        let mut newer = root.section("local_smtp");
        let mut older = root.section("inbucket");
        if newer.is_present() {
            // Both names in one file: the newer one takes precedence, the older one is still
            // checked
            Self::from_section(&mut older);
            Self::from_section(&mut newer)
        } else {
            Self::from_section(&mut older)
        }
    }

    fn from_section(inbucket: &mut Section<'_, '_, '_>) -> Self {
        let enabled = inbucket.flag_or("enabled", true);
        inbucket.quiet_unless(enabled);
        let port = inbucket.number_or("port", 54324);
        Self {
            enabled,
            port,
            smtp_port: inbucket.number("smtp_port").filter(|port| *port != 0),
            pop3_port: inbucket.number("pop3_port").filter(|port| *port != 0),
            admin_email: inbucket.text_or("admin_email", "admin@email.com"),
            sender_name: inbucket.text_or("sender_name", "Admin"),
        }
    }
}

/// `[analytics]`: parsed, without effect.
#[derive(Debug, Clone)]
pub struct AnalyticsConfig {
    /// True if log analytics are wanted.
    pub enabled: bool,
    /// Their port.
    pub port: u16,
}

impl AnalyticsConfig {
    pub(crate) fn read(mut analytics: Section<'_, '_, '_>) -> Self {
        for name in ["gcp_project_id", "gcp_project_number", "gcp_jwt_path", "vector_port"] {
            analytics.ignore(name);
        }
        analytics.choice("backend", &[("postgres", ()), ("bigquery", ())]);
        Self { enabled: analytics.flag_or("enabled", true), port: analytics.number_or("port", 54327) }
    }
}

/// `[experimental]`
#[derive(Debug, Clone)]
pub struct ExperimentalConfig {
    /// `[experimental.webhooks] enabled`
    pub webhooks: bool,
    /// `[experimental.pgdelta] enabled`
    pub pgdelta: bool,
    /// Folder of declarative files.
    pub declarative_schema_path: PathBuf,
    /// `[[experimental.inspect.rules]]`
    pub inspect_rules: Vec<InspectRule>,
}

/// One `[[experimental.inspect.rules]]`.
#[derive(Debug, Clone, Default)]
pub struct InspectRule {
    /// The question.
    pub query: String,
    /// Its name in the report.
    pub name: String,
    /// The text if it is true.
    pub pass: String,
    /// The text if it is false.
    pub fail: String,
}

impl ExperimentalConfig {
    pub(crate) fn read(mut experimental: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        // A storage engine that Portico does not have; the template names its variables
        for name in ["orioledb_version", "s3_host", "s3_region", "s3_access_key", "s3_secret_key"] {
            experimental.ignore(name);
        }
        let webhooks = {
            let mut webhooks = experimental.section("webhooks");
            let enabled = webhooks.flag("enabled");
            if enabled == Some(false) {
                webhooks.fail(
                    "enabled",
                    "Webhooks cannot be deactivated. [experimental.webhooks] enabled can either be true or left undefined",
                );
            }
            enabled.unwrap_or(false)
        };
        let mut pgdelta = experimental.section("pgdelta");
        pgdelta.ignore("format_options");
        let declarative = pgdelta.path("declarative_schema_path").unwrap_or_else(|| PathBuf::from("database"));
        let pgdelta_enabled = pgdelta.flag_or("enabled", false);
        let mut inspect = experimental.section("inspect");
        let inspect_rules = inspect
            .list_of_sections("rules")
            .into_iter()
            .map(|mut rule| InspectRule {
                query: rule.text_or("query", ""),
                name: rule.text_or("name", ""),
                pass: rule.text_or("pass", ""),
                fail: rule.text_or("fail", ""),
            })
            .collect();
        Self {
            webhooks,
            pgdelta: pgdelta_enabled,
            declarative_schema_path: absolute(&folders.supabase, declarative),
            inspect_rules,
        }
    }
}
