//! Runs one file of SQL, completely or not at all.
//!
//! The file runs as with Supabase's command line: in one transaction together with its record. A
//! statement that cannot run in a transaction works as the first statement of a file.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use portico_database::MigrationSession;
use tokio_postgres::error::SqlState;

use super::error::MigrationError;
use super::script::SqlScript;
use super::statement_error::StatementError;
use super::{extension_advice, history};
use crate::sql::{SqlStatement, split};

/// The record that is written together with the file's effects.
pub(crate) enum Record<'a> {
    Nothing,
    Migration { version: &'a str, name: &'a str },
    Seed { path: &'a str, hash: &'a str },
}

/// The limits of a batch of data statements: their number and their bytes.
const ROW_LENGTH: usize = 128;
const ROW_BYTES: usize = 1024 * 1024;

/// Runs a file's statements and writes the record, in one transaction. Afterwards the connection is
/// in no transaction, also after an error.
pub(crate) async fn run_script(
    session: &mut MigrationSession,
    script: &SqlScript<'_>,
    record: Record<'_>,
) -> Result<(), MigrationError> {
    let statements = split(script.text);
    check(script, &statements)?;
    let outcome = match run_statements(session, script, &statements).await {
        Ok(()) => finish(session, script, &statements, record).await,
        Err(mut error) => {
            extension_advice::advise(&mut error, session.major_version());
            Err(error.into())
        }
    };
    if outcome.is_err() {
        // The first error is the one to report; on a lost connection this fails as well
        let _ = session.rollback().await;
    }
    outcome
}

/// Rejects statements that would make the connection wait for data that never arrives, or that are
/// not SQL.
fn check(script: &SqlScript<'_>, statements: &[SqlStatement<'_>]) -> Result<(), Box<StatementError>> {
    for (index, statement) in statements.iter().enumerate() {
        if statement.text[statement.first_code()..].starts_with('\\') {
            return Err(StatementError::refused(
                script,
                index,
                statement,
                "commands of psql do not work here",
                "Remove the lines that begin with a backslash, or load the file with psql",
            ));
        }
        let words = statement.words(1);
        if words.first().is_some_and(|word| word == "copy") {
            let words = statement.words(1000);
            if words.windows(2).any(|pair| pair[0] == "from" && pair[1] == "stdin") {
                return Err(StatementError::refused(
                    script,
                    index,
                    statement,
                    "COPY ... FROM STDIN does not work here",
                    "Use INSERT statements, or load the file with psql",
                ));
            }
        }
    }
    Ok(())
}

/// The effect of a statement on the transaction around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionEffect {
    /// A statement that only reads or changes rows, and can be part of a batch.
    Data,
    /// Begins a transaction without options; the statement is in one already.
    Begins,
    /// A statement that ends the transaction.
    Ends,
    /// Any other statement.
    Plain,
}

fn bearing(statement: &SqlStatement<'_>) -> TransactionEffect {
    let words = statement.words(4);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["insert" | "update" | "delete" | "select" | "values", ..] => TransactionEffect::Data,
        ["begin"] | ["begin", "work" | "transaction"] | ["start", "transaction"] => TransactionEffect::Begins,
        // `... and chain` begins the next transaction itself
        ["commit" | "rollback" | "end" | "abort", .., "and", "chain"] => TransactionEffect::Plain,
        ["commit" | "rollback", "prepared", ..] => TransactionEffect::Plain,
        ["rollback" | "abort", "to", ..] | ["rollback" | "abort", "transaction" | "work", "to", ..] => {
            TransactionEffect::Plain
        }
        ["commit" | "rollback" | "end" | "abort", ..] | ["prepare", "transaction", ..] => TransactionEffect::Ends,
        _ => TransactionEffect::Plain,
    }
}

