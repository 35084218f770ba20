//! Writes: rows put in, changed and taken out (contract 12).

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::filter::{Condition, conditions_of_write};
use super::{PlanContext, ReadPlan, ReadRoot, ReturnedColumns};
use crate::error::{PostgresErrorResponse, RestError};
use crate::query::{Operation, QuantOperator, Query};
use crate::request::WriteAction;
use crate::request::body::JsonPayload;
use crate::request::preferences::{MissingPreference, Preferences, Resolution, ReturnPreference};
use crate::schema::{QualifiedName, Relation};

/// What the client asked for in a write, from the `Prefer` header (contract 8).
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

/// A body that is read as rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonBody {
    /// What the client sent, as it sent it.
    pub json: Bytes,
    /// It begins like an object; otherwise it is read as an array.
    pub is_object: bool,
}

impl From<&JsonPayload> for JsonBody {
    fn from(payload: &JsonPayload) -> Self {
        Self { json: payload.text.clone(), is_object: payload.is_object }
    }
}

/// A column that a write sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedColumn {
    /// Its name.
    pub name: String,
    /// Its declared type. Trusted SQL of the catalog.
    pub sql_type: String,
    /// The function that reads its domain from JSON (19.3).
    pub from_json: Option<QualifiedName>,
    /// Its default (12.3). Trusted SQL of the catalog.
    pub default: Option<String>,
}

/// A column of the primary key, and the value it has in the URL of a PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The column.
    pub column: AssignedColumn,
    /// The function that reads its domain from text (19.3).
    pub from_text: Option<QualifiedName>,
    /// The value.
    pub value: String,
}

/// `ON CONFLICT`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictClause {
    /// The columns that are compared, as the client or the primary key names them.
    pub columns: Vec<String>,
    /// Rows that are there already are changed; otherwise they stay as they are.
    pub merge: bool,
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
pub enum RowChange {
    /// INSERT
    Insert {
        /// The rows.
        body: JsonBody,
        /// In the order of their names.
        columns: Vec<AssignedColumn>,
        /// Objects of the body are laid over the columns' defaults.
        defaults: bool,
        /// What becomes of rows that are there already.
        conflict: Option<ConflictClause>,
        /// Of a PUT: the row that may be written. Rows of the body that are about others are left
        /// out.
        only: Vec<KeyValue>,
    },
    /// UPDATE
    Update {
        /// The new values.
        body: JsonBody,
        /// In the order of their names; at least one.
        columns: Vec<AssignedColumn>,
        /// As of an INSERT.
        defaults: bool,
        /// WHERE
        conditions: Vec<Condition>,
    },
    /// DELETE
    Delete {
        /// WHERE
        conditions: Vec<Condition>,
    },
    /// An update without values: no row is changed.
    Nothing,
}

/// What becomes of the rows that were written.
#[derive(Debug, Clone)]
pub enum WriteReturn {
    /// They are counted. Needs no right to read them.
    Count,
    /// The primary key of the only one is told.
    Location(ReturnedColumns),
    /// They are the body.
    Rows(Box<ReadPlan>),
}

/// A write.
#[derive(Debug, Clone)]
pub struct WritePlan {
    /// Of which rows.
    pub relation: Arc<Relation>,
    /// Which method it came by.
    pub action: WriteAction,
    /// What is done.
    pub change: RowChange,
    /// What is told of it.
    pub answer: WriteReturn,
}

