//! The configuration of the data API.
//!
//! The server's own settings come first. `pgrst.*` settings of the login role override them, so
//! that `alter role authenticator set pgrst.db_max_rows = '50'; notify pgrst, 'reload config'`
//! works as in PostgREST.

pub(crate) mod claim_path;
pub(crate) mod database;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use portico_base::Secret;
use portico_tokens::{KeyRing, SigningKey};
use regex::{Regex, RegexBuilder};

use crate::config::claim_path::ClaimPath;
use crate::schema::QualifiedName;

/// The end of a transaction if the client does not choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionEndPolicy {
    /// The transaction is rolled back.
    pub rollback: bool,
    /// `Prefer: tx=` may override it.
    pub may_override: bool,
}

/// The content of the OpenAPI document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenApiMode {
    /// The objects that the role of the request may use.
    #[default]
    FollowPrivileges,
    /// All exposed objects.
    IgnorePrivileges,
    /// No document: 404.
    Disabled,
}

/// The settings that the planning of requests depends on.
#[derive(Debug, Clone)]
pub struct PlanSettings {
    /// `db-aggregates-enabled`
    pub aggregates: bool,
    /// `db-plan-enabled`: clients may request the output of `EXPLAIN`.
    pub explain_enabled: bool,
    /// `db-max-rows`
    pub max_rows: Option<u64>,
    /// `url-use-legacy-target-names`
    pub legacy_target_names: bool,
    /// Rejects UPDATE and DELETE without a condition, as the hosted service does.
    pub safe_update: bool,
}

impl Default for PlanSettings {
    fn default() -> Self {
        Self { aggregates: false, explain_enabled: false, max_rows: None, legacy_target_names: true, safe_update: true }
    }
}

/// All settings in effect. Replaced as a whole when they change.
#[derive(Debug, Clone)]
pub struct RestConfig {
    /// Exposed schemas, the default one first; never empty.
    pub schemas: Vec<String>,
    /// Schemas on the search path after that of the request.
    pub extra_search_path: Vec<String>,
    /// The role of callers without a token; `None` rejects them.
    pub anon_role: Option<String>,
    /// A function that is called before each main statement (`db-pre-request`).
    pub pre_request: Option<QualifiedName>,
    /// A function that serves the root instead of the OpenAPI document (`db-root-spec`).
    pub root_spec: Option<QualifiedName>,
    /// A function that sets `pgrst.*` settings when the configuration is loaded (`db-pre-config`).
    pub pre_config: Option<QualifiedName>,
    /// The end of transactions (`db-tx-end`).
    pub tx_end: TransactionEndPolicy,
    /// The interval at which the catalogs are compared where no event trigger announces changes.
    /// `None`: never.
    pub schema_poll: Option<Duration>,
    /// Statements stay prepared on connections.
    pub prepared_statements: bool,
    /// Patterns of `name=value` for the settings of functions that apply to the whole transaction.
    pub hoisted_settings: Vec<Regex>,
    /// Verification keys, if the database defines a secret of its own. Otherwise the gateway has
    /// verified the token.
    pub keys: Option<Arc<KeyRing>>,
    /// The audience that tokens must have.
    pub audience: Option<String>,
    /// The path to the role in the claims.
    pub role_claim: ClaimPath,
    /// The content of the OpenAPI document.
    pub openapi_mode: OpenApiMode,
    /// The document describes authentication.
    pub openapi_security: bool,
    /// The address in the document.
    pub openapi_proxy_uri: Option<String>,
    /// Only the secret key may read the document, as on the hosted service.
    pub openapi_secret_key_only: bool,
    /// The allowed origins of pages that read responses; `None` allows all.
    pub cors_origins: Option<Arc<[String]>>,
    /// A request header that the response repeats.
    pub trace_header: Option<HeaderName>,
    /// Sends `Server-Timing`.
    pub server_timing: bool,
    /// Leaves details and hints out of errors.
    pub terse_errors: bool,
    /// `app.settings.*`, with full names.
    pub app_settings: Vec<(String, String)>,
    /// The settings that the planning of requests depends on.
    pub plan: PlanSettings,
}

