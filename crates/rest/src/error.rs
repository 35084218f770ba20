//! The errors of this service, and their form on the wire.

use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

/// An error: one variant for each code.
#[derive(Debug, Clone, PartialEq)]
pub enum RestError {
    /// PGRST000: the database cannot be reached.
    NoConnection(String),
    /// PGRST001: the connection was lost during the request.
    ConnectionLost(String),
    /// PGRST002: the schema cache was never loaded.
    NoSchemaCache,
    /// PGRST003: no connection became available in time.
    PoolTimeout,
    /// PGRST100: a part of the query string cannot be parsed.
    Parse {
        /// `"failed to parse …" (line 1, column n)`
        message: String,
        /// The text that was found, and what was expected.
        details: String,
    },
    /// PGRST101: functions accept GET, HEAD and POST only.
    MethodOnFunction(String),
    /// PGRST102: the body cannot be parsed.
    Body(String),
    /// PGRST103: the range cannot be satisfied.
    Range {
        /// The reason.
        details: String,
        /// `Content-Range` of the response, if the total is known.
        content_range: Option<String>,
    },
    /// PGRST105: a PUT whose filters are not exactly the primary key.
    PutFilters,
    /// PGRST106: the schema is not exposed.
    Schema {
        /// The requested schema.
        name: String,
        /// The exposed schemas.
        exposed: Vec<String>,
    },
    /// PGRST107: no accepted media type can be produced.
    Unacceptable(Vec<String>),
    /// PGRST108: a filter, order or limit names an embed that is not in `select`.
    NotEmbedded {
        /// The name.
        name: String,
        /// The alias of the embed, if its name is not allowed there.
        alias: Option<String>,
    },
    /// PGRST111: `response.headers` cannot be parsed.
    ResponseHeaders,
    /// PGRST112: `response.status` cannot be parsed.
    ResponseStatus,
    /// PGRST114: a PUT with limits.
    PutRange,
    /// PGRST115: the body of a PUT describes another row than the URL.
    PutKey,
    /// PGRST116: the result does not have exactly one row.
    NotSingular(u64),
    /// PGRST117: unsupported method.
    Method(String),
    /// PGRST118: a sort term refers to an embed with several rows.
    RelatedOrder {
        /// The relation whose rows are sorted.
        origin: String,
        /// The embed.
        target: String,
    },
    /// PGRST122: `handling=strict` with unknown preferences.
    Preferences(Vec<String>),
    /// PGRST123: aggregates are disabled.
    Aggregates,
    /// PGRST124: more affected rows than `max-affected`.
    MaxAffected(u64),
    /// PGRST125: no resource has this path.
    Path,
    /// PGRST126: the OpenAPI document is disabled.
    RootDisabled,
    /// PGRST127: not implemented; the text names the feature.
    NotImplemented(String),
    /// PGRST128: `max-affected` on a function that returns no set.
    MaxAffectedOnFunction,
    /// PGRST200: no relationship.
    NoRelationship {
        /// The relation at which it starts.
        origin: String,
        /// The relation to which it leads.
        target: String,
        /// `!hint`
        hint: Option<String>,
        /// The schema of both relations.
        schema: String,
        /// The whole text of the hint.
        suggestion: Option<String>,
    },
    /// PGRST201: several relationships.
    AmbiguousRelationship {
        /// The relation at which they start.
        origin: String,
        /// The relation to which they lead.
        target: String,
        /// Texts that describe each of them.
        candidates: Vec<RelationshipText>,
        /// `target!hint` for each.
        suggestions: Vec<String>,
    },
    /// PGRST202: no such function.
    NoFunction {
        /// The whole message.
        message: String,
        /// The whole details.
        details: String,
        /// The whole hint.
        hint: Option<String>,
    },
    /// PGRST203: several functions; their signatures.
    AmbiguousFunction(Vec<String>),
    /// PGRST204: the body names a column that does not exist.
    NoColumn {
        /// The column.
        column: String,
        /// The relation.
        relation: String,
    },
    /// PGRST205: no such relation.
    NoRelation {
        /// The schema.
        schema: String,
        /// The name.
        name: String,
        /// The most similar name that exists.
        suggestion: Option<String>,
    },
    /// PGRST300: a token, and no secret to verify it with.
    NoSecret,
    /// PGRST301: the token cannot be verified.
    TokenInvalid {
        /// The reason.
        message: String,
        /// More details.
        details: Option<String>,
    },
    /// PGRST302: requests without a token are not allowed.
    AnonymousDisabled,
    /// PGRST303: the token's claims are not valid.
    TokenClaims(String),
    /// An error of PostgreSQL.
    Postgres(Box<PostgresErrorResponse>),
    /// PGRSTX00: a bug of this server; the log has details.
    Internal,
}

