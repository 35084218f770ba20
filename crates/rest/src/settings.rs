//! What SQL sees around a request: its role and the settings that tell of the caller (contract 14).
//!
//! A setting that nothing in the statement can read is not set: plain tables and policies over `auth.uid()` have no use for the
//! request's headers, which hardly ever are the same twice.

use http::{HeaderMap, HeaderName, Method, header};
use portico_tokens::Secret;
use serde_json::{Map, Value};

use crate::caller::Identity;
use crate::config::Config;
use crate::in_database::{Isolation, RoleSettings};
use crate::sql::Sql;

/// What the statements of a request can see of its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sees {
    /// The claims: nothing else runs than what PostgreSQL brings along and `auth.uid()` and its like.
    Claims,
    /// Whatever they like.
    Everything,
}

impl Sees {
    /// What statements see that may look at any setting, or at none but the claims.
    pub fn of(looks: bool) -> Self {
        if looks { Self::Everything } else { Self::Claims }
    }
}

/// Adds to a request's headers what the front door says of it. Most requests do without, so it is not done beforehand.
pub(crate) type Outside<'a> = &'a (dyn Fn(&mut HeaderMap) + Send + Sync);

/// What a transaction begins with.
#[derive(Clone, Copy)]
pub(crate) struct Setting<'a> {
    pub config: &'a Config,
    pub identity: &'a Identity,
    /// What the role brings along.
    pub role: Option<&'a RoleSettings>,
    /// What the function that is called brings along.
    pub hoisted: &'a [(String, String)],
    pub isolation: Option<Isolation>,
    pub read_only: bool,
    pub sees: Sees,
    /// What runs may change settings of the session, for whoever comes next.
    pub may_set: bool,
    pub schema: &'a str,
    pub method: &'a Method,
    /// The raw path, without the service's prefix.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    /// Puts beside them what the front door says of the request.
    pub outside: Outside<'a>,
    /// What is shown instead of the `authorization` among them.
    pub authorization: Option<&'a Secret>,
    pub time_zone: Option<&'a str>,
    /// The search path that connections have anyway.
    pub usual_path: &'a UsualPath,
}

/// The search path that connections begin with, as what it is made of.
#[derive(Debug)]
pub(crate) struct UsualPath {
    schema: String,
    extra: Vec<String>,
}

impl UsualPath {
    /// That of the first schema.
    pub fn of(config: &Config) -> Self {
        Self { schema: config.schemas.first().cloned().unwrap_or_default(), extra: config.extra_search_path.clone() }
    }

    /// Whether requests for a schema have the same. The database may have changed the settings meanwhile.
    fn is_that_of(&self, config: &Config, schema: &str) -> bool {
        self.schema == schema && self.extra == config.extra_search_path
    }
}

/// What connections have from the beginning, so that transactions need not set what is nearly always the same: times go out in UTC; the
/// search path is that of the first schema; a transaction may write unless it says otherwise.
pub(crate) fn session(config: &Config) -> Vec<(String, String)> {
    let settings = [
        ("timezone", "UTC".to_owned()),
        ("search_path", config.schemas.first().map(|schema| search_path(config, schema)).unwrap_or_default()),
        ("default_transaction_read_only", "off".to_owned()),
        ("request.cookies", NO_COOKIES.to_owned()),
        ("response.headers", String::new()),
        ("response.status", String::new()),
    ];
    settings.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The search path of requests for a schema.
pub(crate) fn search_path(config: &Config, schema: &str) -> String {
    let mut path = Sql::new();
    path.list(", ", config.search_path(schema), |path, schema| {
        path.name(schema);
    });
    path.text().to_owned()
}

impl Setting<'_> {
    /// Whether connections have what they began with. Behind a pooler that shares them by transaction there is nothing but the transaction.
    pub fn has_session(&self) -> bool {
        self.config.prepared_statements
    }

    /// Whether the search path is the one that connections begin with.
    pub fn has_usual_path(&self) -> bool {
        self.usual_path.is_that_of(self.config, self.schema)
    }
}

/// What of a request is the same for everybody who asks alike, so that a connection may keep it, and what holds for its transaction alone.
pub(crate) struct Settings<'a> {
    setting: &'a Setting<'a>,
    /// Where connections have another, or none.
    search_path: Option<String>,
    headers: String,
    cookies: Option<String>,
}

impl<'a> Settings<'a> {
    /// Makes the texts that are needed.
    pub fn of(setting: &'a Setting<'a>) -> Self {
        let (mut headers, mut cookies) = (String::new(), None);
        if setting.sees == Sees::Everything {
            let mut told = setting.headers.clone();
            (setting.outside)(&mut told);
            headers.reserve(64 * told.len());
            put_headers(&mut headers, &told, setting.authorization);
            cookies = told.contains_key(header::COOKIE).then(|| self::cookies(&told));
        }
        let has_path = setting.has_session() && setting.has_usual_path();
        let search_path = (!has_path).then(|| search_path(setting.config, setting.schema));
        Self { setting, search_path, headers, cookies }
    }

