//! The row count of a statement.

/// The count that a statement returns besides the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowCount {
    /// No count.
    #[default]
    None,
    /// The number of rows without limit and offset.
    Exact,
    /// The same, but counting stops at this number.
    UpTo(u64),
}