/// The description of one candidate of an ambiguous embed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationshipText {
    /// `many-to-one`, for example.
    pub cardinality: &'static str,
    /// `origin with target`
    pub embedding: String,
    /// `constraint using origin(columns) and target(columns)`
    pub relationship: String,
}

/// An error of PostgreSQL and the response to it.
#[derive(Debug, Clone, PartialEq)]
pub struct PostgresErrorResponse {
    /// The SQLSTATE, or the code that `RAISE SQLSTATE 'PGRST'` has set.
    pub code: String,
    /// MESSAGE.
    pub message: String,
    /// DETAIL.
    pub details: Option<String>,
    /// HINT.
    pub hint: Option<String>,
    /// CONTEXT, the call stack with one entry a line. It is not part of the response.
    pub context: Option<String>,
    /// The status of the response.
    pub status: StatusCode,
    /// The reason phrase of HTTP/1.1, if it is not the standard one.
    pub reason: Option<String>,
    /// Additional headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// The number of seconds after which a client should retry. Without it, the official client would
/// retry three times at once.
const RETRY_AFTER: &str = "1";

impl RestError {
    /// Returns the PGRST code, or the SQLSTATE.
    pub fn code(&self) -> &str {
        match self {
            Self::NoConnection(_) => "PGRST000",
            Self::ConnectionLost(_) => "PGRST001",
            Self::NoSchemaCache => "PGRST002",
            Self::PoolTimeout => "PGRST003",
            Self::Parse { .. } => "PGRST100",
            Self::MethodOnFunction(_) => "PGRST101",
            Self::Body(_) => "PGRST102",
            Self::Range { .. } => "PGRST103",
            Self::PutFilters => "PGRST105",
            Self::Schema { .. } => "PGRST106",
            Self::Unacceptable(_) => "PGRST107",
            Self::NotEmbedded { .. } => "PGRST108",
            Self::ResponseHeaders => "PGRST111",
            Self::ResponseStatus => "PGRST112",
            Self::PutRange => "PGRST114",
            Self::PutKey => "PGRST115",
            Self::NotSingular(_) => "PGRST116",
            Self::Method(_) => "PGRST117",
            Self::RelatedOrder { .. } => "PGRST118",
            Self::Preferences(_) => "PGRST122",
            Self::Aggregates => "PGRST123",
            Self::MaxAffected(_) => "PGRST124",
            Self::Path => "PGRST125",
            Self::RootDisabled => "PGRST126",
            Self::NotImplemented(_) => "PGRST127",
            Self::MaxAffectedOnFunction => "PGRST128",
            Self::NoRelationship { .. } => "PGRST200",
            Self::AmbiguousRelationship { .. } => "PGRST201",
            Self::NoFunction { .. } => "PGRST202",
            Self::AmbiguousFunction(_) => "PGRST203",
            Self::NoColumn { .. } => "PGRST204",
            Self::NoRelation { .. } => "PGRST205",
            Self::NoSecret => "PGRST300",
            Self::TokenInvalid { .. } => "PGRST301",
            Self::AnonymousDisabled => "PGRST302",
            Self::TokenClaims(_) => "PGRST303",
            Self::Postgres(error) => &error.code,
            Self::Internal => "PGRSTX00",
        }
    }

    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoConnection(_) | Self::ConnectionLost(_) | Self::NoSchemaCache => StatusCode::SERVICE_UNAVAILABLE,
            Self::PoolTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Parse { .. }
            | Self::Body(_)
            | Self::NotEmbedded { .. }
            | Self::PutRange
            | Self::PutKey
            | Self::RelatedOrder { .. }
            | Self::Preferences(_)
            | Self::Aggregates
            | Self::MaxAffected(_)
            | Self::NotImplemented(_)
            | Self::MaxAffectedOnFunction
            | Self::NoRelationship { .. }
            | Self::NoColumn { .. } => StatusCode::BAD_REQUEST,
            Self::MethodOnFunction(_) | Self::PutFilters | Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Range { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Schema { .. } | Self::Unacceptable(_) | Self::NotSingular(_) => StatusCode::NOT_ACCEPTABLE,
            Self::ResponseHeaders | Self::ResponseStatus | Self::NoSecret | Self::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Self::Path | Self::RootDisabled | Self::NoFunction { .. } | Self::NoRelation { .. } => {
                StatusCode::NOT_FOUND
            }
            Self::AmbiguousRelationship { .. } | Self::AmbiguousFunction(_) => StatusCode::MULTIPLE_CHOICES,
            Self::TokenInvalid { .. } | Self::AnonymousDisabled | Self::TokenClaims(_) => StatusCode::UNAUTHORIZED,
            Self::Postgres(error) => error.status,
        }
    }

