//! One request's transaction: its settings, its statements, and whether it is kept (contract 14).
//!
//! Where nothing has to be looked at before the commit, everything travels in one write; a read is one implicit transaction even, which
//! needs neither BEGIN nor COMMIT. Otherwise a second write ends it.

use std::fmt::Write as _;

use http::{HeaderMap, Method, header};
use portico_database::wire::{Answers, Batch, Lease, Param, Statement, WireError};
use serde_json::{Map, Value};

use crate::caller::Identity;
use crate::config::Config;
use crate::in_database::{Isolation, RoleSettings};
use crate::sql::Sql;

/// What a transaction begins with.
pub(crate) struct Setting<'a> {
    pub config: &'a Config,
    pub identity: &'a Identity,
    /// What the role brings along.
    pub role: Option<&'a RoleSettings>,
    /// What the function that is called brings along.
    pub hoisted: &'a [(String, String)],
    pub isolation: Option<Isolation>,
    pub read_only: bool,
    /// What runs may change settings of the session, for whoever comes next.
    pub may_set: bool,
    pub schema: &'a str,
    pub method: &'a Method,
    /// The raw path, without the service's prefix.
    pub path: &'a str,
    pub headers: &'a HeaderMap,
    pub time_zone: Option<&'a str>,
    /// The search path that connections have anyway.
    pub usual_path: &'a str,
}

/// What connections have from the beginning, so that transactions need not set what is nearly always the same: times go out in UTC; the
/// search path is that of the first schema; a transaction only reads unless it says otherwise.
pub(crate) fn session(config: &Config) -> Vec<(String, String)> {
    let settings = [
        ("timezone", "UTC".to_owned()),
        ("search_path", config.schemas.first().map(|schema| search_path(config, schema)).unwrap_or_default()),
        ("default_transaction_read_only", "on".to_owned()),
        ("request.cookies", "{}".to_owned()),
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
    /// The batch that commits. What its statements set for the session by mistake, or by `SET`, ends with it.
    fn ending<'a>(&self, batch: Batch<'a>) -> Batch<'a> {
        let may_set = self.may_set || self.config.pre_request.is_some();
        if may_set && self.has_session() { batch.restoring() } else { batch }
    }

    /// Whether connections have what they began with. Behind a pooler that shares them by transaction there is nothing but the transaction.
    fn has_session(&self) -> bool {
        self.config.prepared_statements
    }
}

/// How the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Commit, whatever comes out.
    Commit,
    /// Roll back, whatever comes out; deferred constraints are checked before.
    RollBack,
    /// Somebody looks at the answers first: the transaction is left open for [`finish`].
    Later,
}

/// The statements of a request, after its settings.
pub(crate) struct Work<'a> {
    pub main: &'a Sql,
    /// Another statement behind the main one.
    pub then: Option<&'a Sql>,
}

/// What came out.
pub(crate) struct Outcome {
    answers: Answers,
    main: usize,
}

impl Outcome {
    /// The rows of the main statement.
    pub fn main(&self) -> &[portico_database::wire::Row] {
        self.answers.rows(self.main)
    }

    /// The rows of the statement behind it.
    pub fn then(&self) -> &[portico_database::wire::Row] {
        self.answers.rows(self.main + 1)
    }
}

/// Runs the statements of a request in its settings.
pub(crate) async fn run(
    lease: &mut Lease,
    setting: &Setting<'_>,
    work: Work<'_>,
    end: End,
) -> Result<Outcome, WireError> {
    let settings = Settings::of(setting);
    let settings_params = settings.params();
    let pre_request = setting.config.pre_request.as_ref().map(|function| {
        let mut call = Sql::new();
        call.raw("select ");
        if !function.schema.is_empty() {
            call.name(&function.schema).raw(".");
        }
        call.name(&function.name).raw("()");
        call
    });
    let main_params = params(work.main);
    let then_params = work.then.map(params);
    let scope = setting.identity.role.as_str();

    let mut batch = Batch::new();
    // An implicit transaction is as isolated as the session says, and only reads. Writes say what they want.
    let has_wishes = setting.isolation.is_some() || !setting.read_only || !setting.has_session();
    let is_explicit = end != End::Commit || has_wishes;
    if is_explicit {
        batch.push(Statement::named(begin(setting.isolation, setting.read_only), &[]));
    }
    batch.push(Statement::named(&settings.text, &settings_params));
    if let Some(call) = &pre_request {
        batch.push(Statement::named(call.text(), &[]).scope(scope));
    }
    let main = batch.len();
    // Bodies may be bytes, which the text form would double
    batch.push(Statement::named(work.main.text(), &main_params).scope(scope).binary());
    if let (Some(then), Some(params)) = (work.then, &then_params) {
        batch.push(Statement::named(then.text(), params).scope(scope));
    }
    match end {
        End::Later => {}
        End::Commit => {
            if is_explicit {
                batch.push(Statement::named("commit", &[]));
            }
            batch = setting.ending(batch);
        }
        End::RollBack => {
            batch.push(Statement::named("set constraints all immediate", &[]));
            batch.push(Statement::named("rollback", &[]));
        }
    }
    Ok(Outcome { answers: lease.run(&batch).await?, main })
}

