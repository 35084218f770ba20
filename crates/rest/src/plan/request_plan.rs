//! The plan of a whole request: its statement's plan, the format of its body, and what its
//! transaction needs. Pure.

use http::Method;

use super::{
    ArgumentSource, BodyFormat, CallInput, CallPlan, JsonBody, NegotiatedFormat, PlanContext, ReadPlan, ReadRoot,
    ResultSource, RowCount, WriteOptions, WritePlan, find, hoisted_settings, is_read_only, negotiate,
};
use crate::config::RestConfig;
use crate::config::database::Isolation;
use crate::error::RestError;
use crate::query::{RequestQuery, SelectItem};
use crate::request::body::Payload;
use crate::request::media::MediaType;
use crate::request::preferences::{CountMode, ReturnPreference};
use crate::request::resource::{RequestAction, Resource, allow_function, allow_relation};
use crate::request::{ApiRequest, WriteAction};
use crate::schema::{QualifiedName, Relation, SchemaCache, nearest};

/// The database work of a request.
pub(crate) enum RequestPlan {
    /// Nothing: the response to OPTIONS names these methods.
    Allow(String),
    /// A statement.
    Statement(Box<StatementPlan>),
}

/// The plan of a main statement and of the transaction around it.
pub(crate) struct StatementPlan {
    pub operation: PlannedStatement,
    pub format: NegotiatedFormat,
    /// The `count` preference.
    pub count: Option<CountMode>,
    /// The count of rows in the statement.
    pub row_count: RowCount,
    /// The transaction is read-only.
    pub read_only: bool,
    /// Settings of the function that apply to the whole transaction.
    pub hoisted: Vec<(String, String)>,
    pub isolation: Option<Isolation>,
    /// The result must have exactly one row.
    pub is_single: bool,
    /// The limit of affected rows (`max-affected`).
    pub max_affected: Option<u64>,
    /// The number of the first row.
    pub first_row: u64,
}

/// The plan of the statement itself.
pub(crate) enum PlannedStatement {
    Read {
        plan: ReadPlan,
        relation: QualifiedName,
    },
    Write {
        plan: WritePlan,
        returns: ReturnPreference,
        /// The table has a primary key, or the request has `on_conflict`.
        resolvable: bool,
    },
    Call {
        plan: CallPlan,
    },
}

impl StatementPlan {
    /// Returns true for a PUT.
    pub fn is_put(&self) -> bool {
        matches!(&self.operation, PlannedStatement::Write { plan, .. } if plan.action == WriteAction::Put)
    }

    /// Returns true if the planner's estimate of the number of rows is needed.
    pub fn needs_estimate(&self) -> bool {
        matches!(self.operation, PlannedStatement::Read { .. })
            && matches!(self.count, Some(CountMode::Planned | CountMode::Estimated))
    }

    /// Returns the names that were used instead of aliases, each with its alias.
    pub fn legacy_names(&self) -> &[(String, String)] {
        match &self.operation {
            PlannedStatement::Read { plan, .. } => &plan.legacy_names,
            PlannedStatement::Call { plan } => &plan.read.legacy_names,
            PlannedStatement::Write { .. } => &[],
        }
    }
}

/// Plans a request against the schema cache.
///
/// # Errors
/// PGRST1xx and 2xx: the request does not fit the schema, or no accepted media type can be
/// produced.
pub(crate) fn plan(
    cache: &SchemaCache,
    config: &RestConfig,
    request: &ApiRequest<'_>,
) -> Result<RequestPlan, RestError> {
    let head = &request.head;
    let context = PlanContext { cache, schema: head.schema, settings: &config.plan };
    let plan = match (&head.resource, head.action) {
        (Resource::Root, _) => return Err(RestError::Internal),
        (Resource::Relation(name), RequestAction::Options) => {
            return Ok(RequestPlan::Allow(allow_relation(relation(cache, head.schema, name)?)));
        }
        (Resource::Function(name), RequestAction::Options) => {
            let call = find(cache, head.schema, name, CallInput::Pairs(&request.query.arguments))?;
            return Ok(RequestPlan::Allow(allow_function(&call.routine).to_owned()));
        }
        (Resource::Relation(name), RequestAction::Read { body }) => read(&context, name, request, body)?,
        (Resource::Relation(name), RequestAction::Write(action)) => write(&context, name, request, action)?,
        (Resource::Relation(name), RequestAction::Call) => {
            return Err(RestError::Method(format!("{} on {name}", Method::POST)));
        }
        (Resource::Function(name), action) => call(&context, config, name, request, action)?,
    };
    Ok(RequestPlan::Statement(Box::new(plan)))
}