    /// Returns the message: one sentence.
    pub fn message(&self) -> String {
        match self {
            Self::NoConnection(_) => "Database connection error. Retrying the connection.".into(),
            Self::ConnectionLost(_) => "Database client error. Retrying the connection.".into(),
            Self::NoSchemaCache => "Could not query the database for the schema cache. Retrying.".into(),
            Self::PoolTimeout => "Timed out acquiring connection from connection pool.".into(),
            Self::Parse { message, .. } | Self::Body(message) | Self::NoFunction { message, .. } => message.clone(),
            Self::MethodOnFunction(method) => format!("Cannot use the {method} method on RPC"),
            Self::Range { .. } => "Requested range not satisfiable".into(),
            Self::PutFilters => "Filters must include all and only primary key columns with 'eq' operators".into(),
            Self::Schema { name, .. } => format!("Invalid schema: {name}"),
            Self::Unacceptable(types) => format!("None of these media types are available: {}", types.join(", ")),
            Self::NotEmbedded { name, .. } => format!("'{name}' is not an embedded resource in this request"),
            Self::ResponseHeaders => {
                "response.headers guc must be a JSON array composed of objects with a single key and a string value"
                    .into()
            }
            Self::ResponseStatus => "response.status guc must be a valid status code".into(),
            Self::PutRange => "limit/offset querystring parameters are not allowed for PUT".into(),
            Self::PutKey => "Payload values do not match URL in primary key column(s)".into(),
            Self::NotSingular(_) => "Cannot coerce the result to a single JSON object".into(),
            Self::Method(method) => format!("Unsupported HTTP method: {method}"),
            Self::RelatedOrder { target, .. } => format!("A related order on '{target}' is not possible"),
            Self::Preferences(_) => "Invalid preferences given with handling=strict".into(),
            Self::Aggregates => "Use of aggregate functions is not allowed".into(),
            Self::MaxAffected(_) => "Query result exceeds max-affected preference constraint".into(),
            Self::Path => "Invalid path specified in request URL".into(),
            Self::RootDisabled => "Root endpoint metadata is disabled".into(),
            Self::NotImplemented(_) => "Feature not implemented".into(),
            Self::MaxAffectedOnFunction => {
                "Function must return SETOF or TABLE when max-affected preference is used with handling=strict".into()
            }
            Self::NoRelationship { origin, target, .. } => {
                format!("Could not find a relationship between '{origin}' and '{target}' in the schema cache")
            }
            Self::AmbiguousRelationship { origin, target, .. } => {
                format!("Could not embed because more than one relationship was found for '{origin}' and '{target}'")
            }
            Self::AmbiguousFunction(candidates) => {
                format!("Could not choose the best candidate function between: {}", candidates.join(", "))
            }
            Self::NoColumn { column, relation } => {
                format!("Could not find the '{column}' column of '{relation}' in the schema cache")
            }
            Self::NoRelation { schema, name, .. } => {
                format!("Could not find the table '{schema}.{name}' in the schema cache")
            }
            Self::NoSecret => "Server lacks JWT secret".into(),
            Self::TokenInvalid { message, .. } | Self::TokenClaims(message) => message.clone(),
            Self::AnonymousDisabled => "Anonymous access is disabled".into(),
            Self::Postgres(error) => error.message.clone(),
            Self::Internal => "Something went wrong here; the server's log says more".into(),
        }
    }

