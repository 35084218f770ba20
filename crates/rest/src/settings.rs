//! The settings of a request that SQL can see: its role, and what tells of the caller (contract 14).
//!
//! All of them are set in every transaction, for that transaction alone. Nothing about the statement or the schema
//! decides which; see `portico_database::wire` for the invariant.

use std::borrow::Cow;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, Method, header};
use portico_tokens::Secret;
use serde_json::{Map, Value};

use crate::caller::Identity;
use crate::config::Config;
use crate::in_database::{Isolation, RoleSettings};
use crate::sql::Sql;

/// Adds to a request's headers those that the front door knows.
pub(crate) type Outside<'a> = &'a (dyn Fn(&mut HeaderMap) + Send + Sync);

/// The circumstances of a request that its transaction is made for.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub config: &'a Config,
    pub identity: &'a Identity,
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
    pub outside: Outside<'a>,
    /// Shown instead of the `authorization` among them.
    pub authorization: Option<&'a Secret>,
    pub time_zone: Option<&'a str>,
    pub session_path: &'a SessionPath,
}

/// The search path that sessions begin with, as its parts.
#[derive(Debug)]
pub(crate) struct SessionPath {
    schema: String,
    extra: Vec<String>,
}

impl SessionPath {
    /// Returns that of the first schema.
    pub fn of(config: &Config) -> Self {
        Self { schema: config.schemas.first().cloned().unwrap_or_default(), extra: config.extra_search_path.clone() }
    }

    /// Whether requests for a schema have the same. The database may have changed the settings meanwhile.
    fn is_that_of(&self, config: &Config, schema: &str) -> bool {
        self.schema == schema && self.extra == config.extra_search_path
    }
}

/// Returns the settings that every session begins with, and that it is reset to behind each transaction: times go
/// out in UTC; the search path is that of the first schema.
pub(crate) fn session(config: &Config) -> Vec<(String, String)> {
    let path = config.schemas.first().map(|schema| search_path(config, schema)).unwrap_or_default();
    vec![("timezone".to_owned(), "UTC".to_owned()), ("search_path".to_owned(), path)]
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
pub(crate) struct Settings<'a> {
    setting: &'a Setting<'a>,
    /// `None`: the session begins with it.
    search_path: Option<String>,
    headers: String,
    cookies: Option<String>,
}

impl<'a> Settings<'a> {
    /// Makes the texts.
    pub fn of(setting: &'a Setting<'a>) -> Self {
        let mut told = setting.headers.clone();
        (setting.outside)(&mut told);
        let mut headers = String::with_capacity(64 * told.len());
        put_headers(&mut headers, &told, setting.authorization);
        let cookies = told.contains_key(header::COOKIE).then(|| cookies_of(&told));
        // Behind a pooler, sessions begin with anything
        let has_path =
            setting.config.prepared_statements && setting.session_path.is_that_of(setting.config, setting.schema);
        let search_path = (!has_path).then(|| search_path(setting.config, setting.schema));
        Self { setting, search_path, headers, cookies }
    }

    /// Returns names and values in the contract's order.
    pub fn list(&self) -> Vec<(&str, &str)> {
        let setting = self.setting;
        let mut list = Vec::with_capacity(16);
        list.extend(self.search_path.as_deref().map(|path| ("search_path", path)));
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
        ]);
        match setting.time_zone {
            Some(zone) => list.push(("timezone", zone)),
            None if setting.config.prepared_statements => {}
            None => list.push(("timezone", "UTC")),
        }
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

    fn setting<'a>(
        config: &'a Config,
        identity: &'a Identity,
        headers: &'a HeaderMap,
        session_path: &'a SessionPath,
    ) -> Setting<'a> {
        Setting {
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
            session_path,
        }
    }

    fn anon() -> Identity {
        Identity { role: "anon".into(), claims: r#"{"role":"anon"}"#.into(), is_anonymous: true }
    }

    #[test]
    fn settings_come_in_the_contract_s_order() {
        let config = Config { app_settings: vec![("app.settings.x".into(), "'; y".into())], ..Config::default() };
        let (identity, session_path) = (anon(), SessionPath::of(&config));
        let role = RoleSettings { settings: vec![("statement_timeout".into(), "3s".into())], isolation: None };
        let mut headers = HeaderMap::new();
        headers.append("x-a", "1".parse().unwrap());
        headers.append("x-a", "2".parse().unwrap());
        headers.append("cookie", "a=b; c=d=e; f".parse().unwrap());
        let hoisted = [("work_mem".to_owned(), "1MB".to_owned())];
        let setting = Setting {
            role: Some(&role),
            hoisted: &hoisted,
            schema: "api",
            time_zone: Some("Europe/Vienna"),
            ..setting(&config, &identity, &headers, &session_path)
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
        assert_eq!(Settings::of(&setting).list(), all);
    }

    #[test]
    fn only_what_sessions_are_reset_to_is_not_set_again() {
        let (identity, headers) = (anon(), HeaderMap::new());
        for prepared_statements in [true, false] {
            let config = Config { prepared_statements, ..Config::default() };
            let session_path = SessionPath::of(&config);
            let setting = setting(&config, &identity, &headers, &session_path);
            let settings = Settings::of(&setting);
            let names: Vec<_> = settings.list().into_iter().map(|(name, _)| name).collect();
            let always = [
                "role",
                "request.jwt.claims",
                "request.method",
                "request.path",
                "request.headers",
                "request.cookies",
                "response.headers",
                "response.status",
            ];
            match prepared_statements {
                true => assert_eq!(names, always),
                // Behind a pooler there may be anything
                false => assert_eq!(names, [&["search_path"][..], &always, &["timezone"]].concat()),
            }
            assert!(settings.list().contains(&("request.cookies", "{}")));
        }
    }
}
