//! The way in which batches run on a session.

use super::function_traits::FunctionTraits;

/// The way in which batches run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionMode {
    /// The session stays ours between two batches, so statements stay prepared.
    pub prepared: bool,
    /// A pooler lends another server session for each transaction.
    pub pooled: bool,
    /// The statements may run functions of the project, or have values of a caller in settings.
    /// Without that a session needs no reset.
    pub runs_project_code: bool,
    /// The known properties of the functions in the database.
    pub traits: FunctionTraits,
}