async fn run_statements(
    session: &mut MigrationSession,
    script: &SqlScript<'_>,
    statements: &[SqlStatement<'_>],
) -> Result<(), Box<StatementError>> {
    let mut in_transaction = false;
    let mut index = 0;
    while let Some(statement) = statements.get(index) {
        let failed = |error| StatementError::from_postgres(script, index, statement, &error);
        if !in_transaction {
            session.begin().await.map_err(failed)?;
            in_transaction = true;
        }
        match bearing(statement) {
            // PostgreSQL would warn of the transaction that the file is in
            TransactionEffect::Begins => index += 1,
            TransactionEffect::Data => index += run_row(session, script, statements, index).await?,
            bearing => {
                match session.batch(statement.text).await {
                    Ok(()) => in_transaction = bearing != TransactionEffect::Ends,
                    Err(error) if index == 0 && cannot_run_in_a_transaction(&error) => {
                        session.rollback().await.map_err(failed)?;
                        session.batch(statement.text).await.map_err(failed)?;
                        in_transaction = false;
                    }
                    Err(error) => return Err(failed(error)),
                }
                index += 1;
            }
        }
    }
    if !in_transaction {
        let last = SqlStatement { text: "", offset: script.text.len() };
        let failed = |error| StatementError::from_postgres(script, statements.len(), &last, &error);
        session.begin().await.map_err(failed)?;
    }
    Ok(())
}

/// Returns true for the error that PostgreSQL reports before it does anything: `create index
/// concurrently`, `vacuum`, `create database`; or when a procedure or block commits itself.
fn cannot_run_in_a_transaction(error: &tokio_postgres::Error) -> bool {
    matches!(error.code(), Some(&SqlState::ACTIVE_SQL_TRANSACTION | &SqlState::INVALID_TRANSACTION_TERMINATION))
}

/// Sends the data statements from `first` on without waiting for each response. Returns how many
/// ran.
async fn run_row(
    session: &MigrationSession,
    script: &SqlScript<'_>,
    statements: &[SqlStatement<'_>],
    first: usize,
) -> Result<usize, Box<StatementError>> {
    let mut bytes = 0;
    let row: Vec<&SqlStatement<'_>> = statements[first..]
        .iter()
        .take(ROW_LENGTH)
        .take_while(|statement| {
            let fits = bytes == 0 || bytes + statement.text.len() <= ROW_BYTES;
            bytes += statement.text.len();
            fits && bearing(statement) == TransactionEffect::Data
        })
        .collect();
    let client = session.client();
    let answers = in_order(row.iter().map(|statement| client.batch_execute(statement.text)).collect()).await;
    // After the first error the transaction rejects the rest: the first one is the cause
    for (position, (statement, answer)) in row.iter().zip(answers).enumerate() {
        if let Err(error) = answer {
            return Err(StatementError::from_postgres(script, first + position, statement, &error));
        }
    }
    Ok(row.len())
}

/// Polls futures in their order, which puts their messages on the wire in that order, and waits for
/// all.
async fn in_order<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, output) in running.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

async fn finish(
    session: &mut MigrationSession,
    script: &SqlScript<'_>,
    statements: &[SqlStatement<'_>],
    record: Record<'_>,
) -> Result<(), MigrationError> {
    // A file may have changed the role; the history belongs to `postgres`
    if !matches!(record, Record::Nothing) {
        let failed = MigrationError::history("return to role postgres");
        session.batch("set role postgres").await.map_err(failed)?;
    }
    match record {
        Record::Nothing => {}
        Record::Migration { version, name } => {
            let texts: Vec<&str> = statements.iter().map(|statement| statement.text).collect();
            let failed = MigrationError::history("record the migration");
            history::insert(session, version, name, &texts).await.map_err(failed)?;
        }
        Record::Seed { path, hash } => {
            history::record_seed(session, path, hash).await.map_err(MigrationError::history("record the seed file"))?;
        }
    }
    // Deferred constraints are checked only now
    let last = statements.last().copied().unwrap_or(SqlStatement { text: "", offset: script.text.len() });
    let index = statements.len().saturating_sub(1);
    session.commit().await.map_err(|error| StatementError::from_postgres(script, index, &last, &error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_transaction_is_recognised() {
        let table = [
            ("commit", TransactionEffect::Ends),
            ("/* now */ COMMIT WORK", TransactionEffect::Ends),
            ("end", TransactionEffect::Ends),
            ("rollback", TransactionEffect::Ends),
            ("abort transaction", TransactionEffect::Ends),
            ("prepare transaction 'x'", TransactionEffect::Ends),
            ("rollback to savepoint a", TransactionEffect::Plain),
            ("rollback work to a", TransactionEffect::Plain),
            ("commit and chain", TransactionEffect::Plain),
            ("commit and no chain", TransactionEffect::Ends),
            ("commit prepared 'x'", TransactionEffect::Plain),
            ("BEGIN", TransactionEffect::Begins),
            ("start transaction", TransactionEffect::Begins),
            ("begin isolation level serializable", TransactionEffect::Plain),
            ("insert into t values (1)", TransactionEffect::Data),
            ("-- c\nselect 1", TransactionEffect::Data),
            ("create table commit (a int)", TransactionEffect::Plain),
            ("", TransactionEffect::Plain),
        ];
        for (text, expected) in table {
            assert_eq!(bearing(&SqlStatement { text, offset: 0 }), expected, "{text:?}");
        }
    }
}
