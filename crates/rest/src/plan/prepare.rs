//! From what was asked to one statement: steps 9 and 10 of contract 3. Pure.

use http::Method;

use crate::config::database::Isolation;
use crate::error::RestError;
use crate::execute::explain;
use crate::handler::ApiRequest;
use crate::plan::{
    self, ArgumentSource, BodyFormat, CallInput, NegotiatedFormat, PlanContext, ReadPlan, ReadRoot, ResultSource,
    WriteAction, WriteOptions, WritePlan,
};
use crate::query::{Query, SelectItem};
use crate::request::body::Payload;
use crate::request::media::MediaType;
use crate::request::preferences::{CountMode, Resolution, ReturnPreference};
use crate::request::resource::{RequestAction, Resource, allow_function, allow_relation};
use crate::schema::{QualifiedName, SchemaCache, nearest};
use crate::snapshot::Snapshot;
use crate::sql::{self, RowCount, Sql, StatementOutput};

/// What a request comes to.
pub(crate) enum Planned {
    /// OPTIONS: the methods that there are.
    Allow(String),
    /// Everything else.
    Statement(Box<Prepared>),
}

/// A statement, and what has to be known around it.
pub(crate) struct Prepared {
    pub main: Sql,
    pub yields: StatementOutput,
    /// `EXPLAIN` of the count.
    pub estimate: Option<Sql>,
    pub kind: Kind,
    pub negotiated: NegotiatedFormat,
    /// The transaction only reads.
    pub read_only: bool,
    /// SessionSettings of the function that hold for the whole transaction.
    pub hoisted: Vec<(String, String)>,
    pub isolation: Option<Isolation>,
    /// There has to be exactly one row.
    pub is_single: bool,
    /// The most rows that may be written or returned.
    pub max_affected: Option<u64>,
    /// The first row's number.
    pub first: u64,
    /// What a count was asked for, as far as it is honoured.
    pub count: Option<CountMode>,
    /// Names that stood for aliases (7.6).
    pub legacy_names: Vec<(String, String)>,
}

/// What kind of request it is, with what its answer depends on.
pub(crate) enum Kind {
    Read {
        relation: QualifiedName,
    },
    Write {
        relation: QualifiedName,
        action: WriteAction,
        returns: ReturnPreference,
        resolution: Option<Resolution>,
        /// The table has a primary key, or `on_conflict` was given.
        resolvable: bool,
    },
    Call {
        void: bool,
    },
}

/// Plans a request against a snapshot.
pub(crate) fn plan(snapshot: &Snapshot, schema: &str, asked: &ApiRequest<'_>) -> Result<Planned, RestError> {
    let cache = snapshot.cache.as_deref().ok_or(RestError::NoSchemaCache)?;
    let context = PlanContext { cache, schema, settings: &snapshot.config.plan };
    match (&asked.resource, asked.action) {
        (Resource::Root, _) => Err(RestError::Internal),
        (Resource::Relation(name), RequestAction::Options) => {
            Ok(Planned::Allow(allow_relation(relation(cache, schema, name)?)))
        }
        (Resource::Function(name), RequestAction::Options) => {
            let target = plan::find(cache, schema, name, CallInput::Pairs(&asked.query.arguments))?;
            Ok(Planned::Allow(allow_function(&target.routine).to_owned()))
        }
        (Resource::Relation(name), RequestAction::Read { body }) => read(&context, name, asked, body),
        (Resource::Relation(name), RequestAction::Write(action)) => write(&context, name, asked, action),
        (Resource::Relation(name), RequestAction::Call) => {
            Err(RestError::Method(format!("{} on {name}", Method::POST)))
        }
        (Resource::Function(name), action) => call(&context, snapshot, name, asked, action),
    }
}

fn relation<'a>(
    cache: &'a SchemaCache,
    schema: &str,
    name: &str,
) -> Result<&'a std::sync::Arc<crate::schema::Relation>, RestError> {
    /// The least similarity of a name that is told, so that nobody learns names by guessing (16.4).
    const SIMILAR: f64 = 0.75;
    /// In larger schemas nothing is told.
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