/// Ends a transaction that was left open.
pub(crate) async fn finish(lease: &mut Lease, setting: &Setting<'_>, commit: bool) -> Result<(), WireError> {
    let batch = Batch::new();
    let batch = if commit {
        setting.ending(batch.statement(Statement::named("commit", &[])))
    } else {
        batch
            .statement(Statement::named("set constraints all immediate", &[]))
            .statement(Statement::named("rollback", &[]))
    };
    lease.run(&batch).await.map(drop)
}

fn begin(isolation: Option<Isolation>, read_only: bool) -> &'static str {
    match (isolation, read_only) {
        (None, true) => "begin isolation level read committed read only",
        (None, false) => "begin isolation level read committed read write",
        (Some(Isolation::RepeatableRead), true) => "begin isolation level repeatable read read only",
        (Some(Isolation::RepeatableRead), false) => "begin isolation level repeatable read read write",
        (Some(Isolation::Serializable), true) => "begin isolation level serializable read only",
        (Some(Isolation::Serializable), false) => "begin isolation level serializable read write",
    }
}

fn params(sql: &Sql) -> Vec<Param<'_>> {
    sql.params().iter().map(|param| Some(param.as_bytes())).collect()
}

/// `select set_config(…), …`: every setting in one statement. All values lie in one buffer, since every request makes this.
struct Settings {
    text: String,
    values: String,
    /// Where each value ends.
    ends: Vec<usize>,
}

impl Settings {
    fn of(setting: &Setting<'_>) -> Self {
        let identity = setting.identity;
        let room = 256 + identity.claims.len() + 64 * setting.headers.len();
        let mut settings = Self {
            text: String::with_capacity(1024),
            values: String::with_capacity(room),
            ends: Vec::with_capacity(24),
        };
        settings.text.push_str("select ");
        let path = search_path(setting.config, setting.schema);
        if path != setting.usual_path || !setting.has_session() {
            settings.put("search_path", |value| value.push_str(&path));
        }
        if !setting.has_session() {
            settings.put("timezone", |value| value.push_str("UTC"));
            settings.put("request.cookies", |value| value.push_str("{}"));
            settings.put("response.headers", |_| {});
            settings.put("response.status", |_| {});
        }
        if let Some(role) = setting.role {
            for (name, value) in &role.settings {
                settings.put_named(name, value);
            }
        }
        settings.put("role", |value| value.push_str(&identity.role));
        settings.put("request.jwt.claims", |value| value.push_str(&identity.claims));
        settings.put("request.method", |value| value.push_str(setting.method.as_str()));
        settings.put("request.path", |value| value.push_str(setting.path));
        settings.put("request.headers", |value| put_headers(value, setting.headers));
        if setting.headers.contains_key(header::COOKIE) {
            settings.put("request.cookies", |value| put_cookies(value, setting.headers));
        }
        if let Some(zone) = setting.time_zone {
            settings.put("timezone", |value| value.push_str(zone));
        }
        for (name, value) in setting.hoisted.iter().chain(&setting.config.app_settings) {
            settings.put_named(name, value);
        }
        settings
    }

    /// A setting with a name of our own.
    fn put(&mut self, name: &'static str, write: impl FnOnce(&mut String)) {
        self.separate();
        self.text.push_str("set_config('");
        self.text.push_str(name);
        self.text.push_str("', ");
        self.place(write);
        self.text.push_str(", true)");
    }

    /// A setting whose name comes from the database or the configuration.
    fn put_named(&mut self, name: &str, value: &str) {
        self.separate();
        self.text.push_str("set_config(");
        self.place(|text| text.push_str(name));
        self.text.push_str(", ");
        self.place(|text| text.push_str(value));
        self.text.push_str(", true)");
    }

    fn place(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.values);
        self.ends.push(self.values.len());
        // A String takes everything
        let _ = write!(self.text, "${}", self.ends.len());
    }

    fn separate(&mut self) {
        if !self.ends.is_empty() {
            self.text.push_str(", ");
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| self.values.as_bytes().get(*start..*end)).collect()
    }
}

