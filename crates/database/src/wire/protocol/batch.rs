//! A batch: statements that are sent in one write.

use super::joined_rows::RowSeparators;

/// The value of a `$n` of a statement in PostgreSQL's text form; `None` is null. The server infers
/// its type.
pub type Param<'a> = Option<&'a [u8]>;

/// Statements that are sent in one write. Without a `begin` among them they are one implicit
/// transaction: all of them take effect or none.
///
/// A batch may open a transaction with `begin` as its first statement and leave it open. The next
/// batch on the same [`PooledConnection`](crate::wire::PooledConnection) runs in it, and one with
/// `commit` or `rollback` ends it.
#[derive(Debug, Clone, Default)]
pub struct Batch<'a> {
    pub(crate) statements: Vec<Statement<'a>>,
    pub(crate) ends: Option<Access>,
}

/// The access mode of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The transaction was begun `read only`.
    ReadOnly,
    /// The transaction may write.
    ReadWrite,
}

impl<'a> Batch<'a> {
    /// Returns a batch without statements.
    pub fn new() -> Self {
        Self { statements: Vec::with_capacity(10), ends: None }
    }

    /// Appends a statement.
    #[must_use]
    pub fn statement(mut self, statement: Statement<'a>) -> Self {
        self.statements.push(statement);
        self
    }

    /// Appends a statement.
    pub fn push(&mut self, statement: Statement<'a>) {
        self.statements.push(statement);
    }

    /// Declares that the last statement, `commit` or `rollback`, ends a transaction with this
    /// access mode. The session is then reset in the same write, so that the connection can serve
    /// another caller at once. A connection whose last batch did not declare it is restored before
    /// its next use, which takes round trips of its own.
    #[must_use]
    pub fn ending(self, access: Access) -> Self {
        Self { ends: Some(access), ..self }
    }

    /// Returns the number of statements.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Returns true if there are no statements.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}

/// One statement with its values. It is a single command: the extended protocol accepts no list.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    pub(crate) text: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) params: &'a [Param<'a>],
    pub(crate) preparation: Preparation,
    pub(crate) binary: bool,
    pub(crate) is_main: bool,
    pub(crate) joined: Option<RowSeparators>,
}

/// Determines whether the server keeps the parsed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// Kept under a name.
    Named,
    /// Not kept.
    Unnamed,
    /// Kept in the unnamed prepared statement until another one is parsed there.
    KeptUnnamed(&'static str),
}

impl<'a> Statement<'a> {
    /// Returns a statement that is used repeatedly: a connection parses it once, and only binds and
    /// executes it from then on. A pool without prepared statements parses it each time.
    pub fn named(text: &'a str, params: &'a [Param<'a>]) -> Self {
        Self { text, scope: "", params, preparation: Preparation::Named, binary: false, is_main: false, joined: None }
    }

    /// Returns a statement that is parsed each time and not kept.
    pub fn unnamed(text: &'a str, params: &'a [Param<'a>]) -> Self {
        Self { text, scope: "", params, preparation: Preparation::Unnamed, binary: false, is_main: false, joined: None }
    }

    /// Returns a statement without values that is used repeatedly and that SQL must not be able to
    /// replace: it is kept in the unnamed prepared statement, which `prepare` and `deallocate`
    /// cannot reach.
    pub(crate) fn kept_unnamed(text: &'static str) -> Self {
        Self {
            text,
            scope: "",
            params: &[],
            preparation: Preparation::KeptUnnamed(text),
            binary: false,
            is_main: false,
            joined: None,
        }
    }

    /// Requests results in PostgreSQL's binary form: a text as it is, a `bytea` as its bytes, a
    /// `bigint` as eight bytes.
    #[must_use]
    pub fn binary(self) -> Self {
        Self { binary: true, ..self }
    }

    /// Declares that the duration of the batch is that of this statement, by which
    /// [`ReadCoalescer`](crate::wire::ReadCoalescer) knows quick reads. Without one, a batch is not
    /// coalesced.
    #[must_use]
    pub fn main(self) -> Self {
        Self { is_main: true, ..self }
    }

    /// Like [`main`](Self::main). Joins the first columns of all its rows as they arrive, for
    /// [`ResultSets::take_joined_rows`](crate::wire::ResultSets::take_joined_rows). If several
    /// statements of a batch ask for it, only the rows of the last one are joined.
    #[must_use]
    pub fn joined(self, separators: RowSeparators) -> Self {
        Self { joined: Some(separators), ..self.main() }
    }

    /// Separates the parsed statement from the same text in another scope. A statement on a table
    /// with row-level security uses the role as its scope, because PostgreSQL replans a prepared
    /// statement whenever the role changes.
    #[must_use]
    pub fn scope(self, scope: &'a str) -> Self {
        Self { scope, ..self }
    }
}
