//! The errors of decoding and of rendering.

/// A message that does not follow the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The message ends before its content does.
    #[error("a replication message ends too early")]
    Truncated,
    /// The kind of the message is unknown.
    #[error("a replication message of an unknown kind")]
    UnknownKind,
    /// The kind of a value is unknown.
    #[error("a replication message has a value of an unknown kind")]
    UnknownValue,
    /// A name is not UTF-8.
    #[error("a replication message has a name that is not UTF-8")]
    InvalidName,
    /// A change of a table that was not described.
    #[error("a change of the unknown relation {0}")]
    UnknownRelation(u32),
    /// A row has more or fewer values than its table has columns.
    #[error("a row of relation {0} does not have the columns of its table")]
    ColumnCount(u32),
    /// A change outside of a transaction, or a transaction inside of one.
    #[error("a replication message is out of order")]
    OutOfOrder,
}

/// A value that does not have the shape of its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueRenderError {
    /// The text is not one of the type.
    #[error("a malformed {0}")]
    Malformed(&'static str),
    /// A composite value has more or fewer attributes than its type: the type has changed.
    #[error("a composite value does not have the attributes of its type")]
    AttributeCount,
    /// Values are nested too deeply.
    #[error("a value is nested too deeply")]
    TooDeep,
    /// Only the server can render the value, see [`Shape::Cast`].
    #[error("a value needs a cast of the server")]
    NeedsCast,
}
