//! The statements of function calls.

use super::{Envelope, RowCount, Sql, TotalSource, envelope, read};
use crate::plan::{BodyFormat, CALL, CallArguments, CallPlan};
use crate::schema::{RoutineParameter, Volatility};

/// Writes the main statement of a call. The function is called once, whatever is counted.
pub fn call(plan: &CallPlan, count: RowCount, body_format: &BodyFormat) -> Sql {
    let mut sql = Sql::new();
    let root = &plan.read.root;
    // With a limit or groups, the total needs all rows: they are kept and read twice
    let keep = count != RowCount::None && (root.limit.is_some() || root.offset.is_some() || root.aggregated);
    let item = |sql: &mut Sql| from_item(sql, plan, body_format);
    let kept = |sql: &mut Sql| {
        sql.raw("pgrst_source AS ").name(CALL);
    };
    let source = |sql: &mut Sql| {
        // The arguments may stand beside it in FROM
        sql.raw("SELECT ").name(CALL).raw(".* FROM ");
        from_item(sql, plan, body_format);
    };
    let all = |sql: &mut Sql| {
        let most = if let RowCount::UpTo(most) = count { Some(most) } else { None };
        read::count(sql, &plan.read, Some(&kept), most);
    };
    let rows = |sql: &mut Sql| read::rows(sql, &plan.read, Some(if keep { &kept } else { &item }));
    let parts = Envelope {
        source: if keep { Some(&source) } else { None },
        total: match count {
            RowCount::None => TotalSource::None,
            _ if keep => TotalSource::Query(&all),
            _ => TotalSource::Rows,
        },
        rows: &rows,
        body_format,
        inserted: None,
        location: None,
    };
    envelope(&mut sql, &parts);
    sql
}

/// Appends the FROM item with the rows of the call.
///
/// A function that returns rows stands in FROM itself, so that PostgreSQL can inline a simple one
/// and filter inside it. A value, or a set of values, is selected as `pgrst_scalar`.
fn from_item(sql: &mut Sql, plan: &CallPlan, body_format: &BodyFormat) {
    let with_object = matches!(plan.arguments, CallArguments::Object { .. });
    if plan.shape().is_scalar() {
        // PostgreSQL would not evaluate an unread output of a function that is not volatile, but
        // the call has to run
        let unread = *body_format == BodyFormat::Nothing && plan.routine.volatility != Volatility::Volatile;
        sql.raw(if unread { "(WITH pgrst_value AS MATERIALIZED (SELECT " } else { "(SELECT " });
        invocation(sql, plan);
        sql.raw(" AS pgrst_scalar");
        if with_object {
            sql.raw(" FROM ");
            object(sql, &plan.arguments);
        }
        sql.raw(if unread { ") SELECT * FROM pgrst_value) AS " } else { ") AS " }).name(CALL);
    } else {
        if with_object {
            object(sql, &plan.arguments);
            sql.raw(", LATERAL ");
        }
        invocation(sql, plan);
        sql.raw(" AS ").name(CALL);
    }
}

/// Appends `"schema"."function"("a" := $1::integer)`.
fn invocation(sql: &mut Sql, plan: &CallPlan) {
    let function = &plan.routine.name;
    sql.qualified(&function.schema, &function.name).raw("(");
    match &plan.arguments {
        CallArguments::None => {}
        CallArguments::Values(values) => {
            sql.list(", ", values, |sql, argument| {
                parameter_name(sql, &argument.parameter);
                sql.value(argument.value.as_str()).raw("::").raw(&argument.parameter.unbounded_type);
            });
        }
        CallArguments::Object { parameters, .. } => {
            sql.list(", ", parameters, |sql, parameter| {
                parameter_name(sql, parameter);
                sql.qualified("pgrst_args", &parameter.name);
            });
        }
        CallArguments::Whole { value, sql_type } => {
            sql.value(value.clone()).raw("::").raw(sql_type);
        }
    }
    sql.raw(")");
}

fn parameter_name(sql: &mut Sql, parameter: &RoutineParameter) {
    if parameter.variadic {
        sql.raw("VARIADIC ");
    }
    sql.name(&parameter.name).raw(" := ");
}

/// Appends the FROM item `pgrst_args`: one row with an argument in each column.
fn object(sql: &mut Sql, arguments: &CallArguments) {
    let CallArguments::Object { body, parameters } = arguments else { return };
    sql.raw("json_to_record(").body(&body.json).raw("::json");
    if !body.is_object {
        // The first object of an array is used
        sql.raw(" -> 0");
    }
    sql.raw(") AS pgrst_args(");
    sql.list(", ", parameters, |sql, parameter| {
        sql.name(&parameter.name).raw(" ").raw(&parameter.unbounded_type);
    });
    sql.raw(")");
}

#[cfg(test)]
mod tests;
