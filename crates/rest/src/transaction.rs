//! One request's transaction: its settings, its statements, and whether it is kept (contract 14).
//!
//! Where nothing has to be looked at before the commit, everything travels in one write; mostly it is one implicit transaction even, which
//! needs neither BEGIN nor COMMIT. Otherwise a second write ends it. Settings that the connection has from an earlier request are not set again.

use portico_database::wire::{
    Answers, Batch, Gathered, Joining, Lease, Param, Pool, Statement, Taken, WireError, Within,
};

use crate::in_database::Isolation;
use crate::settings::{Sees, Setting, Settings};
use crate::sql::{Sql, Yields};

impl Setting<'_> {
    /// The batch that commits. What its statements set for the session by mistake, or by `SET`, ends with it.
    fn ending<'a>(&self, batch: Batch<'a>) -> Batch<'a> {
        if self.may_set && self.has_session() { batch.restoring() } else { batch }
    }
}

/// How the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Commit, whatever comes out.
    Commit,
    /// Roll back, whatever comes out; deferred constraints are checked before.
    RollBack,
    /// Somebody looks at the answers first: the transaction is left open for [`finish`].
    Later,
}

/// The statements of a request, after its settings.
pub(crate) struct Work<'a> {
    pub main: &'a Sql,
    /// What the main statement yields.
    pub yields: Yields,
    /// Another statement behind the main one.
    pub then: Option<&'a Sql>,
}

/// What came out.
pub(crate) struct Outcome {
    answers: Answers,
    main: usize,
}

impl Outcome {
    /// The rows of the main statement.
    pub fn main(&self) -> &[portico_database::wire::Row] {
        self.answers.rows(self.main)
    }

    /// The main statement's rows, joined.
    pub fn gathered(&mut self) -> Option<Gathered> {
        self.answers.gathered()
    }

    /// How many rows the main statement wrote.
    pub fn affected(&self) -> u64 {
        self.answers.affected(self.main).unwrap_or_default()
    }

    /// The rows of the statement behind it.
    pub fn then(&self) -> &[portico_database::wire::Row] {
        self.answers.rows(self.main + 1)
    }
}

/// Runs the statements of a request in its settings.
pub(crate) async fn run(
    lease: &mut Lease,
    setting: &Setting<'_>,
    work: Work<'_>,
    end: End,
) -> Result<Outcome, WireError> {
    let settings = Settings::of(setting);
    let (kept, passing) = (settings.kept(), settings.passing());
    let passing_params: Vec<Param<'_>> =
        passing.iter().flat_map(|(name, value)| [Some(name.as_bytes()), Some(value.as_bytes())]).collect();
    let set_passing = (!passing.is_empty()).then(|| set_passing(passing.len()));
    let pre_request = setting.config.pre_request.as_ref().map(|function| {
        let mut call = Sql::new();
        call.raw("select ");
        if !function.schema.is_empty() {
            call.name(&function.schema).raw(".");
        }
        call.name(&function.name).raw("()");
        call
    });
    let main_params = params(work.main);
    let then_params = work.then.map(params);
    let scope = setting.identity.role.as_str();

    let mut batch = Batch::new();
    // An implicit transaction is as isolated as the session says, and may write. Where nothing runs that could, nobody sees it
    let only_reads = setting.read_only && setting.sees == Sees::Everything;
    let has_wishes = setting.isolation.is_some() || only_reads || !setting.has_session();
    let is_explicit = end != End::Commit || has_wishes;
    if is_explicit {
        batch.push(Statement::named(begin(setting.isolation, setting.read_only), &[]));
    }
    batch = batch.within(Within { settings: &kept, unseen: settings.unseen() });
    if let Some(set) = &set_passing {
        batch.push(Statement::named(set, &passing_params));
    }
    if let Some(call) = &pre_request {
        batch.push(Statement::named(call.text(), &[]).scope(scope));
    }
    let main = batch.len();
    // Bodies may be bytes, which the text form would double
    let statement = Statement::named(work.main.text(), &main_params).scope(scope).binary();
    batch.push(match work.yields {
        Yields::Rows(joining) => statement.gathered(joining),
        Yields::Envelope | Yields::Count => statement,
    });
    if let (Some(then), Some(params)) = (work.then, &then_params) {
        batch.push(Statement::named(then.text(), params).scope(scope));
    }
    match end {
        End::Later => {}
        End::Commit => {
            if is_explicit {
                batch.push(Statement::named("commit", &[]));
            }
            batch = setting.ending(batch);
        }
        End::RollBack => {
            batch.push(Statement::named("set constraints all immediate", &[]));
            batch.push(Statement::named("rollback", &[]));
        }
    }
    Ok(Outcome { answers: lease.run(&batch).await?, main })
}

