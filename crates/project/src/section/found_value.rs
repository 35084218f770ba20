//! A value of the configuration before its conversion.

use crate::document::Value;
use crate::error::SourcePosition;

/// A value that was found, with its description for messages.
pub(super) struct FoundValue<'n> {
    pub(super) value: ValueSource<'n>,
    pub(super) position: Option<SourcePosition>,
    /// The variable that it came from; if there is one, the text is never shown.
    pub(super) variable: Option<String>,
}

/// The source of a value.
pub(super) enum ValueSource<'n> {
    Written(&'n Value),
    Text(String),
}

impl FoundValue<'_> {
    /// Returns the name of its type, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            ValueSource::Written(value) => value.kind(),
            ValueSource::Text(_) => "text",
        }
    }

    /// Returns the value for an error message, without anything that may be secret.
    pub(super) fn shown(&self) -> String {
        match (&self.variable, &self.value) {
            (Some(variable), _) => format!("the value of {variable}"),
            (None, ValueSource::Written(Value::Text(text))) => {
                let short: String = text.chars().take(40).collect();
                format!("{short:?}")
            }
            (None, ValueSource::Written(Value::Integer(number))) => number.to_string(),
            (None, _) => self.kind().to_owned(),
        }
    }

    /// Returns the value if it is text.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            ValueSource::Written(Value::Text(text)) => Some(text),
            ValueSource::Written(_) => None,
            ValueSource::Text(text) => Some(text),
        }
    }
}

/// Returns the name of the variable if the whole text is `env(NAME)`.
pub(crate) fn reference(text: &str) -> Option<&str> {
    let name = text.strip_prefix("env(")?.strip_suffix(')')?;
    (!name.is_empty() && !name.contains(['(', ')', ' ', '\n'])).then_some(name)
}
