//! The session settings of a request: its role, and the settings that describe the request to SQL.
//!
//! All of them are set in every transaction, for that transaction alone. Neither the statement nor
//! the schema decides which ones; see `portico_database::wire` for the invariant.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, Method, header};
use portico_base::{ForwardedHeaders, Secret};
use serde_json::{Map, Value};

use crate::config::RestConfig;
use crate::config::database::{Isolation, RoleSettings};
use crate::request::role::RequestRole;
use crate::statement_builder::Sql;

/// The inputs of a request's transaction.
#[derive(Clone, Copy)]
pub(crate) struct TransactionContext<'a> {
    pub config: &'a RestConfig,
    pub role: &'a RequestRole,
    /// The settings of the database role (`alter role … set`).
    pub role_settings: Option<&'a RoleSettings>,
    /// The settings of the called function that apply to the whole transaction.
    pub hoisted: &'a [(String, String)],
    pub isolation: Option<Isolation>,
    pub read_only: bool,
    pub schema: &'a str,
    pub method: &'a Method,
    /// The raw path, without the prefix of the service.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub forwarded: ForwardedHeaders<'a>,
    /// Replaces the `authorization` header.
    pub authorization: Option<&'a Secret>,
    pub time_zone: Option<&'a str>,
}

/// Returns the search path of requests for a schema.
pub(crate) fn search_path(config: &RestConfig, schema: &str) -> String {
    let mut path = Sql::new();
    path.list(", ", config.search_path(schema), |path, schema| {
        path.name(schema);
    });
    path.text().to_owned()
}

/// The values of all session settings of one transaction.
pub(crate) struct TransactionSettings<'a> {
    context: &'a TransactionContext<'a>,
    search_path: String,
    headers: String,
    cookies: Option<String>,
}

impl<'a> TransactionSettings<'a> {
    /// Computes the values.
    pub fn of(context: &'a TransactionContext<'a>) -> Self {
        let visible = context.forwarded.added_to(context.headers);
        let mut headers = String::with_capacity(64 * visible.len());
        write_headers(&mut headers, &visible, context.authorization);
        let cookies = visible.contains_key(header::COOKIE).then(|| cookies_of(&visible));
        Self { context, search_path: search_path(context.config, context.schema), headers, cookies }
    }