/// Runs a read on a connection of the pool, or has it taken along by somebody who has one.
///
/// Precondition: [`may_travel`].
///
/// # Errors
/// No connection, or what the statement failed with.
pub(crate) async fn read(pool: &Pool, setting: &Setting<'_>, main: &Sql, joining: Joining) -> Result<Outcome, Failure> {
    let settings = Settings::of(setting);
    let (kept, params) = (settings.kept(), params(main));
    let within = Within { settings: &kept, unseen: settings.unseen() };
    let statement = Statement::named(main.text(), &params).scope(setting.identity.role.as_str()).binary();
    let batch = Batch::new().within(within).statement(statement.gathered(joining));
    let answers = match pool.take_for_read(&batch).await.map_err(Failure::Connection)? {
        Taken::Answers(answers) => answers,
        Taken::Lease(lease) => lease.read(&batch).await.map_err(Failure::Statement)?,
    };
    Ok(Outcome { answers, main: 0 })
}

/// What a read fails with.
pub(crate) enum Failure {
    /// There was no connection to be had.
    Connection(WireError),
    /// It was refused, or the connection broke.
    Statement(WireError),
}

/// Whether a read needs nothing but settings and one statement, so that others may run it along with theirs, twice if need be: it runs
/// nobody's functions and sees nothing but claims.
pub(crate) fn may_travel(setting: &Setting<'_>) -> bool {
    let sees_little = setting.sees == Sees::Claims && !setting.may_set && setting.config.pre_request.is_none();
    let is_usual = setting.isolation.is_none() && setting.time_zone.is_none() && setting.hoisted.is_empty();
    setting.read_only && sees_little && is_usual && setting.has_session() && setting.has_usual_path()
}

/// Ends a transaction that was left open.
pub(crate) async fn finish(lease: &mut Lease, setting: &Setting<'_>, commit: bool) -> Result<(), WireError> {
    let batch = Batch::new();
    let batch = if commit {
        setting.ending(batch.statement(Statement::named("commit", &[])))
    } else {
        batch
            .statement(Statement::named("set constraints all immediate", &[]))
            .statement(Statement::named("rollback", &[]))
    };
    lease.run(&batch).await.map(drop)
}

/// The statement that makes so many settings for the transaction.
fn set_passing(count: usize) -> String {
    let calls: Vec<_> =
        (0..count).map(|at| format!("pg_catalog.set_config(${}, ${}, true)", 2 * at + 1, 2 * at + 2)).collect();
    format!("select {}", calls.join(", "))
}

fn begin(isolation: Option<Isolation>, read_only: bool) -> &'static str {
    match (isolation, read_only) {
        (None, true) => "begin isolation level read committed read only",
        (None, false) => "begin isolation level read committed read write",
        (Some(Isolation::RepeatableRead), true) => "begin isolation level repeatable read read only",
        (Some(Isolation::RepeatableRead), false) => "begin isolation level repeatable read read write",
        (Some(Isolation::Serializable), true) => "begin isolation level serializable read only",
        (Some(Isolation::Serializable), false) => "begin isolation level serializable read write",
    }
}

fn params(sql: &Sql) -> Vec<Param<'_>> {
    sql.params().iter().map(|param| Some(param.as_bytes())).collect()
}
