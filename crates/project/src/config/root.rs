//! The whole of `config.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use super::api::ApiConfig;
use super::auth::AuthConfig;
use super::db::DbConfig;
use super::folders::Folders;
use super::functions::{self, EdgeRuntimeConfig, FunctionConfig};
use super::local::{AnalyticsConfig, ExperimentalConfig, InbucketConfig, RealtimeConfig, StudioConfig};
use super::storage::StorageConfig;
use crate::error::WarningKind;
use crate::section::Section;

/// The configuration, with defaults filled in.
#[derive(Debug, Clone)]
pub struct Config {
    /// The name of the project, sanitised so that it fits into names of files and containers.
    pub project_id: String,
    /// `[api]`
    pub api: ApiConfig,
    /// `[db]`
    pub db: DbConfig,
    /// `[realtime]`
    pub realtime: RealtimeConfig,
    /// `[studio]`
    pub studio: StudioConfig,
    /// `[inbucket]`: the local mailbox.
    pub inbucket: InbucketConfig,
    /// `[storage]`
    pub storage: StorageConfig,
    /// `[auth]`
    pub auth: AuthConfig,
    /// `[edge_runtime]`
    pub edge_runtime: EdgeRuntimeConfig,
    /// `[functions.<slug>]`, by lower-case slug.
    pub functions: BTreeMap<String, FunctionConfig>,
    /// `[analytics]`: parsed for compatibility only.
    pub analytics: AnalyticsConfig,
    /// `[experimental]`
    pub experimental: ExperimentalConfig,
}

impl Config {
    pub(crate) fn read(mut root: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        let project_id = project_id(&mut root, folders.root);
        let api = ApiConfig::read(root.section("api"), folders);
        let auth = AuthConfig::read(root.section("auth"), &api, folders);
        root.ignore("remotes");
        Self {
            project_id,
            db: DbConfig::read(root.section("db")),
            realtime: RealtimeConfig::read(root.section("realtime")),
            studio: StudioConfig::read(root.section("studio"), &api),
            inbucket: InbucketConfig::read(&mut root),
            storage: StorageConfig::read(root.section("storage"), folders),
            edge_runtime: EdgeRuntimeConfig::read(root.section("edge_runtime")),
            functions: functions::read(root.section("functions"), folders),
            analytics: AnalyticsConfig::read(root.section("analytics")),
            experimental: ExperimentalConfig::read(root.section("experimental"), folders),
            api,
            auth,
        }
    }
}

fn project_id(root: &mut Section<'_, '_, '_>, folder: &Path) -> String {
    let written = root.text("project_id");
    if written.as_deref() == Some("") {
        root.require("project_id", false);
    }
    let raw = written
        .filter(|id| !id.is_empty())
        .unwrap_or_else(|| folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default());
    let clean = clean_project_id(&raw);
    if clean != raw && root.position("project_id").is_some() {
        root.reading().warn(
            WarningKind::Adjusted,
            root.position("project_id"),
            "project_id",
            format!("project_id field in config is invalid. Auto-fixing to {clean}"),
        );
    }
    if clean.is_empty() { "portico".to_owned() } else { clean }
}

/// Sanitises a name: characters outside `[a-zA-Z0-9_.-]` become one `_` per run; leading `_ . -`
/// are removed; at most 40 characters remain.
pub(crate) fn clean_project_id(raw: &str) -> String {
    let mut clean = String::new();
    let mut in_run = false;
    for character in raw.chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '-') {
            clean.push(character);
            in_run = false;
        } else if !in_run {
            clean.push('_');
            in_run = true;
        }
    }
    clean.trim_start_matches(['_', '.', '-']).chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::clean_project_id;

    #[test]
    fn a_project_id_is_sanitised() {
        let table = [
            ("my-app", "my-app"),
            ("my  app!", "my_app_"),
            ("__.x", "x"),
            ("Größe", "Gr_e"),
            ("a".repeat(50).as_str(), "a".repeat(40).as_str()),
            ("***", ""),
        ]
        .map(|(raw, clean)| (raw.to_owned(), clean.to_owned()));
        for (raw, clean) in table {
            assert_eq!(clean_project_id(&raw), clean, "{raw:?}");
        }
    }
}