    /// Returns names and values in the order in which they are set.
    pub fn list(&self) -> Vec<(&str, &str)> {
        let context = self.context;
        let mut list = Vec::with_capacity(16);
        list.push(("search_path", self.search_path.as_str()));
        if let Some(role) = context.role_settings {
            list.extend(role.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        list.extend([
            ("role", context.role.name.as_str()),
            ("request.jwt.claims", &context.role.claims),
            ("request.method", context.method.as_str()),
            ("request.path", context.path),
            ("request.headers", &self.headers),
            ("request.cookies", self.cookies.as_deref().unwrap_or(NO_COOKIES)),
            ("response.headers", ""),
            ("response.status", ""),
            ("timezone", context.time_zone.unwrap_or("UTC")),
        ]);
        list.extend(context.hoisted.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        list.extend(context.config.app_settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        list
    }
}

/// Returns the statement that sets `count` settings for the transaction, from pairs of names and
/// values.
pub(crate) fn set_local(count: usize) -> Cow<'static, str> {
    static COMMON: LazyLock<Vec<String>> = LazyLock::new(|| (0..32).map(write_set_local).collect());
    COMMON.get(count).map_or_else(|| write_set_local(count).into(), |text| text.as_str().into())
}

fn write_set_local(count: usize) -> String {
    let calls: Vec<_> =
        (0..count).map(|at| format!("pg_catalog.set_config(${}, ${}, true)", 2 * at + 1, 2 * at + 2)).collect();
    format!("select {}", calls.join(", "))
}

const NO_COOKIES: &str = "{}";

/// Writes the headers that SQL sees as a JSON object: names in lower case; of several headers with
/// one name the last.
fn write_headers(out: &mut String, headers: &HeaderMap, authorization: Option<&Secret>) {
    let mut write = |name: &str, value: &str| {
        out.push(if out.is_empty() { '{' } else { ',' });
        write_json(out, name);
        out.push(':');
        write_json(out, value);
    };
    if let Some(authorization) = authorization {
        write(header::AUTHORIZATION.as_str(), authorization.expose());
    }
    let is_hidden = |name: &HeaderName| {
        *name == header::COOKIE || *name == "apikey" || (authorization.is_some() && *name == header::AUTHORIZATION)
    };
    for name in headers.keys().filter(|name| !is_hidden(name)) {
        if let Some(value) = headers.get_all(name).iter().next_back() {
            // PostgreSQL's settings cannot hold a zero byte; neither can a header
            write(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
        }
    }
    out.push_str(if out.is_empty() { "{}" } else { "}" });
}

/// Returns the cookies as a JSON object.
fn cookies_of(headers: &HeaderMap) -> String {
    let mut cookies = Map::new();
    for line in headers.get_all(header::COOKIE) {
        for pair in String::from_utf8_lossy(line.as_bytes()).split(';') {
            if let Some((name, value)) = pair.trim().split_once('=') {
                cookies.insert(name.to_owned(), Value::from(value));
            }
        }
    }
    Value::Object(cookies).to_string()
}

/// Appends a JSON string. Most header values need no escaping.
fn write_json(out: &mut String, text: &str) {
    if text.bytes().any(|c| c < 0x20 || c == b'"' || c == b'\\') {
        out.push_str(&Value::from(text).to_string());
    } else {
        out.extend(["\"", text, "\""]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context<'a>(config: &'a RestConfig, role: &'a RequestRole, headers: &'a HeaderMap) -> TransactionContext<'a> {
        TransactionContext {
            config,
            role,
            role_settings: None,
            hoisted: &[],
            isolation: None,
            read_only: true,
            schema: "public",
            method: &Method::GET,
            path: "/a%20b",
            headers,
            forwarded: ForwardedHeaders::new(&|_| {}),
            authorization: None,
            time_zone: None,
        }
    }

    fn anon() -> RequestRole {
        RequestRole { name: "anon".into(), claims: r#"{"role":"anon"}"#.into(), is_anonymous: true }
    }

    #[test]
    fn settings_are_listed_in_a_fixed_order() {
        let config =
            RestConfig { app_settings: vec![("app.settings.x".into(), "'; y".into())], ..RestConfig::default() };
        let role = anon();
        let role_settings = RoleSettings { settings: vec![("statement_timeout".into(), "3s".into())], isolation: None };
        let mut headers = HeaderMap::new();
        headers.append("x-a", "1".parse().unwrap());
        headers.append("x-a", "2".parse().unwrap());
        headers.append("cookie", "a=b; c=d=e; f".parse().unwrap());
        let hoisted = [("work_mem".to_owned(), "1MB".to_owned())];
        let context = TransactionContext {
            role_settings: Some(&role_settings),
            hoisted: &hoisted,
            schema: "api",
            time_zone: Some("Europe/Vienna"),
            ..context(&config, &role, &headers)
        };
        let all = [
            ("search_path", r#""api", "public", "extensions""#),
            ("statement_timeout", "3s"),
            ("role", "anon"),
            ("request.jwt.claims", r#"{"role":"anon"}"#),
            ("request.method", "GET"),
            ("request.path", "/a%20b"),
            ("request.headers", r#"{"x-a":"2"}"#),
            ("request.cookies", r#"{"a":"b","c":"d=e"}"#),
            ("response.headers", ""),
            ("response.status", ""),
            ("timezone", "Europe/Vienna"),
            ("work_mem", "1MB"),
            ("app.settings.x", "'; y"),
        ];
        assert_eq!(TransactionSettings::of(&context).list(), all);
    }

    #[test]
    fn a_request_without_cookies_and_preferences_sets_the_same_settings() {
        let (role, headers, config) = (anon(), HeaderMap::new(), RestConfig::default());
        let context = context(&config, &role, &headers);
        let settings = TransactionSettings::of(&context);
        let names: Vec<_> = settings.list().into_iter().map(|(name, _)| name).collect();
        let expected = [
            "search_path",
            "role",
            "request.jwt.claims",
            "request.method",
            "request.path",
            "request.headers",
            "request.cookies",
            "response.headers",
            "response.status",
            "timezone",
        ];
        assert_eq!(names, expected);
        assert!(settings.list().contains(&("request.cookies", "{}")));
        assert!(settings.list().contains(&("timezone", "UTC")));
    }
}