    /// Returns the details: a text; for PGRST201 a list.
    pub fn details(&self) -> Option<Value> {
        let text = |text: &str| Some(Value::String(text.to_owned()));
        match self {
            Self::NoConnection(details)
            | Self::ConnectionLost(details)
            | Self::Parse { details, .. }
            | Self::Range { details, .. }
            | Self::NotImplemented(details)
            | Self::NoFunction { details, .. } => text(details),
            Self::NotEmbedded { alias: Some(_), .. } => {
                text("Target names are not allowed in filters if they have an alias")
            }
            Self::NotSingular(rows) => text(&format!("The result contains {rows} rows")),
            Self::RelatedOrder { origin, target } => {
                text(&format!("'{origin}' and '{target}' do not form a many-to-one or one-to-one relationship"))
            }
            Self::Preferences(unknown) => text(&format!("Invalid preferences: {}", unknown.join(", "))),
            Self::MaxAffected(rows) => text(&format!("The query affects {rows} rows")),
            Self::NoRelationship { origin, target, hint, schema, .. } => {
                let using = hint.as_ref().map_or(String::new(), |hint| format!(" using the hint '{hint}'"));
                text(&format!(
                    "Searched for a foreign key relationship between '{origin}' and '{target}'{using} in the schema \
                     '{schema}', but no matches were found."
                ))
            }
            Self::AmbiguousRelationship { candidates, .. } => Some(
                candidates
                    .iter()
                    .map(|candidate| {
                        json!({
                            "cardinality": candidate.cardinality,
                            "embedding": candidate.embedding,
                            "relationship": candidate.relationship,
                        })
                    })
                    .collect(),
            ),
            Self::TokenInvalid { details, .. } => details.as_deref().and_then(text),
            Self::Postgres(error) => error.details.as_deref().and_then(text),
            _ => None,
        }
    }

    /// Returns the hint.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Schema { exposed, .. } => {
                Some(format!("Only the following schemas are exposed: {}", exposed.join(", ")))
            }
            Self::NotEmbedded { name, alias: None } => {
                Some(format!("Verify that '{name}' is included in the 'select' query parameter."))
            }
            Self::NotEmbedded { name, alias: Some(alias) } => {
                Some(format!("Change '{name}' to '{alias}' in filters, orders or limits."))
            }
            Self::NoRelationship { suggestion, .. } => suggestion.clone(),
            Self::AmbiguousRelationship { target, suggestions, .. } => {
                let list: Vec<_> = suggestions.iter().map(|suggestion| format!("'{suggestion}'")).collect();
                Some(format!(
                    "Try changing '{target}' to one of the following: {}. Find the desired relationship in the 'details' key.",
                    list.join(", ")
                ))
            }
            Self::NoFunction { hint, .. } => hint.clone(),
            Self::AmbiguousFunction(_) => Some(
                "Try renaming the parameters or the function itself in the database so function overloading can be resolved"
                    .into(),
            ),
            Self::NoRelation { schema, suggestion, .. } => {
                suggestion.as_ref().map(|name| format!("Perhaps you meant the table '{schema}.{name}'"))
            }
            Self::Postgres(error) => error.hint.clone(),
            _ => None,
        }
    }

    /// Returns the headers that are specific to this error.
    pub fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        use http::header::{CONTENT_RANGE, RETRY_AFTER as RETRY, WWW_AUTHENTICATE};
        let mut headers = Vec::new();
        match self {
            Self::TokenInvalid { message, .. } | Self::TokenClaims(message) => {
                let text = format!("Bearer error=\"invalid_token\", error_description=\"{message}\"");
                headers.extend(HeaderValue::from_str(&text).ok().map(|value| (WWW_AUTHENTICATE, value)));
            }
            Self::AnonymousDisabled => headers.push((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::Range { content_range: Some(range), .. } => {
                headers.extend(HeaderValue::from_str(range).ok().map(|value| (CONTENT_RANGE, value)));
            }
            Self::Postgres(error) => {
                headers.clone_from(&error.headers);
                if error.status == StatusCode::UNAUTHORIZED {
                    headers.push((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
                }
            }
            _ => {}
        }
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            headers.push((RETRY, HeaderValue::from_static(RETRY_AFTER)));
        }
        headers
    }

    /// Returns the JSON of the response, which always has the same four keys.
    pub fn body(&self) -> Value {
        json!({
            "code": self.code(),
            "details": self.details(),
            "hint": self.hint(),
            "message": self.message(),
        })
    }
}

impl std::fmt::Display for RestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code(), self.message())
    }
}

impl std::error::Error for RestError {}
