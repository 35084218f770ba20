//! A file of SQL statements.

use std::path::Path;

/// The text of a file and its name for display.
pub(crate) struct SqlScript<'a> {
    pub shown: &'a Path,
    pub text: &'a str,
}
