//! One pass over a configuration tree.

use std::cell::RefCell;

use crate::encrypted::DecryptionKeys;
use crate::environment::Environment;
use crate::error::{Problem, SourcePosition, Warning, WarningKind};

/// The treatment of unknown keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownKeys {
    /// They are warnings: newer versions of the format add keys.
    Warn,
    /// They are errors: only Portico reads the file.
    Fail,
}

/// One pass over a configuration tree, with its findings.
pub(crate) struct ConfigReader<'e> {
    pub(super) environment: &'e Environment,
    pub(super) keys: DecryptionKeys,
    /// `SUPABASE` or `PORTICO`: the prefix of overriding variables.
    pub(super) variable_prefix: &'static str,
    pub(super) unknown: UnknownKeys,
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Warning>>,
}

impl<'e> ConfigReader<'e> {
    pub fn new(environment: &'e Environment, variable_prefix: &'static str, unknown: UnknownKeys) -> Self {
        Self {
            environment,
            keys: DecryptionKeys::from_environment(environment),
            variable_prefix,
            unknown,
            problems: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    pub fn environment(&self) -> &'e Environment {
        self.environment
    }

    /// Adds a problem that makes the configuration unusable.
    pub fn fail(&self, position: Option<SourcePosition>, key: impl Into<String>, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem { position, key: key.into(), message: message.into() });
    }

    /// Adds a warning.
    pub fn warn(
        &self,
        kind: WarningKind,
        position: Option<SourcePosition>,
        key: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.warnings.borrow_mut().push(Warning { kind, position, key: key.into(), message: message.into() });
    }

    pub fn into_findings(self) -> (Vec<Problem>, Vec<Warning>) {
        (self.problems.into_inner(), self.warnings.into_inner())
    }
}