impl Default for RestConfig {
    /// Returns the defaults of the hosted service.
    fn default() -> Self {
        Self {
            schemas: vec!["public".into(), "graphql_public".into()],
            extra_search_path: vec!["public".into(), "extensions".into()],
            anon_role: Some("anon".into()),
            pre_request: None,
            root_spec: None,
            pre_config: None,
            tx_end: TransactionEndPolicy::default(),
            schema_poll: Some(Duration::from_secs(10)),
            prepared_statements: true,
            hoisted_settings: patterns(HOISTED).unwrap_or_default(),
            keys: None,
            audience: None,
            role_claim: ClaimPath::default(),
            openapi_mode: OpenApiMode::default(),
            openapi_security: false,
            openapi_proxy_uri: None,
            openapi_secret_key_only: true,
            cors_origins: None,
            trace_header: None,
            server_timing: false,
            terse_errors: false,
            app_settings: Vec::new(),
            plan: PlanSettings { max_rows: Some(1000), ..PlanSettings::default() },
        }
    }
}

const HOISTED: &str = "statement_timeout,plan_filter.statement_cost_limit,default_transaction_isolation";

/// The names of the settings that the database may override, without the prefix `pgrst.`.
pub const IN_DATABASE: &[&str] = &[
    "client_error_verbosity",
    "db_aggregates_enabled",
    "db_anon_role",
    "db_extra_search_path",
    "db_hoisted_tx_settings",
    "db_max_rows",
    "db_plan_enabled",
    "db_pre_config",
    "db_pre_request",
    "db_prepared_statements",
    "db_root_spec",
    "db_schemas",
    "db_schema_poll",
    "db_tx_end",
    "jwt_aud",
    "jwt_role_claim_key",
    "jwt_secret",
    "jwt_secret_is_base64",
    "openapi_mode",
    "openapi_security_active",
    "openapi_server_proxy_uri",
    "server_cors_allowed_origins",
    "server_timing_enabled",
    "server_trace_header",
    "url_use_legacy_target_names",
];

impl RestConfig {
    /// Returns the schemas of a request's search path, each once; that of the request comes first.
    pub fn search_path<'a>(&'a self, schema: &'a str) -> impl Iterator<Item = &'a str> {
        std::iter::once(schema)
            .chain(self.extra_search_path.iter().map(String::as_str).filter(move |each| *each != schema))
    }

