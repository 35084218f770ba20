//! Statements that go out together.

use super::gathered::Joining;

/// A value for a `$n` of a statement, as PostgreSQL's text form of it; `None` is null. The server infers its type.
pub type Param<'a> = Option<&'a [u8]>;

/// Statements that go out in one write. Without a `begin` among them they are one implicit transaction: all of
/// them take effect or none.
///
/// A batch may open a transaction with `begin` as its first statement and leave it open; the next batch on the
/// same [`Lease`](crate::wire::Lease) goes on in it, and one with `commit` or `rollback` ends it.
#[derive(Debug, Clone, Default)]
pub struct Batch<'a> {
    pub(crate) statements: Vec<Statement<'a>>,
    pub(crate) ends: Option<Access>,
}

/// The rights of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It was begun `read only`.
    ReadOnly,
    /// It may write.
    ReadWrite,
}

impl<'a> Batch<'a> {
    /// Returns a batch without statements.
    pub fn new() -> Self {
        Self { statements: Vec::with_capacity(10), ends: None }
    }

    /// Adds a statement behind the others.
    #[must_use]
    pub fn statement(mut self, statement: Statement<'a>) -> Self {
        self.statements.push(statement);
        self
    }

    /// Adds a statement behind the others.
    pub fn push(&mut self, statement: Statement<'a>) {
        self.statements.push(statement);
    }

    /// Declares that the last statement, `commit` or `rollback`, ends a transaction with these rights: behind it the
    /// session is taken back in the same write, so that the connection can serve another caller at once. A connection whose last
    /// batch did not declare it is restored before that, which takes round trips of its own.
    #[must_use]
    pub fn ending(self, access: Access) -> Self {
        Self { ends: Some(access), ..self }
    }

    /// Returns how many statements it has.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}

/// One statement with its values. Never more than one command: the extended protocol takes no list.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    pub(crate) text: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) params: &'a [Param<'a>],
    pub(crate) kind: Kind,
    pub(crate) binary: bool,
    pub(crate) gathered: Option<Joining>,
}

/// Whether the server keeps the parsed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Named,
    Unnamed,
    /// In the unnamed statement, for as long as no other one is parsed there.
    KeptUnnamed(&'static str),
}

impl<'a> Statement<'a> {
    /// Returns a statement that comes again: parsed the first time that a connection sees it, and only bound
    /// and executed from then on. With a pool that does not prepare it is parsed each time.
    pub fn named(text: &'a str, params: &'a [Param<'a>]) -> Self {
        Self { text, scope: "", params, kind: Kind::Named, binary: false, gathered: None }
    }

    /// Returns a statement that hardly comes again: parsed each time, and not kept.
    pub fn unnamed(text: &'a str, params: &'a [Param<'a>]) -> Self {
        Self { text, scope: "", params, kind: Kind::Unnamed, binary: false, gathered: None }
    }

    /// Returns a statement without values that comes again and that SQL must not exchange for another: it is kept in the
    /// unnamed prepared statement, which `prepare` and `deallocate` cannot reach.
    pub(crate) fn kept_unnamed(text: &'static str) -> Self {
        Self { text, scope: "", params: &[], kind: Kind::KeptUnnamed(text), binary: false, gathered: None }
    }

    /// Asks for results in PostgreSQL's binary form: a text as it is, a `bytea` as its bytes, a `bigint` as eight
    /// of them.
    #[must_use]
    pub fn binary(self) -> Self {
        Self { binary: true, ..self }
    }

    /// Joins the first columns of all its rows as they come in, for [`Answers::gathered`](crate::wire::Answers::gathered).
    /// One statement of a batch may be so; of several the last is.
    #[must_use]
    pub fn gathered(self, joining: Joining) -> Self {
        Self { gathered: Some(joining), ..self }
    }

    /// Keeps the parsed statement apart from the same text in another scope. The scope of a table under row level
    /// security is the role, since each change of the role makes PostgreSQL plan it anew.
    #[must_use]
    pub fn scope(self, scope: &'a str) -> Self {
        Self { scope, ..self }
    }
}
