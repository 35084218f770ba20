//! The errors of templates.

/// The reason why a template cannot be parsed or rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", position(.line))]
pub struct TemplateError {
    line: Option<usize>,
    message: String,
}

fn position(line: &Option<usize>) -> String {
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

impl TemplateError {
    pub(crate) fn at(line: usize, message: impl Into<String>) -> Self {
        Self { line: Some(line), message: message.into() }
    }

    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self { line: None, message: message.into() }
    }

    /// Returns the line of the template, counted from one.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns the reason, without the line.
    pub fn message(&self) -> &str {
        &self.message
    }
}
