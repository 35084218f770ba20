//! The settings of a request that SQL can see: its role, and what tells of the caller (contract 14).
//!
//! All of them are set in every transaction, for that transaction alone. Nothing about the statement or the schema
//! decides which; see `portico_database::wire` for the invariant.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, Method, header};
use portico_base::Secret;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::config::database::{Isolation, RoleSettings};
use crate::request::role::RequestRole;
use crate::statement_builder::Sql;

/// Adds to a request's headers those that the front door knows.
pub(crate) type ForwardedHeaders<'a> = &'a (dyn Fn(&mut HeaderMap) + Send + Sync);

/// The circumstances of a request that its transaction is made for.
#[derive(Clone, Copy)]
pub(crate) struct TransactionContext<'a> {
    pub config: &'a Config,
    pub identity: &'a RequestRole,
    /// The role's own settings.
    pub role: Option<&'a RoleSettings>,
    /// The settings of the function that is called.
    pub hoisted: &'a [(String, String)],
    pub isolation: Option<Isolation>,
    pub read_only: bool,
    pub schema: &'a str,
    pub method: &'a Method,
    /// The raw path, without the service's prefix.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    /// Adds the headers of the front door to them.
    pub outside: ForwardedHeaders<'a>,
    /// Shown instead of the `authorization` among them.
    pub authorization: Option<&'a Secret>,
    pub time_zone: Option<&'a str>,
}

/// Returns the search path of requests for a schema.
pub(crate) fn search_path(config: &Config, schema: &str) -> String {
    let mut path = Sql::new();
    path.list(", ", config.search_path(schema), |path, schema| {
        path.name(schema);
    });
    path.text().to_owned()
}

/// The settings of one transaction, as texts.
pub(crate) struct SessionSettings<'a> {
    setting: &'a TransactionContext<'a>,
    search_path: String,
    headers: String,
    cookies: Option<String>,
}

impl<'a> SessionSettings<'a> {
    /// Makes the texts.
    pub fn of(setting: &'a TransactionContext<'a>) -> Self {
        let mut told = setting.headers.clone();
        (setting.outside)(&mut told);
        let mut headers = String::with_capacity(64 * told.len());
        put_headers(&mut headers, &told, setting.authorization);
        let cookies = told.contains_key(header::COOKIE).then(|| cookies_of(&told));
        Self { setting, search_path: search_path(setting.config, setting.schema), headers, cookies }
    }

    /// Returns names and values in the contract's order.
    pub fn list(&self) -> Vec<(&str, &str)> {
        let setting = self.setting;
        let mut list = Vec::with_capacity(16);
        list.push(("search_path", self.search_path.as_str()));
        if let Some(role) = setting.role {
            list.extend(role.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        list.extend([
            ("role", setting.identity.role.as_str()),
            ("request.jwt.claims", &setting.identity.claims),
            ("request.method", setting.method.as_str()),
            ("request.path", setting.path),
            ("request.headers", &self.headers),
            ("request.cookies", self.cookies.as_deref().unwrap_or(NO_COOKIES)),
            ("response.headers", ""),
            ("response.status", ""),
            ("timezone", setting.time_zone.unwrap_or("UTC")),
        ]);
        list.extend(setting.hoisted.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        list.extend(setting.config.app_settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        list
    }
}

/// Returns the statement that makes `count` settings for the transaction, from pairs of names and values.
pub(crate) fn set_local(count: usize) -> Cow<'static, str> {
    static USUAL: LazyLock<Vec<String>> = LazyLock::new(|| (0..32).map(write_set_local).collect());
    USUAL.get(count).map_or_else(|| write_set_local(count).into(), |text| text.as_str().into())
}

fn write_set_local(count: usize) -> String {
    let calls: Vec<_> =
        (0..count).map(|at| format!("pg_catalog.set_config(${}, ${}, true)", 2 * at + 1, 2 * at + 2)).collect();
    format!("select {}", calls.join(", "))
}

const NO_COOKIES: &str = "{}";

/// What SQL sees of the request's headers: names in lower case, of several with one name the last.
fn put_headers(out: &mut String, headers: &HeaderMap, authorization: Option<&Secret>) {
    let mut put = |name: &str, value: &str| {
        out.push(if out.is_empty() { '{' } else { ',' });
        put_json(out, name);
        out.push(':');
        put_json(out, value);
    };
    if let Some(authorization) = authorization {
        put(header::AUTHORIZATION.as_str(), authorization.expose());
    }
    let is_hidden = |name: &HeaderName| {
        *name == header::COOKIE || *name == "apikey" || (authorization.is_some() && *name == header::AUTHORIZATION)
    };
    for name in headers.keys().filter(|name| !is_hidden(name)) {
        if let Some(value) = headers.get_all(name).iter().next_back() {
            // PostgreSQL's settings can not hold a zero byte; neither can a header
            put(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
        }
    }
    out.push_str(if out.is_empty() { "{}" } else { "}" });
}

/// The cookies, by name.
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

/// Appends a JSON string. Most header values need no escape.
fn put_json(out: &mut String, text: &str) {
    if text.bytes().any(|c| c < 0x20 || c == b'"' || c == b'\\') {
        out.push_str(&Value::from(text).to_string());
    } else {
        out.extend(["\"", text, "\""]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting<'a>(config: &'a Config, identity: &'a RequestRole, headers: &'a HeaderMap) -> TransactionContext<'a> {
        TransactionContext {
            config,
            identity,
            role: None,
            hoisted: &[],
            isolation: None,
            read_only: true,
            schema: "public",
            method: &Method::GET,
            path: "/a%20b",
            headers,
            outside: &|_| {},
            authorization: None,
            time_zone: None,
        }
    }

    fn anon() -> RequestRole {
        RequestRole { role: "anon".into(), claims: r#"{"role":"anon"}"#.into(), is_anonymous: true }
    }

    #[test]
    fn settings_come_in_the_contract_s_order() {
        let config = Config { app_settings: vec![("app.settings.x".into(), "'; y".into())], ..Config::default() };
        let identity = anon();
        let role = RoleSettings { settings: vec![("statement_timeout".into(), "3s".into())], isolation: None };
        let mut headers = HeaderMap::new();
        headers.append("x-a", "1".parse().unwrap());
        headers.append("x-a", "2".parse().unwrap());
        headers.append("cookie", "a=b; c=d=e; f".parse().unwrap());
        let hoisted = [("work_mem".to_owned(), "1MB".to_owned())];
        let setting = TransactionContext {
            role: Some(&role),
            hoisted: &hoisted,
            schema: "api",
            time_zone: Some("Europe/Vienna"),
            ..setting(&config, &identity, &headers)
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
        assert_eq!(SessionSettings::of(&setting).list(), all);
    }

    #[test]
    fn a_request_without_cookies_and_preferences_sets_as_much() {
        let (identity, headers, config) = (anon(), HeaderMap::new(), Config::default());
        let setting = setting(&config, &identity, &headers);
        let settings = SessionSettings::of(&setting);
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
