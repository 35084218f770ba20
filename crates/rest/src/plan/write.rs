//! Plans of writes.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::filter::{RowCondition, conditions_of_write};
use super::{PlanContext, ReadPlan, ReadRoot, ReturnedColumns};
use crate::error::{PostgresErrorResponse, RestError};
use crate::query::{FilterOperation, QuantOperator, RequestQuery};
use crate::request::WriteAction;
use crate::request::body::JsonPayload;
use crate::request::preferences::{MissingPreference, Preferences, Resolution, ReturnPreference};
use crate::schema::{QualifiedName, Relation};

/// The options of a write, from the `Prefer` header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// `return`
    pub returns: ReturnPreference,
    /// `resolution`
    pub resolution: Option<Resolution>,
    /// `missing=default`
    pub defaults: bool,
}

impl From<&Preferences> for WriteOptions {
    fn from(preferences: &Preferences) -> Self {
        Self {
            returns: preferences.returned.unwrap_or_default(),
            resolution: preferences.resolution,
            defaults: preferences.missing == Some(MissingPreference::Default),
        }
    }
}

/// A JSON body that is read as rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonBody {
    /// The text that the client sent.
    pub json: Bytes,
    /// The text starts an object; otherwise it is read as an array.
    pub is_object: bool,
}

impl From<&JsonPayload> for JsonBody {
    fn from(payload: &JsonPayload) -> Self {
        Self { json: payload.text.clone(), is_object: payload.is_object }
    }
}

/// A column that a write assigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedColumn {
    /// Its name.
    pub name: String,
    /// The declared type. Trusted SQL of the catalog.
    pub sql_type: String,
    /// The function that converts JSON to its domain.
    pub from_json: Option<QualifiedName>,
    /// The default. Trusted SQL of the catalog.
    pub default: Option<String>,
}

/// A column of the primary key, with its value in the URL of a PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The column.
    pub column: AssignedColumn,
    /// The function that converts text to its domain.
    pub from_text: Option<QualifiedName>,
    /// The value.
    pub value: String,
}

/// `ON CONFLICT`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictClause {
    /// The compared columns: those of `on_conflict`, or the primary key.
    pub columns: Vec<String>,
    /// Existing rows are updated; otherwise they stay unchanged.
    pub merge: bool,
}

/// The change of a write.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteChange {
    /// INSERT
    Insert {
        /// The rows.
        body: JsonBody,
        /// Sorted by name.
        columns: Vec<AssignedColumn>,
        /// Missing keys of the body's objects get the columns' defaults.
        defaults: bool,
        /// The treatment of existing rows.
        conflict: Option<ConflictClause>,
        /// For a PUT, the key of the row that may be written. Other rows of the body are ignored.
        only: Vec<KeyValue>,
    },
    /// UPDATE
    Update {
        /// The new values.
        body: JsonBody,
        /// Sorted by name; at least one.
        columns: Vec<AssignedColumn>,
        /// The same as for INSERT.
        defaults: bool,
        /// WHERE
        conditions: Vec<RowCondition>,
    },
    /// DELETE
    Delete {
        /// WHERE
        conditions: Vec<RowCondition>,
    },
    /// An update without values: no row is changed.
    Nothing,
}

/// The result of a write.
#[derive(Debug, Clone)]
pub enum WriteReturn {
    /// The number of rows. Needs no privilege to read them.
    Count,
    /// The primary key of the row, if exactly one was written.
    Location(ReturnedColumns),
    /// The rows.
    Rows(Box<ReadPlan>),
}

/// The plan of a write.
#[derive(Debug, Clone)]
pub struct WritePlan {
    /// The relation.
    pub relation: Arc<Relation>,
    /// The action of the request.
    pub action: WriteAction,
    /// The change.
    pub change: WriteChange,
    /// The result.
    pub returning: WriteReturn,
}

impl WritePlan {
    /// Plans a write.
    ///
    /// # Errors
    /// The errors of the read plan; PGRST204 for unknown columns; PGRST105 for a PUT whose filters
    /// are not the primary key.
    pub fn new(
        context: &PlanContext<'_>,
        relation: &Arc<Relation>,
        action: WriteAction,
        query: &RequestQuery,
        options: WriteOptions,
        payload: Option<&JsonPayload>,
    ) -> Result<Self, RestError> {
        // The read is planned whatever is returned, so that a wrong embed is rejected before
        // anything is written
        let read = ReadPlan::new(context, ReadRoot::Written(relation), query)?;
        let change = change(context, relation, action, query, options, payload)?;
        let returning = match options.returns {
            ReturnPreference::Representation => WriteReturn::Rows(Box::new(read)),
            ReturnPreference::HeadersOnly => {
                let mut returned = read.returned_columns();
                if !returned.all {
                    let key = relation.primary_key.iter().filter(|column| !returned.columns.contains(column));
                    returned.columns = returned.columns.iter().chain(key).cloned().collect();
                }
                WriteReturn::Location(returned)
            }
            ReturnPreference::Minimal => WriteReturn::Count,
        };
        Ok(Self { relation: Arc::clone(relation), action, change, returning })
    }

    /// Returns the resolution in effect; `None` if there are no columns to compare.
    pub fn resolution(&self) -> Option<Resolution> {
        match (&self.change, self.action) {
            (WriteChange::Insert { conflict: Some(conflict), .. }, WriteAction::Insert) => {
                Some(if conflict.merge { Resolution::MergeDuplicates } else { Resolution::IgnoreDuplicates })
            }
            _ => None,
        }
    }