/// What SQL sees of the request's headers: names in lower case, of several with one name the last.
fn put_headers(out: &mut String, headers: &HeaderMap) {
    out.push('{');
    let mut is_first = true;
    for name in headers.keys().filter(|name| *name != header::COOKIE && *name != "apikey") {
        let Some(value) = headers.get_all(name).iter().next_back() else { continue };
        if !std::mem::take(&mut is_first) {
            out.push(',');
        }
        put_json(out, name.as_str());
        out.push(':');
        // PostgreSQL's settings can not hold a zero byte; neither can a header
        put_json(out, &String::from_utf8_lossy(value.as_bytes()));
    }
    out.push('}');
}

/// The cookies, by name.
fn put_cookies(out: &mut String, headers: &HeaderMap) {
    let mut cookies = Map::new();
    for line in headers.get_all(header::COOKIE) {
        for pair in String::from_utf8_lossy(line.as_bytes()).split(';') {
            if let Some((name, value)) = pair.trim().split_once('=') {
                cookies.insert(name.to_owned(), Value::from(value));
            }
        }
    }
    out.push_str(&Value::Object(cookies).to_string());
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

    #[test]
    fn settings_come_in_the_contract_s_order_and_values_stay_outside() {
        let config = Config { app_settings: vec![("app.settings.x".into(), "'; y".into())], ..Config::default() };
        let identity = Identity { role: "anon".into(), claims: r#"{"role":"anon"}"#.into(), is_anonymous: true };
        let role = RoleSettings { settings: vec![("statement_timeout".into(), "3s".into())], isolation: None };
        let mut headers = HeaderMap::new();
        headers.append("x-a", "1".parse().unwrap());
        headers.append("x-a", "2".parse().unwrap());
        headers.append("cookie", "a=b; c=d=e; f".parse().unwrap());
        let settings = Settings::of(&Setting {
            config: &config,
            identity: &identity,
            role: Some(&role),
            hoisted: &[],
            isolation: None,
            read_only: true,
            may_set: false,
            schema: "api",
            method: &Method::GET,
            path: "/a%20b",
            headers: &headers,
            time_zone: Some("Europe/Vienna"),
            usual_path: r#""public", "extensions""#,
        });
        assert_eq!(
            settings.text,
            "select set_config('search_path', $1, true), set_config($2, $3, true), set_config('role', $4, true), \
             set_config('request.jwt.claims', $5, true), set_config('request.method', $6, true), \
             set_config('request.path', $7, true), set_config('request.headers', $8, true), \
             set_config('request.cookies', $9, true), set_config('timezone', $10, true), set_config($11, $12, true)"
        );
        assert_eq!(
            settings.params().into_iter().flatten().collect::<Vec<_>>(),
            [
                r#""api", "public", "extensions""#,
                "statement_timeout",
                "3s",
                "anon",
                r#"{"role":"anon"}"#,
                "GET",
                "/a%20b",
                r#"{"x-a":"2"}"#,
                r#"{"a":"b","c":"d=e"}"#,
                "Europe/Vienna",
                "app.settings.x",
                "'; y",
            ]
            .map(str::as_bytes)
        );
    }

    #[test]
    fn what_a_connection_has_anyway_is_not_set_again() {
        let config = Config::default();
        let headers = HeaderMap::new();
        let identity = Identity { role: "anon".into(), claims: "{}".into(), is_anonymous: true };
        let session = session(&config);
        let usual_path = &session.iter().find(|(name, _)| name == "search_path").unwrap().1;
        let setting = |config| Setting {
            config,
            identity: &identity,
            role: None,
            hoisted: &[],
            isolation: None,
            read_only: true,
            may_set: false,
            schema: "public",
            method: &Method::GET,
            path: "/a",
            headers: &headers,
            time_zone: None,
            usual_path,
        };
        assert_eq!(
            Settings::of(&setting(&config)).text,
            "select set_config('role', $1, true), set_config('request.jwt.claims', $2, true), set_config('request.method', $3, true), \
             set_config('request.path', $4, true), set_config('request.headers', $5, true)"
        );
        // Behind a pooler there may be anything
        let config = Config { prepared_statements: false, ..Config::default() };
        let settings = Settings::of(&setting(&config));
        let all = "select set_config('search_path', $1, true), set_config('timezone', $2, true), set_config('request.cookies', $3, true), \
                   set_config('response.headers', $4, true), set_config('response.status', $5, true), set_config('role', $6, true), ";
        assert!(settings.text.starts_with(all), "{}", settings.text);
        let values: Vec<_> = settings.params().into_iter().flatten().take(5).collect();
        assert_eq!(values, [usual_path.as_bytes(), b"UTC", b"{}", b"", b""]);
    }
}
