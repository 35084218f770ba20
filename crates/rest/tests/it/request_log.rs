//! Requests without HTTP, from their texts to PostgreSQL: parsed, planned, negotiated, executed.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use portico_database::wire::{Batch, Pool, Statement, WireError, WirePoolSettings};
use portico_rest::RestError;
use portico_rest::config::PlanSettings;
use portico_rest::plan::{
    ArgumentSource, CallInput, JsonBody, PlanContext, ResultSource, WriteOptions, WritePlan, find, is_read_only,
    negotiate,
};
use portico_rest::query::{QueryTarget, RequestQuery, SelectItem, parse};
use portico_rest::request::WriteAction;
use portico_rest::request::body::{self, BodyPurpose, Payload};
use portico_rest::request::media::{self, MediaType};
use portico_rest::request::preferences::{CountMode, Preferences};
use portico_rest::request::row_window::RowWindow;
use portico_rest::schema::{LoadSettings, SchemaCache, load};
use portico_rest::sql::{self, Sql};

use crate::database::CinemaDatabase;

/// The owner of some rows of the cinema.
pub const OWNER: &str = "00000000-0000-4000-8000-00000000000a";

/// Sends requests and records their responses.
pub struct RequestLog {
    pub cinema: CinemaDatabase,
    pub settings: PlanSettings,
    cache: SchemaCache,
    pool: Pool,
    log: String,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct TestRequest<'a> {
    line: &'a str,
    role: &'a str,
    prefer: &'a str,
    accept: &'a str,
    content_type: &'a str,
    body: &'a [u8],
}

/// Parses `POST films?select=id`, sent as a role that may do everything that row-level security
/// allows.
pub fn request(line: &str) -> TestRequest<'_> {
    TestRequest { line, role: "service_role", prefer: "", accept: "", content_type: "", body: b"" }
}

impl<'a> TestRequest<'a> {
    pub fn body(self, body: &'a str) -> Self {
        Self { body: body.as_bytes(), ..self }
    }

    pub fn typed(self, content_type: &'a str, body: &'a [u8]) -> Self {
        Self { content_type, body, ..self }
    }

    pub fn prefer(self, prefer: &'a str) -> Self {
        Self { prefer, ..self }
    }

    pub fn accept(self, accept: &'a str) -> Self {
        Self { accept, ..self }
    }

    pub fn role(self, role: &'a str) -> Self {
        Self { role, ..self }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let pairs = [("prefer", self.prefer), ("accept", self.accept), ("content-type", self.content_type)];
        for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
            headers.insert(header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        headers
    }
}

/// The headers and the body of a request, as the data API reads them.
struct ReadRequest {
    preferences: Preferences,
    accepted: Vec<MediaType>,
    media_type: MediaType,
    body: Bytes,
}

/// A statement, and whether its transaction is read-only.
struct PlannedRequest {
    sql: Sql,
    read_only: bool,
}

impl RequestLog {
    /// Opens a cinema.
    pub async fn begin() -> Self {
        let cinema = CinemaDatabase::open().await;
        let settings = LoadSettings { schemas: vec!["public".to_owned()], ..LoadSettings::default() };
        let cache = load(&cinema.authenticator().await, &settings).await.unwrap();
        let pool = Pool::open(cinema.endpoint(), "authenticator", WirePoolSettings::default()).unwrap();
        Self { cinema, settings: PlanSettings::default(), cache, pool, log: String::new() }
    }

    /// Returns the requests and responses so far.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Sends a request and records its response.
    pub async fn send(&mut self, request: TestRequest<'_>) -> &mut Self {
        let response = self.response_to(request).await;
        let role = if request.role == "service_role" { String::new() } else { format!("  [{}]", request.role) };
        let extra: Vec<_> = [request.prefer, request.accept, request.content_type]
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(|text| format!("  [{text}]"))
            .collect();
        let _ = writeln!(self.log, "{}{role}{}", request.line, extra.concat());
        if !request.body.is_empty() {
            let _ = writeln!(self.log, "{}", request.body.escape_ascii().to_string().replace("\\\"", "\""));
        }
        let _ = writeln!(self.log, "=> {response}\n");
        self
    }

    /// Returns the response to a request as a line.
    pub async fn response_to(&self, request: TestRequest<'_>) -> String {
        match self.plan(request) {
            Ok(planned) => self.run(request.role, &planned).await,
            Err(refusal) => format!("{} {}", refusal.status().as_u16(), refusal.body()),
        }
    }

    fn plan(&self, request: TestRequest<'_>) -> Result<PlannedRequest, RestError> {
        let (method, url) = request.line.split_once(' ').unwrap();
        let (name, raw) = url.split_once('?').unwrap_or((url, ""));
        let headers = request.headers();
        let read = ReadRequest {
            preferences: Preferences::parse(&headers, |_| true),
            accepted: media::accepted(&headers),
            media_type: media::content_type(&headers),
            body: Bytes::copy_from_slice(request.body),
        };
        match name.strip_prefix("rpc/") {
            Some(name) => self.plan_call(method == "POST", name, raw, read),
            None => self.plan_write(method, name, raw, read),
        }
    }

