//! Calls of the PostgreSQL functions that are hooks.

use std::error::Error as StdError;

use bytes::BytesMut;
use postgres_types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::Error;

use super::{Tx, TypedParams};

statements! {
    const LIMIT_TIME = "
        select set_config('portico.statement_timeout', current_setting('statement_timeout'), true),
               set_config('statement_timeout', '2000', true)";
    const UNLIMIT_TIME =
        "select set_config('statement_timeout', current_setting('portico.statement_timeout'), true)";
    const SAVE_POINT = "savepoint hook";
    const ROLL_BACK = "rollback to savepoint hook";
}

/// JSON text, for a parameter whose type only PostgreSQL knows: `json` or `jsonb`.
#[derive(Debug)]
struct JsonText<'a>(&'a str);

impl ToSql for JsonText<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// Calls a function with JSON, within two seconds, and returns its output as text. `None` is SQL's
/// null.
///
/// # Errors
/// The error of PostgreSQL; the transaction can then only be rolled back.
pub async fn call(tx: &Tx, schema: &str, name: &str, input: &str) -> Result<Option<String>, Error> {
    // Both are identifiers of letters, digits and underscores
    let sql = format!("select to_jsonb(\"{schema}\".\"{name}\"($1))::text");
    let params: TypedParams<'_> = &[(&JsonText(input), Type::UNKNOWN)];
    let (limited, called, unlimited) = tokio::join!(biased;
        tx.execute(LIMIT_TIME, &[]),
        // Not prepared: the application may replace the function at any time
        tx.query_typed(&sql, params),
        tx.execute(UNLIMIT_TIME, &[]),
    );
    limited?;
    let rows = called?;
    unlimited?;
    Ok(rows.first().and_then(|row| row.get(0)))
}

/// Marks the state to which a failed call is rolled back.
pub async fn save_point(tx: &Tx) -> Result<(), Error> {
    tx.execute(SAVE_POINT, &[]).await.map(drop)
}

/// Undoes a failed call.
pub async fn roll_back_to_save_point(tx: &Tx) -> Result<(), Error> {
    tx.execute(ROLL_BACK, &[]).await.map(drop)
}
