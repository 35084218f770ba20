//! A place where PostgreSQL runs code or reads settings, and the requests that reach it.

use crate::caller::Caller;

/// A piece of schema at one such place.
pub struct Scenario {
    /// Unique in the suite.
    pub name: &'static str,
    /// Run by the role `postgres`, like a project's migration. `{inline}` stands for the request
    /// context, as an expression of PostgreSQL's own functions only.
    pub sql: &'static str,
    /// Run by the superuser before `sql`.
    pub superuser_sql: &'static str,
    /// The requests, in their order.
    pub probes: Vec<Probe>,
}

impl Scenario {
    /// Returns a scenario with requests.
    pub fn new(name: &'static str, sql: &'static str, probes: impl Into<Vec<Probe>>) -> Self {
        Self { name, sql, superuser_sql: "", probes: probes.into() }
    }

    /// Adds SQL that only the superuser may run.
    pub fn superuser(self, superuser_sql: &'static str) -> Self {
        Self { superuser_sql, ..self }
    }
}

/// A request and its expected response. In texts, `{mark}` stands for the request's mark,
/// `{context}` for the context that SQL must see, and `{sub}`, `{role}` and `{name}` for those of
/// the caller.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The HTTP method.
    pub method: &'static str,
    /// Path and query below `/rest/v1/`.
    pub resource: &'static str,
    /// The JSON body.
    pub body: Option<&'static str>,
    /// Headers besides the caller's own.
    pub headers: Vec<(&'static str, &'static str)>,
    /// SQL that the superuser runs before the request.
    pub before: Option<&'static str>,
    /// The expected response.
    pub expected: ExpectedResponse,
    /// A table with a row that has the request's mark if the request succeeded.
    pub writes: Option<&'static str>,
    /// The value of the header `x-user`, and of the redefined `auth.uid()`.
    pub user: Option<&'static str>,
    /// The service role, which row-level security does not restrict, also sends it.
    pub by_service: bool,
}

/// The expected response.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedResponse {
    /// Status and body.
    Exactly(u16, &'static str),
    /// The response that the same caller got alone on a fresh connection.
    AsAlone,
    /// Any response that shows nothing of another request: the request affects only itself.
    Anything,
}

impl Probe {
    fn new(method: &'static str, resource: &'static str) -> Self {
        Self {
            method,
            resource,
            body: None,
            headers: Vec::new(),
            before: None,
            expected: ExpectedResponse::AsAlone,
            writes: None,
            user: None,
            by_service: true,
        }
    }

    /// Makes a GET request.
    pub fn get(resource: &'static str) -> Self {
        Self::new("GET", resource)
    }

    /// Makes a write that returns the rows.
    pub fn write(method: &'static str, resource: &'static str, body: &'static str) -> Self {
        let mut probe = Self::new(method, resource);
        probe.body = Some(body);
        probe.header("prefer", "return=representation")
    }

    /// Makes a POST request that inserts a row and returns it.
    pub fn post(resource: &'static str, body: &'static str) -> Self {
        Self::write("POST", resource, body)
    }

    /// Makes a call of a function by POST.
    pub fn call(resource: &'static str) -> Self {
        let mut probe = Self::new("POST", resource);
        probe.body = Some("{}");
        probe
    }

    /// Adds a header, or replaces the one of that name.
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        self
    }

    /// Sets the expected status and body.
    pub fn expect(mut self, status: u16, body: &'static str) -> Self {
        self.expected = ExpectedResponse::Exactly(status, body);
        self
    }

    /// Expects the row that most scenarios return: the mark and the context.
    pub fn expect_row(self, status: u16) -> Self {
        self.expect(status, r#"[{"mark":"{mark}","who":"{context}"}]"#)
    }

    /// Expects any response.
    pub fn expect_anything(mut self) -> Self {
        self.expected = ExpectedResponse::Anything;
        self
    }

    /// Runs SQL as the superuser before the request.
    pub fn before(mut self, sql: &'static str) -> Self {
        self.before = Some(sql);
        self
    }

    /// Sets the table in which the request must leave a row with its mark.
    pub fn writes(mut self, table: &'static str) -> Self {
        self.writes = Some(table);
        self
    }

    /// Requests no body.
    pub fn minimal(self) -> Self {
        self.header("prefer", "return=minimal")
    }

    /// Sends the header `x-user`, which a redefined `auth.uid()` returns.
    pub fn user_header(mut self, user: &'static str) -> Self {
        self.user = Some(user);
        self.header("x-user", user)
    }

    /// Excludes the service role from the callers.
    pub fn without_service(mut self) -> Self {
        self.by_service = false;
        self
    }

    /// Returns true if a caller sends it.
    pub fn is_for(&self, caller: &Caller) -> bool {
        self.by_service || caller.role != "service_role"
    }

    /// Returns the path that SQL sees.
    pub fn path(&self) -> String {
        format!("/{}", self.resource.split('?').next().unwrap_or_default())
    }
}