    fn plan_write(&self, method: &str, name: &str, raw: &str, read: ReadRequest) -> Result<PlannedRequest, RestError> {
        let ReadRequest { preferences, accepted, media_type, body: bytes } = read;
        let context = self.context();
        let query = parse(raw, QueryTarget::Relation)?;
        let action = match method {
            "POST" => WriteAction::Insert,
            "PATCH" => WriteAction::Update,
            "PUT" => WriteAction::Put,
            _ => WriteAction::Delete,
        };
        RowWindow::of(&query, &Method::from_bytes(method.as_bytes()).unwrap(), &HeaderMap::new())?;
        let listed = query.columns.as_deref().filter(|_| action != WriteAction::Put);
        let payload = match action {
            WriteAction::Delete => None,
            _ => Some(body::parse(BodyPurpose::Rows, &media_type, listed.is_some(), bytes)?),
        };
        let payload = payload.as_ref().map(|payload| match payload {
            Payload::Json(json) => json,
            other => panic!("{other:?}"),
        });
        let relation = self.cache.relation("public", name).expect(name);
        let plan = WritePlan::new(&context, relation, action, &query, WriteOptions::from(&preferences), payload)?;
        let subject = ResultSource { relation: Some(&relation.name), routine: None, whole_rows: is_whole(&query) };
        let negotiated = negotiate(&self.cache, &accepted, subject, false)?;
        plan.check_safe_update(&context)?;
        Ok(PlannedRequest { sql: sql::write(&plan, count(&preferences), &negotiated.body_format), read_only: false })
    }

    fn plan_call(&self, posted: bool, name: &str, raw: &str, read: ReadRequest) -> Result<PlannedRequest, RestError> {
        let ReadRequest { preferences, accepted, media_type, body: bytes } = read;
        let query = parse(raw, QueryTarget::Function { read: !posted })?;
        let payload = match posted {
            true => Some(body::parse(BodyPurpose::Arguments, &media_type, query.columns.is_some(), bytes)?),
            false => None,
        };
        let given = match &payload {
            None => CallInput::Pairs(&query.arguments),
            Some(Payload::Form(pairs)) => CallInput::Pairs(pairs),
            Some(Payload::Json(json)) => CallInput::Object {
                body: JsonBody { json: json.text.clone(), is_object: json.is_object },
                keys: json.columns(query.columns.as_deref()),
                is_json: media_type == MediaType::Json,
            },
            Some(Payload::Raw { media_type, bytes }) => {
                let kind = match media_type {
                    MediaType::Text => ArgumentSource::Text,
                    MediaType::Xml => ArgumentSource::Xml,
                    _ => ArgumentSource::Binary,
                };
                CallInput::Whole { source: kind, body: bytes.clone() }
            }
        };
        let plan = find(&self.cache, "public", name, given)?.plan(&self.context(), &query)?;
        let subject = ResultSource {
            relation: plan.routine.returns.relation.as_ref(),
            routine: Some(&plan.routine),
            whole_rows: is_whole(&query),
        };
        let negotiated = negotiate(&self.cache, &accepted, subject, false)?;
        let negotiated = if plan.routine.returns.void { negotiated.without_body() } else { negotiated };
        let read_only = is_read_only(&plan.routine, posted);
        Ok(PlannedRequest { sql: sql::call(&plan, count(&preferences), &negotiated.body_format), read_only })
    }

    fn context(&self) -> PlanContext<'_> {
        PlanContext { cache: &self.cache, schema: "public", settings: &self.settings }
    }

    async fn run(&self, role: &str, planned: &PlannedRequest) -> String {
        let params: Vec<_> = planned.sql.params().iter().map(|param| Some(param.as_bytes())).collect();
        let claims = format!(r#"{{"role":"{role}","sub":"{OWNER}"}}"#);
        let settings = [Some(role.as_bytes()), Some(claims.as_bytes())];
        let begin = if planned.read_only { "begin read only" } else { "begin read write" };
        let batch = Batch::new()
            .statement(Statement::unnamed(begin, &[]))
            .statement(Statement::unnamed(
                "select set_config('search_path', '\"public\", \"extensions\"', true), set_config('role', $1, true), \
                 set_config('request.jwt.claims', $2, true)",
                &settings,
            ))
            .statement(Statement::named(planned.sql.text(), &params).binary())
            .statement(Statement::unnamed("commit", &[]));
        let mut lease = self.pool.checkout().await.unwrap();
        let answers = match lease.run(&batch).await {
            Ok(answers) => answers,
            Err(WireError::Postgres(error)) => {
                if lease.in_transaction() {
                    let rollback = Batch::new().statement(Statement::unnamed("rollback", &[]));
                    lease.run(&rollback).await.unwrap();
                }
                return format!("{} {}", error.code, error.message);
            }
            Err(error) => panic!("{error}"),
        };
        let row = answers.row(2).unwrap();
        let number = |column: sql::EnvelopeColumn| {
            row.bytes(column as usize).map(|bytes| i64::from_be_bytes(bytes.try_into().unwrap()))
        };
        let mut response = format!("rows {}", number(sql::EnvelopeColumn::Rows).unwrap());
        for (name, column) in [("total", sql::EnvelopeColumn::Total), ("inserted", sql::EnvelopeColumn::Inserted)] {
            if let Some(value) = number(column) {
                let _ = write!(response, ", {name} {value}");
            }
        }
        if let Some(location) = row.text(sql::EnvelopeColumn::Location as usize) {
            let _ = write!(response, ", location {location}");
        }
        match row.bytes(sql::EnvelopeColumn::Body as usize).map(std::str::from_utf8) {
            None => {}
            Some(Ok(body)) => {
                let _ = write!(response, "\n{body}");
            }
            Some(Err(_)) => {
                let _ = write!(response, "\n{}", row.bytes(sql::EnvelopeColumn::Body as usize).unwrap().escape_ascii());
            }
        }
        response
    }
}

fn count(preferences: &Preferences) -> sql::RowCount {
    match preferences.count {
        Some(CountMode::Exact | CountMode::Estimated) => sql::RowCount::Exact,
        Some(CountMode::Planned) | None => sql::RowCount::None,
    }
}

fn is_whole(query: &RequestQuery) -> bool {
    matches!(query.select.as_slice(), [] | [SelectItem::Star])
}