    /// Returns true if the statement returns the number of inserted rows.
    pub fn counts_inserted(&self) -> bool {
        matches!(&self.change, WriteChange::Insert { conflict: Some(ConflictClause { merge: true, .. }), .. })
    }

    /// Returns true if the statement returns the location of the only row that was written.
    pub fn returns_location(&self) -> bool {
        self.action == WriteAction::Insert
            && matches!(self.returning, WriteReturn::Location(_))
            && !self.relation.primary_key.is_empty()
    }

    /// Rejects an UPDATE or DELETE of every row, as an extension of the hosted service does.
    ///
    /// Runs after all other checks of the plan: on the hosted service, PostgreSQL rejects it.
    ///
    /// # Errors
    /// 21000 with status 400.
    pub fn check_safe_update(&self, context: &PlanContext<'_>) -> Result<(), RestError> {
        let verb = match &self.change {
            WriteChange::Update { conditions, .. } if conditions.is_empty() => "UPDATE",
            WriteChange::Delete { conditions } if conditions.is_empty() => "DELETE",
            _ => return Ok(()),
        };
        if !context.settings.safe_update {
            return Ok(());
        }
        Err(RestError::Postgres(Box::new(PostgresErrorResponse {
            code: "21000".into(),
            message: format!("{verb} requires a WHERE clause"),
            details: None,
            hint: None,
            context: None,
            status: StatusCode::BAD_REQUEST,
            reason: None,
            headers: Vec::new(),
        })))
    }
}

fn change(
    context: &PlanContext<'_>,
    relation: &Relation,
    action: WriteAction,
    query: &RequestQuery,
    options: WriteOptions,
    payload: Option<&JsonPayload>,
) -> Result<WriteChange, RestError> {
    // A PUT writes the columns of its body; `columns` has no effect
    let listed = query.columns.as_deref().filter(|_| action != WriteAction::Put);
    let listed = payload.map_or(&[][..], |payload| payload.columns(listed));
    let body = payload.map_or(JsonBody { json: Bytes::from_static(b"[]"), is_object: false }, JsonBody::from);
    let defaults = options.defaults && action != WriteAction::Put;
    match action {
        WriteAction::Delete => Ok(WriteChange::Delete { conditions: conditions_of_write(context, relation, query) }),
        WriteAction::Update => {
            let columns = assigned(context, relation, listed)?;
            if columns.is_empty() {
                return Ok(WriteChange::Nothing);
            }
            Ok(WriteChange::Update {
                body,
                columns,
                defaults,
                conditions: conditions_of_write(context, relation, query),
            })
        }
        WriteAction::Insert => {
            let columns = assigned(context, relation, listed)?;
            let compared = query.on_conflict.as_deref().unwrap_or(&relation.primary_key);
            let conflict = options.resolution.filter(|_| !compared.is_empty()).map(|resolution| ConflictClause {
                columns: compared.to_vec(),
                merge: resolution == Resolution::MergeDuplicates,
            });
            Ok(WriteChange::Insert { body, columns, defaults, conflict, only: Vec::new() })
        }
        WriteAction::Put => {
            let columns = assigned(context, relation, listed)?;
            let only = put_key(context, relation, query)?;
            let conflict = Some(ConflictClause { columns: relation.primary_key.clone(), merge: true });
            Ok(WriteChange::Insert { body, columns, defaults, conflict, only })
        }
    }
}

/// Returns the columns of a payload, sorted by name.
fn assigned(
    context: &PlanContext<'_>,
    relation: &Relation,
    names: &[String],
) -> Result<Vec<AssignedColumn>, RestError> {
    let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    names.into_iter().map(|name| assigned_column(context, relation, name)).collect()
}

fn assigned_column(context: &PlanContext<'_>, relation: &Relation, name: &str) -> Result<AssignedColumn, RestError> {
    let column = relation
        .columns
        .get(name)
        .ok_or_else(|| RestError::NoColumn { column: name.to_owned(), relation: relation.name.name.clone() })?;
    let representation = column.domain.as_ref().and_then(|domain| context.cache.representations.get(domain));
    Ok(AssignedColumn {
        name: column.name.clone(),
        sql_type: column.nominal_type.clone(),
        from_json: representation.and_then(|representation| representation.from_json.clone()),
        default: column.default.clone(),
    })
}

/// Returns the key in the URL of a PUT. Exactly one plain `eq` for each column of the primary key
/// is required.
fn put_key(context: &PlanContext<'_>, relation: &Relation, query: &RequestQuery) -> Result<Vec<KeyValue>, RestError> {
    let filters: Vec<_> = query.filters.iter().filter(|filter| filter.path.is_empty()).collect();
    if relation.primary_key.is_empty() || !query.logic.is_empty() || filters.len() != relation.primary_key.len() {
        return Err(RestError::PutFilters);
    }
    let value_of = |name: &str| {
        filters.iter().find_map(|filter| match &filter.value {
            filter if filter.negated || filter.field.name != name || !filter.field.json_path.is_empty() => None,
            filter => match &filter.operation {
                FilterOperation::Quantified(QuantOperator::Equal, None, value) => Some(value.clone()),
                _ => None,
            },
        })
    };
    let key = |name: &String| {
        let value = value_of(name).ok_or(RestError::PutFilters)?;
        let domain = relation.columns.get(name).and_then(|column| column.domain.as_ref());
        let representation = domain.and_then(|domain| context.cache.representations.get(domain));
        Ok(KeyValue {
            column: assigned_column(context, relation, name)?,
            from_text: representation.and_then(|representation| representation.from_text.clone()),
            value,
        })
    };
    relation.primary_key.iter().map(key).collect()
}

#[cfg(test)]
pub(crate) mod tests;
