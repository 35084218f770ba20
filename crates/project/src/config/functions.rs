//! `[edge_runtime]` and `[functions.<slug>]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use portico_base::Secret;

use super::folders::{Folders, absolute};
use crate::section::Section;

/// `[edge_runtime]`
#[derive(Debug, Clone)]
pub struct EdgeRuntimeConfig {
    /// True if functions are served.
    pub enabled: bool,
    /// The lifetime of a worker.
    pub policy: EdgePolicy,
    /// Port of the inspector.
    pub inspector_port: u16,
    /// Major version of Deno: 1 or 2.
    pub deno_version: u16,
    /// Variables for all functions, by upper-case name.
    pub secrets: BTreeMap<String, Secret>,
}

/// `edge_runtime.policy`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EdgePolicy {
    /// A worker serves many requests.
    PerWorker,
    /// A worker serves one request.
    Oneshot,
}

impl EdgeRuntimeConfig {
    pub(crate) fn read(mut runtime: Section<'_, '_, '_>) -> Self {
        let enabled = runtime.flag_or("enabled", true);
        runtime.quiet_unless(enabled);
        let policies = [("per_worker", EdgePolicy::PerWorker), ("oneshot", EdgePolicy::Oneshot)];
        let deno_version = runtime.number_or("deno_version", 2);
        match deno_version {
            1 | 2 => {}
            0 => runtime.require("deno_version", false),
            other => runtime
                .fail("deno_version", format!("Failed reading config: Invalid edge_runtime.deno_version: {other}.")),
        }
        let mut secrets = runtime.section("secrets");
        let names = secrets.names();
        Self {
            enabled,
            policy: runtime.choice("policy", &policies).unwrap_or(EdgePolicy::PerWorker),
            inspector_port: runtime.number_or("inspector_port", 8083),
            deno_version,
            secrets: names
                .into_iter()
                .filter_map(|name| Some((name.to_uppercase(), secrets.any_secret(name)?)))
                .collect(),
        }
    }
}

/// `[functions.<slug>]`
#[derive(Debug, Clone)]
pub struct FunctionConfig {
    /// True if it is served.
    pub enabled: bool,
    /// True if a request needs a valid token.
    pub verify_jwt: bool,
    /// Its main file, if it is not `functions/<slug>/index.ts`.
    pub entrypoint: Option<PathBuf>,
    /// Its import map, if it is not `deno.json` beside the main file.
    pub import_map: Option<PathBuf>,
    /// Globs of files that belong to it.
    pub static_files: Vec<String>,
    /// Variables of its own.
    pub env: BTreeMap<String, Secret>,
}

const SLUG_PATTERN: &str = "^[A-Za-z][A-Za-z0-9_-]*$";

pub(crate) fn read(mut functions: Section<'_, '_, '_>, folders: &Folders<'_>) -> BTreeMap<String, FunctionConfig> {
    let mut read = BTreeMap::new();
    for name in functions.names() {
        if !functions.holds_table(name) {
            functions.fail(
                name,
                format!(
                    "Invalid functions config format. Functions should be configured as:\n\n[functions.<function-name>]\n\
                     verify_jwt = true\n\n(found functions.{name})"
                ),
            );
        }
    }
    for (slug, function) in functions.sections() {
        if function.is_present() {
            read.insert(slug.to_owned(), FunctionConfig::read(slug, function, folders));
        }
    }
    read
}

impl FunctionConfig {
    fn read(slug: &str, mut function: Section<'_, '_, '_>, folders: &Folders<'_>) -> Self {
        let starts_well = slug.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_plain = slug.chars().all(|other| other.is_ascii_alphanumeric() || other == '_' || other == '-');
        if !starts_well || !is_plain {
            function.fail(
                "",
                format!(
                    "Invalid Function name: {slug}. Must start with at least one letter, and only include alphanumeric \
                     characters, underscores, and hyphens. ({SLUG_PATTERN})"
                ),
            );
        }
        let enabled = function.flag_or("enabled", true);
        function.quiet_unless(enabled);
        let mut env = function.section("env");
        let names = env.names();
        Self {
            enabled,
            verify_jwt: function.flag_or("verify_jwt", true),
            entrypoint: function.path("entrypoint").map(|path| absolute(&folders.supabase, path)),
            import_map: function.path("import_map").map(|path| absolute(&folders.supabase, path)),
            static_files: function.list_or("static_files", &[]),
            env: names.into_iter().filter_map(|name| Some((name.to_uppercase(), env.any_secret(name)?))).collect(),
        }
    }
}
