//! `max-affected`: the limit of rows that a request may write or return.
//!
//! The limit applies with `handling=strict` only (`Preferences::max_affected`), to PATCH, DELETE
//! and calls of functions that return a set. Exceeding it rolls the transaction back.

use super::statement_result::StatementResult;
use crate::error::RestError;
use crate::plan::{PlannedStatement, StatementPlan};

/// Checks the number of affected rows.
///
/// # Errors
/// PGRST124 if there are more than the limit.
pub(crate) fn check(plan: &StatementPlan, result: &StatementResult) -> Result<(), RestError> {
    let affected = match plan.operation {
        PlannedStatement::Write { .. } => result.total.unwrap_or(result.rows),
        PlannedStatement::Read { .. } | PlannedStatement::Call { .. } => result.rows,
    };
    match plan.max_affected {
        Some(limit) if affected > limit => Err(RestError::MaxAffected(affected)),
        _ => Ok(()),
    }
}