fn read(context: &PlanContext<'_>, name: &str, asked: &ApiRequest<'_>, body: bool) -> Result<Planned, RestError> {
    let relation = relation(context.cache, context.schema, name)?;
    let plan = ReadPlan::new(context, ReadRoot::Relation(relation), &asked.query)?;
    let subject = ResultSource { relation: Some(&relation.name), routine: None, whole_rows: is_whole(&asked.query) };
    let negotiated = plan::negotiate(context.cache, accepted(asked), subject, context.settings.explain_enabled)?;
    asked.preferences.refuse_unknown()?;

    let mode = asked.preferences.count;
    let count = count(mode, context.settings.max_rows);
    let estimated = matches!(mode, Some(CountMode::Planned | CountMode::Estimated));
    let is_single = matches!(negotiated.body_format, BodyFormat::Object { .. }) && negotiated.explain.is_none();
    let negotiated = if body { negotiated } else { negotiated.without_body() };
    let is_plain = body && count == RowCount::None;
    let plain = is_plain.then(|| sql::plain_read(&plan, &negotiated.body_format)).flatten();
    let (main, yields) = main(plain, &negotiated, || sql::read_statement(&plan, count, &negotiated.body_format));
    Ok(Planned::Statement(Box::new(Prepared {
        main,
        estimate: estimated.then(|| explain::of_count(sql::matching(&plan))),
        kind: Kind::Read { relation: relation.name.clone() },
        negotiated,
        yields,
        read_only: true,
        hoisted: Vec::new(),
        isolation: None,
        is_single,
        max_affected: None,
        first: plan.root.offset.unwrap_or_default(),
        count: mode,
        legacy_names: plan.legacy_names,
    })))
}

fn write(
    context: &PlanContext<'_>,
    name: &str,
    asked: &ApiRequest<'_>,
    action: WriteAction,
) -> Result<Planned, RestError> {
    let relation = relation(context.cache, context.schema, name)?;
    let preferences = &asked.preferences;
    let options = WriteOptions::from(preferences);
    let payload = match &asked.payload {
        Some(Payload::Json(json)) => Some(json),
        _ => None,
    };
    let plan = WritePlan::new(context, relation, action, &asked.query, options, payload)?;
    asked.preferences.refuse_unknown()?;
    let subject = ResultSource { relation: Some(&relation.name), routine: None, whole_rows: is_whole(&asked.query) };
    let negotiated = plan::negotiate(context.cache, accepted(asked), subject, context.settings.explain_enabled)?;
    plan.check_safe_update(context)?;

    let is_single = matches!(negotiated.body_format, BodyFormat::Object { .. })
        && negotiated.explain.is_none()
        && action != WriteAction::Put;
    let returns_rows = options.returns == ReturnPreference::Representation;
    let negotiated = if returns_rows { negotiated } else { negotiated.without_body() };
    let mode = preferences.count;
    let limits_rows = matches!(action, WriteAction::Update | WriteAction::Delete);
    let max_affected = max_affected(asked).filter(|_| limits_rows);
    // Embeds may leave rows out of the answer that were written all the same
    let count = if max_affected.is_some() { RowCount::Exact } else { count(mode, None) };
    let is_plain = count == RowCount::None || !returns_rows;
    let plain = is_plain.then(|| sql::plain_write(&plan, &negotiated.body_format)).flatten();
    let (main, yields) = main(plain, &negotiated, || sql::write(&plan, count, &negotiated.body_format));
    Ok(Planned::Statement(Box::new(Prepared {
        main,
        estimate: None,
        kind: Kind::Write {
            relation: relation.name.clone(),
            action,
            returns: options.returns,
            resolution: plan.resolution(),
            resolvable: !relation.primary_key.is_empty() || asked.query.on_conflict.is_some(),
        },
        negotiated,
        yields,
        read_only: false,
        hoisted: Vec::new(),
        isolation: None,
        is_single,
        max_affected,
        first: 0,
        count: mode,
        legacy_names: Vec::new(),
    })))
}

