//! What is asked: statements that go out together.

/// A value for a `$n` of a statement, as PostgreSQL's text form of it; `None` is null. The server infers its type.
pub type Param<'a> = Option<&'a [u8]>;

/// Statements that go out in one write and are one implicit transaction: all of them take effect or none.
///
/// A batch may open a transaction of its own with `begin` as its first statement and leave it open; the next batch on the
/// same [`Lease`](super::Lease) goes on in it, and one with `commit` or `rollback` ends it.
#[derive(Debug, Clone, Default)]
pub struct Batch<'a> {
    pub(super) statements: Vec<Statement<'a>>,
    pub(super) restores: bool,
}

impl<'a> Batch<'a> {
    /// A batch without statements.
    pub fn new() -> Self {
        Self { statements: Vec::with_capacity(3), restores: false }
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

    /// Behind the last statement the session gets back the settings and the role that the connection began with, in the same write:
    /// for statements that may have changed them for whoever comes next. The answers to that come behind the others. A batch that
    /// fails or rolls back needs none of it.
    #[must_use]
    pub fn restoring(self) -> Self {
        Self { restores: true, ..self }
    }

    /// How many statements it has.
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
    pub(super) text: &'a str,
    pub(super) scope: &'a str,
    pub(super) params: &'a [Param<'a>],
    pub(super) kind: Kind,
    pub(super) binary: bool,
}

/// Whether the server keeps the parsed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Named,
    Unnamed,
}

impl<'a> Statement<'a> {
    /// A statement that comes again: parsed the first time that a connection sees it, and only bound and executed from then
    /// on. With a pool that does not prepare it is parsed each time.
    pub fn named(text: &'a str, params: &'a [Param<'a>]) -> Self {
        Self { text, scope: "", params, kind: Kind::Named, binary: false }
    }

    /// A statement that hardly comes again: parsed each time, and not kept.
    pub fn unnamed(text: &'a str, params: &'a [Param<'a>]) -> Self {
        Self { text, scope: "", params, kind: Kind::Unnamed, binary: false }
    }

    /// Asks for results in PostgreSQL's binary form: a text as it is, a `bytea` as its bytes, a `bigint` as eight of them.
    #[must_use]
    pub fn binary(self) -> Self {
        Self { binary: true, ..self }
    }

    /// Keeps the parsed statement apart from the same text in another scope. The scope of a table under row level security
    /// is the role, since each change of the role makes PostgreSQL plan it anew.
    #[must_use]
    pub fn scope(self, scope: &'a str) -> Self {
        Self { scope, ..self }
    }
}