impl WritePlan {
    /// Plans a write: the steps 10a and 10b of the contract.
    ///
    /// # Errors
    /// Those of the read plan; PGRST204 for columns that are not there; PGRST105 for a PUT whose filters are not the primary key.
    pub fn new(
        context: &PlanContext<'_>,
        relation: &Arc<Relation>,
        action: WriteAction,
        query: &Query,
        options: WriteOptions,
        payload: Option<&JsonPayload>,
    ) -> Result<Self, RestError> {
        // The read plan comes first whatever is asked to be returned: a wrong embed is refused before anything is written.
        let read = ReadPlan::new(context, ReadRoot::Written(relation), query)?;
        let change = change(context, relation, action, query, options, payload)?;
        let answer = match options.returns {
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
        Ok(Self { relation: Arc::clone(relation), action, change, answer })
    }

    /// The resolution that is in force: none when it was dropped for want of columns to compare (12.4).
    pub fn resolution(&self) -> Option<Resolution> {
        match (&self.change, self.action) {
            (RowChange::Insert { conflict: Some(conflict), .. }, WriteAction::Insert) => {
                Some(if conflict.merge { Resolution::MergeDuplicates } else { Resolution::IgnoreDuplicates })
            }
            _ => None,
        }
    }

    /// Whether the statement tells how many rows are new.
    pub fn counts_inserted(&self) -> bool {
        matches!(&self.change, RowChange::Insert { conflict: Some(ConflictClause { merge: true, .. }), .. })
    }

    /// Whether the statement tells where the only row that was written is (12.6).
    pub fn tells_location(&self) -> bool {
        self.action == WriteAction::Insert
            && matches!(self.answer, WriteReturn::Location(_))
            && !self.relation.primary_key.is_empty()
    }

    /// What the hosted service does by an extension: an UPDATE or DELETE of every row is refused (12.2).
    ///
    /// Comes after all other checks of the plan, since there it is PostgreSQL that refuses.
    ///
    /// # Errors
    /// 21000 with status 400.
    pub fn check_safe_update(&self, context: &PlanContext<'_>) -> Result<(), RestError> {
        let verb = match &self.change {
            RowChange::Update { conditions, .. } if conditions.is_empty() => "UPDATE",
            RowChange::Delete { conditions } if conditions.is_empty() => "DELETE",
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
    query: &Query,
    options: WriteOptions,
    payload: Option<&JsonPayload>,
) -> Result<RowChange, RestError> {
    // A PUT writes what its body has (12.5).
    let listed = query.columns.as_deref().filter(|_| action != WriteAction::Put);
    let listed = payload.map_or(&[][..], |payload| payload.columns(listed));
    let body = payload.map_or(JsonBody { json: Bytes::from_static(b"[]"), is_object: false }, JsonBody::from);
    let defaults = options.defaults && action != WriteAction::Put;
    match action {
        WriteAction::Delete => Ok(RowChange::Delete { conditions: conditions_of_write(context, relation, query) }),
        WriteAction::Update => {
            let columns = assigned(context, relation, listed)?;
            if columns.is_empty() {
                return Ok(RowChange::Nothing);
            }
            Ok(RowChange::Update { body, columns, defaults, conditions: conditions_of_write(context, relation, query) })
        }
        WriteAction::Insert => {
            let columns = assigned(context, relation, listed)?;
            let compared = query.on_conflict.as_deref().unwrap_or(&relation.primary_key);
            let conflict = options.resolution.filter(|_| !compared.is_empty()).map(|resolution| ConflictClause {
                columns: compared.to_vec(),
                merge: resolution == Resolution::MergeDuplicates,
            });
            Ok(RowChange::Insert { body, columns, defaults, conflict, only: Vec::new() })
        }
        WriteAction::Put => {
            let columns = assigned(context, relation, listed)?;
            let only = put_key(context, relation, query)?;
            let conflict = Some(ConflictClause { columns: relation.primary_key.clone(), merge: true });
            Ok(RowChange::Insert { body, columns, defaults, conflict, only })
        }
    }
}

/// The columns of a payload, in the order of their names.
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

/// The key in the URL of a PUT: one plain `eq` for each column of the primary key, and nothing else (12.5).
fn put_key(context: &PlanContext<'_>, relation: &Relation, query: &Query) -> Result<Vec<KeyValue>, RestError> {
    let filters: Vec<_> = query.filters.iter().filter(|filter| filter.path.is_empty()).collect();
    if relation.primary_key.is_empty() || !query.logic.is_empty() || filters.len() != relation.primary_key.len() {
        return Err(RestError::PutFilters);
    }
    let value_of = |name: &str| {
        filters.iter().find_map(|filter| match &filter.value {
            filter if filter.negated || filter.field.name != name || !filter.field.json_path.is_empty() => None,
            filter => match &filter.operation {
                Operation::Quantified(QuantOperator::Equal, None, value) => Some(value.clone()),
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