    /// What the connection may keep, in the contract's order. Without a session to keep anything in, everything.
    pub fn kept(&self) -> Vec<(&str, &str)> {
        let setting = self.setting;
        let mut kept = Vec::with_capacity(16);
        if !setting.has_session() {
            kept.extend([
                ("search_path", self.search_path.as_deref().unwrap_or_default()),
                ("timezone", setting.time_zone.unwrap_or("UTC")),
                ("response.headers", ""),
                ("response.status", ""),
            ]);
        }
        if let Some(role) = setting.role {
            kept.extend(role.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        kept.extend([("role", setting.identity.role.as_str()), ("request.jwt.claims", &setting.identity.claims)]);
        if setting.sees == Sees::Everything {
            kept.extend([
                ("request.method", setting.method.as_str()),
                ("request.path", setting.path),
                ("request.headers", &self.headers),
            ]);
            match &self.cookies {
                Some(cookies) => kept.push(("request.cookies", cookies)),
                None if setting.has_session() => {}
                None => kept.push(("request.cookies", NO_COOKIES)),
            }
        }
        if !setting.has_session() {
            kept.extend(setting.hoisted.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        }
        kept.extend(setting.config.app_settings.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        kept
    }

    /// Settings that nobody looks at.
    pub fn unseen(&self) -> &'static [&'static str] {
        match self.setting.sees {
            Sees::Claims => &["request.method", "request.path", "request.headers", "request.cookies"],
            Sees::Everything => &[],
        }
    }

    /// What is set for the transaction alone, though the connection has something else.
    pub fn passing(&self) -> Vec<(&str, &str)> {
        let setting = self.setting;
        if !setting.has_session() {
            return Vec::new();
        }
        let path = self.search_path.as_deref().map(|path| ("search_path", path));
        let zone = setting.time_zone.map(|zone| ("timezone", zone));
        let hoisted = setting.hoisted.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        path.into_iter().chain(zone).chain(hoisted).collect()
    }
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
fn cookies(headers: &HeaderMap) -> String {
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
        usual_path: &'a UsualPath,
    ) -> Setting<'a> {
        Setting {
            config,
            identity,
            role: None,
            hoisted: &[],
            isolation: None,
            read_only: true,
            sees: Sees::Everything,
            may_set: false,
            schema: "public",
            method: &Method::GET,
            path: "/a%20b",
            headers,
            outside: &|_| {},
            authorization: None,
            time_zone: None,
            usual_path,
        }
    }

    fn anon() -> Identity {
        Identity { role: "anon".into(), claims: r#"{"role":"anon"}"#.into(), is_anonymous: true }
    }

    #[test]
    fn settings_come_in_the_contract_s_order() {
        let config = Config { app_settings: vec![("app.settings.x".into(), "'; y".into())], ..Config::default() };
        let (identity, usual_path) = (anon(), UsualPath::of(&config));
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
            ..setting(&config, &identity, &headers, &usual_path)
        };
        let settings = Settings::of(&setting);
        let kept = [
            ("statement_timeout", "3s"),
            ("role", "anon"),
            ("request.jwt.claims", r#"{"role":"anon"}"#),
            ("request.method", "GET"),
            ("request.path", "/a%20b"),
            ("request.headers", r#"{"x-a":"2"}"#),
            ("request.cookies", r#"{"a":"b","c":"d=e"}"#),
            ("app.settings.x", "'; y"),
        ];
        assert_eq!(settings.kept(), kept);
        let path = r#""api", "public", "extensions""#;
        let passing = [("search_path", path), ("timezone", "Europe/Vienna"), ("work_mem", "1MB")];
        assert_eq!(settings.passing(), passing);
        // Behind a pooler there may be anything, and nothing can be kept
        let config = Config { prepared_statements: false, ..config.clone() };
        let setting = Setting { config: &config, ..setting };
        let settings = Settings::of(&setting);
        let front =
            [("search_path", path), ("timezone", "Europe/Vienna"), ("response.headers", ""), ("response.status", "")];
        assert_eq!(settings.kept(), [&front[..], &kept[..7], &[passing[2]], &kept[7..]].concat());
        assert!(settings.passing().is_empty());
    }

    #[test]
    fn what_nobody_can_see_is_not_set() {
        let (config, identity, mut headers) = (Config::default(), anon(), HeaderMap::new());
        let usual_path = UsualPath::of(&config);
        headers.append("cookie", "a=b".parse().unwrap());
        let blind = Setting { sees: Sees::Claims, ..setting(&config, &identity, &headers, &usual_path) };
        let settings = Settings::of(&blind);
        assert_eq!(settings.kept(), [("role", "anon"), ("request.jwt.claims", r#"{"role":"anon"}"#)]);
        assert_eq!(settings.unseen().len(), 4);
        assert!(settings.passing().is_empty());
        let all = Setting { sees: Sees::Everything, ..blind };
        let settings = Settings::of(&all);
        assert_eq!(settings.kept().len(), 6);
        assert!(settings.unseen().is_empty());
        // Without a session even empty cookies are said
        let (config, headers) = (Config { prepared_statements: false, ..Config::default() }, HeaderMap::new());
        let usual_path = UsualPath::of(&config);
        let setting = setting(&config, &identity, &headers, &usual_path);
        assert!(Settings::of(&setting).kept().contains(&("request.cookies", "{}")));
    }
}