    /// Applies settings of the database; later ones override earlier ones. A value that cannot be
    /// parsed has no effect and is reported in `problems`.
    pub fn apply<'a>(&mut self, settings: impl IntoIterator<Item = (&'a str, &'a str)>, problems: &mut Vec<String>) {
        let mut secret: Option<&str> = None;
        let mut secret_is_base64 = false;
        for (name, value) in settings {
            match name {
                "jwt_secret" => secret = Some(value).filter(|value| !value.is_empty()),
                "jwt_secret_is_base64" => secret_is_base64 = boolean(value) == Some(true),
                _ => {
                    if let Err(reason) = self.set(name, value) {
                        problems.push(format!("pgrst.{name} = '{value}' has no effect: {reason}"));
                    }
                }
            }
        }
        if let Some(secret) = secret {
            // The value is a secret: the message names only the setting
            match keys(secret, secret_is_base64) {
                Ok(ring) => self.keys = Some(Arc::new(ring)),
                Err(reason) => problems.push(format!("pgrst.jwt_secret has no effect: {reason}")),
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let text = || Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        let switch = || boolean(value).ok_or_else(|| "it must be true or false".to_owned());
        match name {
            "db_schemas" => {
                let schemas = list(value);
                if let Some(own) =
                    schemas.iter().find(|schema| ["pg_catalog", "information_schema"].contains(&schema.as_str()))
                {
                    return Err(format!("the schema {own} cannot be exposed"));
                }
                // PostgREST reads an empty list as its default
                self.schemas = if schemas.is_empty() { vec!["public".into()] } else { schemas };
            }
            "db_extra_search_path" => self.extra_search_path = list(value),
            "db_max_rows" => {
                self.plan.max_rows = match value.trim() {
                    "" | "0" => None,
                    number => Some(number.parse().map_err(|_| "it must be a whole number")?),
                }
            }
            "db_anon_role" => self.anon_role = text(),
            "db_pre_request" => self.pre_request = text().map(|name| qualified(&name)),
            "db_root_spec" => self.root_spec = text().map(|name| qualified(&name)),
            "db_pre_config" => self.pre_config = text().map(|name| qualified(&name)),
            "db_schema_poll" => {
                let seconds: u32 = value.trim().parse().map_err(|_| "it must be a whole number of seconds")?;
                self.schema_poll = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            "db_tx_end" => {
                self.tx_end = match value.trim() {
                    "commit" => TransactionEndPolicy { rollback: false, may_override: false },
                    "commit-allow-override" => TransactionEndPolicy { rollback: false, may_override: true },
                    "rollback" => TransactionEndPolicy { rollback: true, may_override: false },
                    "rollback-allow-override" => TransactionEndPolicy { rollback: true, may_override: true },
                    _ => {
                        return Err(
                            "it must be commit, commit-allow-override, rollback or rollback-allow-override".into()
                        );
                    }
                }
            }
            "db_plan_enabled" => self.plan.explain_enabled = switch()?,
            "db_aggregates_enabled" => self.plan.aggregates = switch()?,
            "db_prepared_statements" => self.prepared_statements = switch()?,
            "db_hoisted_tx_settings" => self.hoisted_settings = patterns(value)?,
            "jwt_aud" => self.audience = text(),
            "jwt_role_claim_key" => {
                self.role_claim = match text() {
                    None => ClaimPath::default(),
                    Some(path) => ClaimPath::parse(&path).ok_or("it is no path to a claim")?,
                }
            }
            "openapi_mode" => {
                self.openapi_mode = match value.trim() {
                    "follow-privileges" => OpenApiMode::FollowPrivileges,
                    "ignore-privileges" => OpenApiMode::IgnorePrivileges,
                    "disabled" => OpenApiMode::Disabled,
                    _ => return Err("it must be follow-privileges, ignore-privileges or disabled".into()),
                }
            }
            "openapi_security_active" => self.openapi_security = switch()?,
            "openapi_server_proxy_uri" => self.openapi_proxy_uri = text(),
            "server_cors_allowed_origins" => {
                let origins = list(value);
                self.cors_origins = (!origins.is_empty()).then(|| origins.into());
            }
            "server_trace_header" => {
                self.trace_header = match text() {
                    None => None,
                    Some(name) => Some(name.parse().map_err(|_| "it is no name of a header")?),
                }
            }
            "server_timing_enabled" => self.server_timing = switch()?,
            "client_error_verbosity" => self.terse_errors = value.trim() == "minimal",
            "url_use_legacy_target_names" => self.plan.legacy_target_names = switch()?,
            _ => return Err("there is no such setting".into()),
        }
        Ok(())
    }
}

fn boolean(value: &str) -> Option<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Some(true),
        "false" | "off" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn list(value: &str) -> Vec<String> {
    value.split(',').map(|name| unquote(name.trim())).filter(|name| !name.is_empty()).collect()
}

/// Parses a name as SQL writes it. A doubled quote means one quote only within quotes.
fn unquote(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => name.to_owned(),
    }
}

fn patterns(value: &str) -> Result<Vec<Regex>, String> {
    let build =
        |pattern: String| RegexBuilder::new(&pattern).size_limit(1 << 20).build().map_err(|error| error.to_string());
    list(value).into_iter().map(build).collect()
}

/// Parses `schema.name`, each possibly quoted. Without a schema, the name is looked up on the
/// search path.
pub(crate) fn qualified(text: &str) -> QualifiedName {
    let mut quoted = false;
    let dot = text.char_indices().find(|(_, c)| {
        quoted ^= *c == '"';
        *c == '.' && !quoted
    });
    match dot {
        Some((at, _)) => QualifiedName {
            schema: unquote(text.get(..at).unwrap_or_default().trim()),
            name: unquote(text.get(at + 1..).unwrap_or_default().trim()),
        },
        None => QualifiedName { schema: String::new(), name: unquote(text.trim()) },
    }
}

/// Reads a secret of at least 32 bytes, a JWK, or a JWKS.
fn keys(secret: &str, is_base64: bool) -> Result<KeyRing, String> {
    use base64::Engine as _;
    let text = secret.trim();
    if text.starts_with('{') {
        let document: serde_json::Value = serde_json::from_str(text).map_err(|_| "it is no JSON")?;
        let set = if document.get("keys").is_some() { document } else { serde_json::json!({ "keys": [document] }) };
        return key_set(&set);
    }
    let bytes = if is_base64 {
        let url_safe = text.replace('-', "+").replace('_', "/").replace('.', "=");
        let plain = url_safe.trim_end_matches('=');
        base64::engine::general_purpose::STANDARD_NO_PAD.decode(plain).map_err(|_| "it is no base64")?
    } else {
        secret.as_bytes().to_vec()
    };
    if bytes.len() < 32 {
        return Err("it must have at least 32 bytes".into());
    }
    let text = String::from_utf8(bytes).map_err(|_| "its bytes are no text")?;
    Ok(KeyRing::hs256(&Secret::new(text)))
}

/// Reads a key set. Its symmetric keys are valid, unlike those of a published set of another
/// issuer.
fn key_set(set: &serde_json::Value) -> Result<KeyRing, String> {
    let listed = set.get("keys").and_then(serde_json::Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut read = Vec::new();
    for key in listed.iter().take(MAX_KEYS) {
        read.push(SigningKey::parse_jwk(key).map_err(|error| error.to_string())?);
    }
    KeyRing::new(None, read).map_err(|error| error.to_string())
}

/// The limit of keys in a set.
const MAX_KEYS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(settings: &[(&str, &str)]) -> (RestConfig, Vec<String>) {
        let (mut config, mut problems) = (RestConfig::default(), Vec::new());
        config.apply(settings.iter().copied(), &mut problems);
        (config, problems)
    }

    #[test]
    fn the_database_overrides_the_server() {
        let (config, problems) = applied(&[
            ("db_schemas", "api, \"Odd, Name\""),
            ("db_max_rows", "7"),
            ("db_pre_request", "private.\"check.it\""),
            ("db_tx_end", "rollback-allow-override"),
            ("db_schema_poll", "2"),
            ("db_aggregates_enabled", "true"),
            ("jwt_secret", "a secret of at least thirty-two bytes"),
        ]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(config.plan.max_rows, Some(7));
        assert_eq!(config.pre_request, Some(QualifiedName { schema: "private".into(), name: "check.it".into() }));
        assert_eq!(config.tx_end, TransactionEndPolicy { rollback: true, may_override: true });
        assert_eq!(config.schema_poll, Some(Duration::from_secs(2)));
        assert!(config.plan.aggregates && config.keys.is_some());
    }

    #[test]
    fn an_invalid_setting_has_no_effect_and_is_reported() {
        let (config, problems) = applied(&[
            ("db_max_rows", "many"),
            ("db_schemas", "public, pg_catalog"),
            ("db_tx_end", "maybe"),
            ("db_schema_poll", "-1"),
            ("jwt_secret", "short"),
        ]);
        assert_eq!(config.plan.max_rows, Some(1000));
        assert_eq!(config.schemas, RestConfig::default().schemas);
        assert!(config.keys.is_none());
        assert_eq!(problems.len(), 5);
        assert_eq!(config.schema_poll, RestConfig::default().schema_poll);
        assert!(problems.iter().all(|problem| !problem.contains("short")), "a secret is never reported: {problems:?}");
    }

    #[test]
    fn an_empty_limit_is_none_and_so_is_zero() {
        assert_eq!(applied(&[("db_max_rows", "")]).0.plan.max_rows, None);
        assert_eq!(applied(&[("db_max_rows", "0")]).0.plan.max_rows, None);
    }
}
