//! `[api]`: the gateway and the data API.

use std::path::PathBuf;

use super::folders::{Folders, absolute};
use crate::section::Section;

/// `[api]`
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// True if the gateway and the data API run.
    pub enabled: bool,
    /// The port of everything over HTTP.
    pub port: u16,
    /// The schemas that the data API exposes; the first is the default.
    pub schemas: Vec<String>,
    /// Schemas that are added to the search path of API requests.
    pub extra_search_path: Vec<String>,
    /// The largest number of rows in a response.
    pub max_rows: u64,
    /// The public base URL, without a slash at the end.
    pub external_url: String,
    /// True if [`external_url`](Self::external_url) is written, false if it is derived from host
    /// and port.
    pub has_external_url: bool,
    /// The host name in printed URLs: `127.0.0.1` or `SUPABASE_SERVICES_HOSTNAME`.
    pub host: String,
    /// True if new tables of `public` are granted to the API roles without an explicit GRANT;
    /// `None` if the key is absent: see [`Exposure`](crate::Exposure).
    pub auto_expose_new_tables: Option<bool>,
    /// `[api.tls]`
    pub tls: ApiTls,
}

/// `[api.tls]`
#[derive(Debug, Clone)]
pub struct ApiTls {
    /// HTTPS on the gateway port.
    pub enabled: bool,
    /// Certificate chain (PEM); absent: a self-signed certificate.
    pub cert_path: Option<PathBuf>,
    /// Private key (PEM).
    pub key_path: Option<PathBuf>,
}

impl ApiConfig {
    pub(crate) fn read(mut api: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        let enabled = api.flag_or("enabled", true);
        api.quiet_unless(enabled);
        let port = api.number_or("port", 54321);
        let tls = ApiTls::read(api.section("tls"), folders);
        let host = api.reading().environment().get("SUPABASE_SERVICES_HOSTNAME").unwrap_or("127.0.0.1").to_owned();
        let written = api.text("external_url").filter(|url| !url.is_empty());
        let scheme = if tls.enabled { "https" } else { "http" };
        let shown_host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.clone() };
        Self {
            enabled,
            port,
            schemas: api.list_or("schemas", &["public", "graphql_public"]),
            extra_search_path: api.list_or("extra_search_path", &["public", "extensions"]),
            max_rows: api.number_or("max_rows", 1000),
            has_external_url: written.is_some(),
            external_url: match written {
                Some(url) => url.trim_end_matches('/').to_owned(),
                None => format!("{scheme}://{shown_host}:{port}"),
            },
            host,
            auto_expose_new_tables: api.flag("auto_expose_new_tables"),
            tls,
        }
    }
}

impl ApiTls {
    fn read(mut tls: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        let enabled = tls.flag_or("enabled", false);
        let cert_path = tls.path("cert_path").map(|path| absolute(&folders.supabase, path));
        let key_path = tls.path("key_path").map(|path| absolute(&folders.supabase, path));
        if enabled {
            tls.require("cert_path", cert_path.is_some() || key_path.is_none());
            tls.require("key_path", key_path.is_some() || cert_path.is_none());
        }
        Self { enabled, cert_path, key_path }
    }
}
