//! The output of `status`: addresses and keys, for users and for scripts.
//!
//! Scripts parse the output, so names and quoting are exact.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The values that `status` shows. A value whose service is off is absent.
#[derive(Debug, Clone, Default)]
pub struct StatusValues {
    /// `http://127.0.0.1:54321`, without a slash at the end; the service URLs below it are derived.
    pub api_url: Option<String>,
    /// True if the data API is served.
    pub has_rest: bool,
    /// True if GraphQL is served.
    pub has_graphql: bool,
    /// True if functions are served.
    pub has_functions: bool,
    /// True if the tool server for coding agents is served.
    pub has_mcp: bool,
    /// True if S3 is served.
    pub has_storage_s3: bool,
    /// `postgresql://postgres:postgres@127.0.0.1:54322/postgres`
    pub db_url: Option<String>,
    /// The address of the dashboard.
    pub studio_url: Option<String>,
    /// The address of the mailbox.
    pub mailpit_url: Option<String>,
    /// Opaque key of anonymous callers.
    pub publishable_key: Option<String>,
    /// Opaque key of the service.
    pub secret_key: Option<String>,
    /// HS256 secret.
    pub jwt_secret: Option<String>,
    /// Legacy key of anonymous callers.
    pub anon_key: Option<String>,
    /// Legacy key of the service.
    pub service_role_key: Option<String>,
    /// S3 access key id, secret and region.
    pub s3: Option<S3Values>,
    /// The tables that the data API exposes without row-level security. Only JSON has them.
    pub unprotected: Vec<String>,
}

/// Credentials of the S3 endpoint.
#[derive(Debug, Clone)]
pub struct S3Values {
    /// Access key id.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: String,
    /// Region.
    pub region: String,
}

/// The value of `--output`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatusFormat {
    /// Tables for a terminal.
    #[default]
    Pretty,
    /// `NAME="value"` lines.
    Env,
    /// A JSON object.
    Json,
    /// A TOML table.
    Toml,
    /// A YAML mapping.
    Yaml,
}

impl std::str::FromStr for StatusFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "pretty" => Ok(Self::Pretty),
            "env" => Ok(Self::Env),
            "json" => Ok(Self::Json),
            "toml" => Ok(Self::Toml),
            "yaml" => Ok(Self::Yaml),
            _ => Err("must be one of [ env | pretty | json | toml | yaml ]".to_owned()),
        }
    }
}

/// The ids for `--override-name`, with the default names.
const NAMES: [(&str, &str); 18] = [
    ("api.url", "API_URL"),
    ("api.rest_url", "REST_URL"),
    ("api.graphql_url", "GRAPHQL_URL"),
    ("api.functions_url", "FUNCTIONS_URL"),
    ("api.mcp_url", "MCP_URL"),
    ("api.storage_s3_url", "STORAGE_S3_URL"),
    ("db.url", "DB_URL"),
    ("studio.url", "STUDIO_URL"),
    ("mailpit.url", "MAILPIT_URL"),
    ("inbucket.url", "INBUCKET_URL"),
    ("auth.publishable_key", "PUBLISHABLE_KEY"),
    ("auth.secret_key", "SECRET_KEY"),
    ("auth.jwt_secret", "JWT_SECRET"),
    ("auth.anon_key", "ANON_KEY"),
    ("auth.service_role_key", "SERVICE_ROLE_KEY"),
    ("storage.s3_access_key_id", "S3_PROTOCOL_ACCESS_KEY_ID"),
    ("storage.s3_secret_access_key", "S3_PROTOCOL_ACCESS_KEY_SECRET"),
    ("storage.s3_region", "S3_PROTOCOL_REGION"),
];

/// One `--override-name id=NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameOverride {
    id: &'static str,
    name: String,
}

impl std::str::FromStr for NameOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (id, name) = text.split_once('=').ok_or("must be formatted as id=NAME, for example api.url=API_URL")?;
        let (id, name) = (id.trim(), name.trim());
        let known = NAMES.iter().find(|(known, _)| *known == id).ok_or_else(|| {
            let ids: Vec<&str> = NAMES.iter().map(|(id, _)| *id).collect();
            match crate::nearest::nearest(id, ids.iter().copied()) {
                Some(meant) => format!("unknown id {id}; did you mean {meant}?"),
                None => format!("unknown id {id}; known are {}", ids.join(", ")),
            }
        })?;
        let is_name = !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_');
        if is_name {
            Ok(Self { id: known.0, name: name.to_owned() })
        } else {
            Err(format!("{name:?} cannot be the name of a variable"))
        }
    }
}

