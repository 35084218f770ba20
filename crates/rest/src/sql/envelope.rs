//! The outer SELECT of main statements: one row with the columns of [`super::EnvelopeColumn`].
//!
//! It aggregates a subquery, not a CTE. Without a write and without CSV nothing is materialized,
//! and a read by primary key is one Aggregate over one Index Scan.

use super::Sql;
use crate::plan::{BodyFormat, ReadPlan, ResultShape, RowCount};

/// The parts of the outer SELECT.
pub struct Envelope<'a> {
    /// Writes the statement whose rows are `pgrst_source`.
    pub source: Option<&'a dyn Fn(&mut Sql)>,
    /// The source of the first column.
    pub total: TotalSource<'a>,
    /// Writes the SELECT of the response's rows. All other closures refer to them as
    /// `_postgrest_t`.
    pub rows: &'a dyn Fn(&mut Sql),
    /// The format of the body.
    pub body_format: &'a BodyFormat,
    /// Writes the aggregate that counts inserted rows.
    pub inserted: Option<&'a dyn Fn(&mut Sql)>,
    /// Writes the aggregate that makes the location.
    pub location: Option<&'a dyn Fn(&mut Sql)>,
}

/// The source of the total.
#[derive(Clone, Copy)]
pub enum TotalSource<'a> {
    /// There is no total.
    None,
    /// The number of rows.
    Rows,
    /// An expression, or a SELECT of one number.
    Query(&'a dyn Fn(&mut Sql)),
}

/// Appends the main statement.
pub fn envelope(sql: &mut Sql, parts: &Envelope<'_>) {
    let csv = matches!(parts.body_format, BodyFormat::Csv);
    if parts.source.is_some() || csv {
        sql.raw("WITH ");
    }
    if let Some(source) = parts.source {
        sql.raw("pgrst_source AS (");
        source(sql);
        sql.raw(if csv { "), " } else { ") " });
    }
    if csv {
        // The header line needs the rows a second time
        sql.raw("pgrst_body AS (");
        (parts.rows)(sql);
        sql.raw(") ");
    }
    sql.raw("SELECT ");
    match parts.total {
        TotalSource::None => {
            sql.raw("NULL::bigint");
        }
        TotalSource::Rows => {
            sql.raw("count(*)");
        }
        TotalSource::Query(query) => {
            sql.raw("(");
            query(sql);
            sql.raw(")");
        }
    }
    sql.raw(", count(*), ");
    body(sql, parts.body_format);
    sql.raw(
        ", nullif(current_setting('response.headers', true), ''), nullif(current_setting('response.status', true), ''), ",
    );
    optional(sql, parts.inserted, "NULL::bigint");
    sql.raw(", ");
    optional(sql, parts.location, "NULL::text");
    sql.raw(" FROM ");
    if csv {
        sql.raw("pgrst_body");
    } else {
        sql.raw("(");
        (parts.rows)(sql);
        sql.raw(")");
    }
    sql.raw(" AS _postgrest_t");
}

/// Writes the main statement of GET and HEAD on a relation.
pub fn read(plan: &ReadPlan, count: RowCount, body_format: &BodyFormat) -> Sql {
    let mut sql = Sql::new();
    let root = &plan.root;
    let exact = |sql: &mut Sql| total(sql, plan, &|sql| super::read::count(sql, plan, None, None));
    let up_to = |sql: &mut Sql| {
        let most = if let RowCount::UpTo(most) = count { Some(most) } else { None };
        super::read::count(sql, plan, None, most);
    };
    let total = match count {
        RowCount::None => TotalSource::None,
        // The page has all rows, which are counted anyway
        RowCount::Exact if root.limit.is_none() && root.offset.is_none() && shows_rows(plan) => TotalSource::Rows,
        RowCount::Exact => TotalSource::Query(&exact),
        RowCount::UpTo(_) => TotalSource::Query(&up_to),
    };
    let rows = |sql: &mut Sql| super::read::rows(sql, plan, None);
    envelope(&mut sql, &Envelope { source: None, total, rows: &rows, body_format, inserted: None, location: None });
    sql
}

