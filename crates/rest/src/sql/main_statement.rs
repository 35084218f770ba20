//! The main statement of a request.

use super::{Sql, StatementOutput, call, explain, matching, plain_read, plain_write, read_statement, write};
use crate::plan::{PlannedStatement, RowCount, StatementPlan};
use crate::request::preferences::ReturnPreference;

/// The statements of a request.
pub(crate) struct MainStatement {
    pub main: Sql,
    pub output: StatementOutput,
    /// `EXPLAIN` of the rows that are counted.
    pub estimate: Option<Sql>,
}

impl MainStatement {
    /// Writes the statements of a plan: the plain form where it suffices, else the form with an
    /// envelope, or the `EXPLAIN` of that.
    pub fn of(plan: &StatementPlan) -> Self {
        let body_format = &plan.format.body_format;
        let uncounted = plan.row_count == RowCount::None;
        let plain = match &plan.operation {
            _ if plan.format.explain.is_some() => None,
            PlannedStatement::Read { plan, .. } if uncounted => plain_read(plan, body_format),
            PlannedStatement::Write { plan, returns, .. }
                if uncounted || *returns != ReturnPreference::Representation =>
            {
                plain_write(plan, body_format)
            }
            _ => None,
        };
        let (main, output) = plain.unwrap_or_else(|| {
            let enveloped = match &plan.operation {
                PlannedStatement::Read { plan: read, .. } => read_statement(read, plan.row_count, body_format),
                PlannedStatement::Write { plan: change, .. } => write(change, plan.row_count, body_format),
                PlannedStatement::Call { plan: invoked } => call(invoked, plan.row_count, body_format),
            };
            let main = match &plan.format.explain {
                Some(wanted) => explain::of_main(enveloped, wanted),
                None => enveloped,
            };
            (main, StatementOutput::Envelope)
        });
        let estimate = match &plan.operation {
            PlannedStatement::Read { plan: read, .. } if plan.needs_estimate() => {
                Some(explain::of_count(matching(read)))
            }
            _ => None,
        };
        Self { main, output, estimate }
    }
}