fn call(
    context: &PlanContext<'_>,
    snapshot: &Snapshot,
    name: &str,
    asked: &ApiRequest<'_>,
    action: RequestAction,
) -> Result<Planned, RestError> {
    let plan = plan::find(context.cache, context.schema, name, given(asked))?.plan(context, &asked.query)?;
    let routine = std::sync::Arc::clone(&plan.routine);
    let subject = ResultSource {
        relation: routine.returns.relation.as_ref(),
        routine: Some(&routine),
        whole_rows: is_whole(&asked.query),
    };
    let negotiated = plan::negotiate(context.cache, accepted(asked), subject, context.settings.explain_enabled)?;
    asked.preferences.refuse_unknown()?;
    let max_affected = max_affected(asked);
    if max_affected.is_some() && !routine.returns.set {
        return Err(RestError::MaxAffectedOnFunction);
    }

    let mode = asked.preferences.count;
    let count = count(mode, None);
    let is_single = matches!(negotiated.body_format, BodyFormat::Object { .. }) && negotiated.explain.is_none();
    let has_body = action != (RequestAction::Read { body: false }) && !routine.returns.void;
    let negotiated = if has_body { negotiated } else { negotiated.without_body() };
    let hoisted = plan::hoisted_settings(&routine, &snapshot.config.hoisted_settings);
    let (mut settings, mut isolation) = (Vec::new(), None);
    for (name, value) in hoisted {
        if name.eq_ignore_ascii_case("default_transaction_isolation") {
            isolation = Isolation::parse(value);
        } else {
            settings.push((name.to_owned(), value.to_owned()));
        }
    }
    let (main, yields) = main(None, &negotiated, || sql::call(&plan, count, &negotiated.body_format));
    let read_only = plan::is_read_only(&routine, action == RequestAction::Call);
    Ok(Planned::Statement(Box::new(Prepared {
        main,
        estimate: None,
        kind: Kind::Call { void: routine.returns.void },
        negotiated,
        yields,
        read_only,
        hoisted: settings,
        isolation,
        is_single,
        max_affected,
        first: plan.read.root.offset.unwrap_or_default(),
        count: mode,
        legacy_names: plan.read.legacy_names,
    })))
}

/// The main statement, and what it yields: the plain one, where it does, else the one with everything around it, or the plan of that.
fn main(
    plain: Option<(Sql, StatementOutput)>,
    negotiated: &NegotiatedFormat,
    enveloped: impl FnOnce() -> Sql,
) -> (Sql, StatementOutput) {
    match (plain, &negotiated.explain) {
        (Some(plain), None) => plain,
        (_, Some(wanted)) => (explain::of_main(enveloped(), wanted), StatementOutput::Envelope),
        (None, None) => (enveloped(), StatementOutput::Envelope),
    }
}

/// How rows are counted for a preference (9.3). An estimate counts no further than `most` says that a page can have.
fn count(mode: Option<CountMode>, most: Option<u64>) -> RowCount {
    match (mode, most) {
        (None | Some(CountMode::Planned), _) => RowCount::None,
        (Some(CountMode::Estimated), Some(most)) => RowCount::UpTo(most.saturating_add(1)),
        (Some(CountMode::Exact | CountMode::Estimated), _) => RowCount::Exact,
    }
}

fn accepted<'a>(asked: &'a ApiRequest<'_>) -> &'a [MediaType] {
    &asked.accepted
}

/// The most rows that may be affected; a negative number is none.
fn max_affected(asked: &ApiRequest<'_>) -> Option<u64> {
    asked.preferences.max_affected().map(|most| u64::try_from(most).unwrap_or_default())
}

/// Whether rows are selected as they are.
fn is_whole(query: &Query) -> bool {
    matches!(query.select.as_slice(), [] | [SelectItem::Star])
}

/// How a body stands for a function's arguments.
fn kind_of_whole(media: &MediaType) -> ArgumentSource {
    match media {
        MediaType::Xml => ArgumentSource::Xml,
        MediaType::Binary => ArgumentSource::Binary,
        _ => ArgumentSource::Text,
    }
}

/// What a body brings to a function.
fn given<'a>(asked: &'a ApiRequest<'_>) -> CallInput<'a> {
    match &asked.payload {
        None => CallInput::Pairs(&asked.query.arguments),
        Some(Payload::Form(pairs)) => CallInput::Pairs(pairs),
        Some(Payload::Raw { media_type, bytes }) => {
            CallInput::Whole { kind: kind_of_whole(media_type), body: bytes.clone() }
        }
        Some(Payload::Json(json)) => CallInput::Object {
            body: plan::JsonBody { json: json.text.clone(), is_object: json.is_object },
            keys: json.columns(asked.query.columns.as_deref()),
            is_json: asked.content_type == MediaType::Json,
        },
    }
}