fn relation<'a>(cache: &'a SchemaCache, schema: &str, name: &str) -> Result<&'a std::sync::Arc<Relation>, RestError> {
    /// The least similarity of a suggested name. A lower one would reveal names to a caller that
    /// guesses.
    const SIMILAR: f64 = 0.75;
    /// No name is suggested in schemas of this size and larger.
    const LARGE: usize = 500;
    cache.relation(schema, name).ok_or_else(|| {
        let known = cache.relations.get(schema).filter(|known| known.len() < LARGE);
        let suggestion = known.and_then(|known| nearest(name, known.keys().map(String::as_str), SIMILAR));
        RestError::NoRelation {
            schema: schema.to_owned(),
            name: name.to_owned(),
            suggestion: suggestion.map(str::to_owned),
        }
    })
}

/// Negotiates the format of a body with rows of a relation.
fn format_of_rows(
    context: &PlanContext<'_>,
    relation: &Relation,
    request: &ApiRequest<'_>,
) -> Result<NegotiatedFormat, RestError> {
    let source = ResultSource { relation: Some(&relation.name), routine: None, whole_rows: is_whole(&request.query) };
    negotiate(context.cache, &request.accepted, source, context.settings.explain_enabled)
}

fn read(
    context: &PlanContext<'_>,
    name: &str,
    request: &ApiRequest<'_>,
    body: bool,
) -> Result<StatementPlan, RestError> {
    let relation = relation(context.cache, context.schema, name)?;
    let plan = ReadPlan::new(context, ReadRoot::Relation(relation), &request.query)?;
    let format = format_of_rows(context, relation, request)?;
    request.preferences.reject_unknown()?;

    let count = request.preferences.count;
    let is_single = expects_one_row(&format);
    Ok(StatementPlan {
        row_count: row_count(count, context.settings.max_rows),
        count,
        read_only: true,
        hoisted: Vec::new(),
        isolation: None,
        is_single,
        max_affected: None,
        first_row: plan.root.offset.unwrap_or_default(),
        format: if body { format } else { format.without_body() },
        operation: PlannedStatement::Read { plan, relation: relation.name.clone() },
    })
}

fn write(
    context: &PlanContext<'_>,
    name: &str,
    request: &ApiRequest<'_>,
    action: WriteAction,
) -> Result<StatementPlan, RestError> {
    let relation = relation(context.cache, context.schema, name)?;
    let preferences = &request.preferences;
    let options = WriteOptions::from(preferences);
    let payload = match &request.payload {
        Some(Payload::Json(json)) => Some(json),
        _ => None,
    };
    let plan = WritePlan::new(context, relation, action, &request.query, options, payload)?;
    preferences.reject_unknown()?;
    let format = format_of_rows(context, relation, request)?;
    plan.check_safe_update(context)?;

    let limits_rows = matches!(action, WriteAction::Update | WriteAction::Delete);
    let max_affected = max_affected(request).filter(|_| limits_rows);
    Ok(StatementPlan {
        count: preferences.count,
        // An inner embed may remove rows from the body that were written nevertheless
        row_count: if max_affected.is_some() { RowCount::Exact } else { row_count(preferences.count, None) },
        read_only: false,
        hoisted: Vec::new(),
        isolation: None,
        is_single: expects_one_row(&format) && action != WriteAction::Put,
        max_affected,
        first_row: 0,
        format: if options.returns == ReturnPreference::Representation { format } else { format.without_body() },
        operation: PlannedStatement::Write {
            plan,
            returns: options.returns,
            resolvable: !relation.primary_key.is_empty() || request.query.on_conflict.is_some(),
        },
    })
}