/// Returns true if each row of the response is one that matches the conditions.
fn shows_rows(plan: &ReadPlan) -> bool {
    !plan.root.aggregated && !crate::plan::counts_rows(&plan.root)
}

/// Appends the expression of a total. A page that is not full is the last one: then no second count
/// runs, since PostgreSQL evaluates a subquery without dependencies only when it is needed.
fn total(sql: &mut Sql, plan: &ReadPlan, count: &dyn Fn(&mut Sql)) {
    let (Some(limit), true) = (plan.root.limit, shows_rows(plan)) else {
        return count(sql);
    };
    sql.raw("CASE WHEN count(*) < ").value(limit.to_string()).raw("::bigint");
    match plan.root.offset {
        None => {
            sql.raw(" THEN count(*)");
        }
        Some(offset) => {
            sql.raw(" AND count(*) > 0 THEN count(*) + ").value(offset.to_string()).raw("::bigint");
        }
    }
    sql.raw(" ELSE (");
    count(sql);
    sql.raw(") END");
}

/// Writes the statement that `EXPLAIN` estimates for `count=planned` and `count=estimated`: one row
/// for each that matches.
pub fn matching(plan: &ReadPlan) -> Sql {
    let mut sql = Sql::new();
    super::read::matching(&mut sql, plan, None);
    sql
}

fn optional(sql: &mut Sql, expression: Option<&dyn Fn(&mut Sql)>, absent: &str) {
    match expression {
        Some(expression) => expression(sql),
        None => {
            sql.raw(absent);
        }
    }
}

/// Appends the expression of the body. `json_agg` puts `, \n ` between rows; `json` is sent as the
/// text that it is.
fn body(sql: &mut Sql, body_format: &BodyFormat) {
    match body_format {
        BodyFormat::Nothing => {
            sql.raw("NULL::text");
        }
        BodyFormat::Json { shape: shape @ (ResultShape::Set | ResultShape::ScalarSet), strip_nulls } => {
            let stripped = if *strip_nulls { ("json_strip_nulls(", ")") } else { ("", "") };
            sql.raw(stripped.0).raw("coalesce(json_agg(").raw(row(*shape)).raw("), '[]')").raw(stripped.1);
        }
        BodyFormat::Json { shape, strip_nulls } | BodyFormat::Object { shape, strip_nulls } => {
            // At most one row. `json_agg(…) -> 0` would parse the text that it has just made
            let stripped = if *strip_nulls { ("json_strip_nulls(", ")") } else { ("", "") };
            sql.raw("coalesce(string_agg(").raw(stripped.0).raw("to_json(").raw(row(*shape)).raw(")").raw(stripped.1);
            sql.raw("::text, ','), 'null')");
        }
        BodyFormat::Csv => {
            sql.raw(
                "coalesce((SELECT string_agg(k, ',') FROM (SELECT json_object_keys(to_json(pgrst_body)) AS k FROM \
                 (SELECT * FROM pgrst_body LIMIT 1) AS pgrst_body) AS keys), '') || E'\\n' || \
                 coalesce(string_agg(substring(_postgrest_t::text, 2, length(_postgrest_t::text) - 2), E'\\n'), '')",
            );
        }
        BodyFormat::GeoJson => {
            sql.raw(
                "json_build_object('type', 'FeatureCollection', 'features', \
                 coalesce(json_agg(ST_AsGeoJSON(_postgrest_t)::json), '[]'))",
            );
        }
        BodyFormat::Handler { function, relation, shape } => {
            sql.qualified(&function.schema, &function.name).raw("(").raw(row(*shape));
            if let Some(relation) = relation {
                sql.raw("::").qualified(&relation.schema, &relation.name);
            }
            sql.raw(")");
        }
        BodyFormat::Value => {
            sql.raw("(array_agg(_postgrest_t.pgrst_scalar))[1]");
        }
    }
}

/// Returns the expression that is aggregated.
fn row(shape: ResultShape) -> &'static str {
    if shape.is_scalar() { "_postgrest_t.pgrst_scalar" } else { "_postgrest_t" }
}