impl StatusValues {
    /// Returns the value of an id.
    fn value(&self, id: &str) -> Option<String> {
        let below =
            |is_served: bool, path: &str| self.api_url.as_ref().filter(|_| is_served).map(|url| format!("{url}{path}"));
        let s3 = |value: fn(&S3Values) -> &String| self.s3.as_ref().map(|s3| value(s3).clone());
        match id {
            "api.url" => self.api_url.clone(),
            "api.rest_url" => below(self.has_rest, "/rest/v1"),
            "api.graphql_url" => below(self.has_graphql, "/graphql/v1"),
            "api.functions_url" => below(self.has_functions, "/functions/v1"),
            "api.mcp_url" => below(self.has_mcp, "/mcp"),
            "api.storage_s3_url" => below(self.has_storage_s3, "/storage/v1/s3"),
            "db.url" => self.db_url.clone(),
            "studio.url" => self.studio_url.clone(),
            "mailpit.url" | "inbucket.url" => self.mailpit_url.clone(),
            "auth.publishable_key" => self.publishable_key.clone(),
            "auth.secret_key" => self.secret_key.clone(),
            "auth.jwt_secret" => self.jwt_secret.clone(),
            "auth.anon_key" => self.anon_key.clone(),
            "auth.service_role_key" => self.service_role_key.clone(),
            "storage.s3_access_key_id" => s3(|s3| &s3.access_key_id),
            "storage.s3_secret_access_key" => s3(|s3| &s3.secret_access_key),
            "storage.s3_region" => s3(|s3| &s3.region),
            _ => None,
        }
    }

    /// Returns names and values, by name.
    pub fn variables(&self, overrides: &[NameOverride]) -> BTreeMap<String, String> {
        let name = |id: &str, usual: &str| {
            let chosen = overrides.iter().rev().find(|other| other.id == id);
            chosen.map_or_else(|| usual.to_owned(), |chosen| chosen.name.clone())
        };
        NAMES.iter().filter_map(|(id, usual)| Some((name(id, usual), self.value(id)?))).collect()
    }

    /// Returns the output of `status`, with a line break at the end.
    pub fn render(&self, format: StatusFormat, overrides: &[NameOverride]) -> String {
        let variables = self.variables(overrides);
        let mut out = String::new();
        match format {
            StatusFormat::Pretty => return self.tables(),
            StatusFormat::Json => {
                let mut values: BTreeMap<String, serde_json::Value> =
                    variables.into_iter().map(|(name, value)| (name, value.into())).collect();
                if !self.unprotected.is_empty() {
                    values.insert("TABLES_WITHOUT_RLS".to_owned(), self.unprotected.clone().into());
                }
                out = serde_json::to_string_pretty(&values).unwrap_or_default();
                out.push('\n');
            }
            StatusFormat::Env => lines(&mut out, &variables, "=", env_value),
            StatusFormat::Toml => lines(&mut out, &variables, " = ", json_text),
            StatusFormat::Yaml => lines(&mut out, &variables, ": ", json_text),
        }
        out
    }

    fn tables(&self) -> String {
        let groups: [(&str, &[(&str, &str)]); 5] = [
            ("🔧 Development Tools", &[("Studio", "studio.url"), ("Mailpit", "mailpit.url"), ("MCP", "api.mcp_url")]),
            (
                "🌐 APIs",
                &[
                    ("Project URL", "api.url"),
                    ("REST", "api.rest_url"),
                    ("GraphQL", "api.graphql_url"),
                    ("Edge Functions", "api.functions_url"),
                ],
            ),
            ("⛁ Database", &[("URL", "db.url")]),
            ("🔑 Authentication Keys", &[("Publishable", "auth.publishable_key"), ("Secret", "auth.secret_key")]),
            (
                "📦 Storage (S3)",
                &[
                    ("URL", "api.storage_s3_url"),
                    ("Access Key", "storage.s3_access_key_id"),
                    ("Secret Key", "storage.s3_secret_access_key"),
                    ("Region", "storage.s3_region"),
                ],
            ),
        ];
        let mut out = String::new();
        for (title, rows) in groups {
            let rows: Vec<(&str, String)> =
                rows.iter().filter_map(|(label, id)| Some((*label, self.value(id)?))).collect();
            if !rows.is_empty() {
                table(&mut out, title, &rows);
                out.push('\n');
            }
        }
        out
    }
}

fn lines(out: &mut String, variables: &BTreeMap<String, String>, between: &str, quote: fn(&str) -> String) {
    for (name, value) in variables {
        out.push_str(name);
        out.push_str(between);
        out.push_str(&quote(value));
        out.push('\n');
    }
}