fn call(
    context: &PlanContext<'_>,
    config: &RestConfig,
    name: &str,
    request: &ApiRequest<'_>,
    action: RequestAction,
) -> Result<StatementPlan, RestError> {
    let plan = find(context.cache, context.schema, name, call_input(request))?.plan(context, &request.query)?;
    let routine = &*plan.routine;
    let source = ResultSource {
        relation: routine.returns.relation.as_ref(),
        routine: Some(routine),
        whole_rows: is_whole(&request.query),
    };
    let format = negotiate(context.cache, &request.accepted, source, context.settings.explain_enabled)?;
    request.preferences.reject_unknown()?;
    let max_affected = max_affected(request);
    if max_affected.is_some() && !routine.returns.set {
        return Err(RestError::MaxAffectedOnFunction);
    }

    let is_single = expects_one_row(&format);
    let has_body = action != (RequestAction::Read { body: false }) && !routine.returns.void;
    let (mut hoisted, mut isolation) = (Vec::new(), None);
    for (name, value) in hoisted_settings(routine, &config.hoisted_settings) {
        if name.eq_ignore_ascii_case("default_transaction_isolation") {
            isolation = Isolation::parse(value);
        } else {
            hoisted.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(StatementPlan {
        count: request.preferences.count,
        row_count: row_count(request.preferences.count, None),
        read_only: is_read_only(routine, action == RequestAction::Call),
        hoisted,
        isolation,
        is_single,
        max_affected,
        first_row: plan.read.root.offset.unwrap_or_default(),
        format: if has_body { format } else { format.without_body() },
        operation: PlannedStatement::Call { plan },
    })
}

fn expects_one_row(format: &NegotiatedFormat) -> bool {
    matches!(format.body_format, BodyFormat::Object { .. }) && format.explain.is_none()
}

/// Returns how rows are counted for a preference. An estimate counts no further than `most`, the
/// size of a page.
fn row_count(mode: Option<CountMode>, most: Option<u64>) -> RowCount {
    match (mode, most) {
        (None | Some(CountMode::Planned), _) => RowCount::None,
        (Some(CountMode::Estimated), Some(most)) => RowCount::UpTo(most.saturating_add(1)),
        (Some(CountMode::Exact | CountMode::Estimated), _) => RowCount::Exact,
    }
}

/// Returns the limit of affected rows. A negative one is zero.
fn max_affected(request: &ApiRequest<'_>) -> Option<u64> {
    request.preferences.max_affected().map(|limit| u64::try_from(limit).unwrap_or_default())
}

/// Returns true if rows are selected with all of their columns.
fn is_whole(query: &RequestQuery) -> bool {
    matches!(query.select.as_slice(), [] | [SelectItem::Star])
}

/// Returns the arguments that a request sends to a function.
fn call_input<'a>(request: &'a ApiRequest<'_>) -> CallInput<'a> {
    match &request.payload {
        None => CallInput::Pairs(&request.query.arguments),
        Some(Payload::Form(pairs)) => CallInput::Pairs(pairs),
        Some(Payload::Raw { media_type, bytes }) => {
            let source = match media_type {
                MediaType::Xml => ArgumentSource::Xml,
                MediaType::Binary => ArgumentSource::Binary,
                _ => ArgumentSource::Text,
            };
            CallInput::Whole { source, body: bytes.clone() }
        }
        Some(Payload::Json(json)) => CallInput::Object {
            body: JsonBody::from(json),
            keys: json.columns(request.query.columns.as_deref()),
            is_json: request.content_type == MediaType::Json,
        },
    }
}