/// Returns a double-quoted value that shells and dotenv parsers read alike.
fn env_value(value: &str) -> String {
    let mut quoted = String::from("\"");
    for character in value.chars() {
        match character {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\\' | '"' | '!' | '$' | '`' => {
                quoted.push('\\');
                quoted.push(character);
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns JSON text, which is also a TOML basic string and a YAML double-quoted scalar.
fn json_text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

fn table(out: &mut String, title: &str, rows: &[(&str, String)]) {
    let label_width = rows.iter().map(|(label, _)| width(label)).max().unwrap_or(0);
    let value_width = rows.iter().map(|(_, value)| width(value)).max().unwrap_or(0);
    // The row of the title spans both columns and the line between them
    let value_width = value_width.max((width(title)).saturating_sub(label_width + 3));
    let bar = |width: usize| "─".repeat(width + 2);
    let pad = |text: &str, to: usize| " ".repeat(to.saturating_sub(width(text)));
    let span = label_width + value_width + 3;
    let mut write = |line: String| {
        out.push_str(&line);
        out.push('\n');
    };
    write(format!("╭{}╮", bar(span)));
    write(format!("│ {title}{} │", pad(title, span)));
    write(format!("├{}┬{}┤", bar(label_width), bar(value_width)));
    for (label, value) in rows {
        let mut line = String::new();
        let _ = write!(line, "│ {label}{} │ {value}{} │", pad(label, label_width), pad(value, value_width));
        write(line);
    }
    write(format!("╰{}┴{}╯", bar(label_width), bar(value_width)));
}

/// Returns the columns of a text on a terminal; the emoji of the titles take two.
fn width(text: &str) -> usize {
    text.chars().map(|character| if u32::from(character) >= 0x1_f300 { 2 } else { 1 }).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> StatusValues {
        StatusValues {
            api_url: Some("http://127.0.0.1:54321".to_owned()),
            has_functions: true,
            has_rest: true,
            db_url: Some("postgresql://postgres:postgres@127.0.0.1:54322/postgres".to_owned()),
            mailpit_url: Some("http://127.0.0.1:54324".to_owned()),
            anon_key: Some("eyJ.a$b".to_owned()),
            ..StatusValues::default()
        }
    }

    #[test]
    fn the_variables_have_their_exact_names_and_quotes() {
        insta::assert_snapshot!(values().render(StatusFormat::Env, &[]), @r#"
        ANON_KEY="eyJ.a\$b"
        API_URL="http://127.0.0.1:54321"
        DB_URL="postgresql://postgres:postgres@127.0.0.1:54322/postgres"
        FUNCTIONS_URL="http://127.0.0.1:54321/functions/v1"
        INBUCKET_URL="http://127.0.0.1:54324"
        MAILPIT_URL="http://127.0.0.1:54324"
        REST_URL="http://127.0.0.1:54321/rest/v1"
        "#);
        let only = StatusValues { anon_key: Some("k".to_owned()), ..StatusValues::default() };
        assert_eq!(only.render(StatusFormat::Json, &[]), "{\n  \"ANON_KEY\": \"k\"\n}\n");
        assert_eq!(only.render(StatusFormat::Toml, &[]), "ANON_KEY = \"k\"\n");
        assert_eq!(only.render(StatusFormat::Yaml, &[]), "ANON_KEY: \"k\"\n");
    }

    #[test]
    fn json_has_the_tables_without_row_level_security() {
        let shown = StatusValues {
            anon_key: Some("k".to_owned()),
            unprotected: vec!["public.notes".to_owned(), "public.\"Odd name\"".to_owned()],
            ..StatusValues::default()
        };
        insta::assert_snapshot!(shown.render(StatusFormat::Json, &[]), @r#"
        {
          "ANON_KEY": "k",
          "TABLES_WITHOUT_RLS": [
            "public.notes",
            "public.\"Odd name\""
          ]
        }
        "#);
        assert_eq!(shown.render(StatusFormat::Env, &[]), "ANON_KEY=\"k\"\n");
    }

    #[test]
    fn a_name_can_be_overridden() -> Result<(), String> {
        let overrides = ["api.url=X".parse::<NameOverride>()?, "auth.anon_key=NEXT_PUBLIC_ANON_KEY".parse()?];
        let out = values().render(StatusFormat::Env, &overrides);
        assert!(out.contains("\nX=\"http://127.0.0.1:54321\"\n"), "{out}");
        assert!(out.contains("NEXT_PUBLIC_ANON_KEY=") && !out.contains("\nAPI_URL"), "{out}");
        assert_eq!("api.ur=X".parse::<NameOverride>(), Err("unknown id api.ur; did you mean api.url?".to_owned()));
        assert!("api.url".parse::<NameOverride>().is_err());
        assert!("api.url=A B".parse::<NameOverride>().is_err());
        Ok(())
    }

    #[test]
    fn the_pretty_format_has_tables() {
        let shown = StatusValues { db_url: None, anon_key: None, mailpit_url: None, ..values() };
        insta::assert_snapshot!(shown.render(StatusFormat::Pretty, &[]), @"
        ╭──────────────────────────────────────────────────────╮
        │ 🌐 APIs                                              │
        ├────────────────┬─────────────────────────────────────┤
        │ Project URL    │ http://127.0.0.1:54321              │
        │ REST           │ http://127.0.0.1:54321/rest/v1      │
        │ Edge Functions │ http://127.0.0.1:54321/functions/v1 │
        ╰────────────────┴─────────────────────────────────────╯
        ");
    }
}
