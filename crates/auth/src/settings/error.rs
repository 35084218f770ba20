//! Settings that are not valid.

use url::Url;

/// A setting that is not valid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A URL cannot be parsed.
    #[error("{name}: \"{value}\" is not an absolute URL: {reason}")]
    Url {
        /// The setting.
        name: &'static str,
        /// The value.
        value: String,
        /// The reason.
        reason: String,
    },
    /// A value is outside its bounds.
    #[error("{name}: {reason}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The reason.
        reason: String,
    },
    /// An email template cannot be parsed.
    #[error("template of {kind}: {reason}")]
    Template {
        /// Key of the email.
        kind: &'static str,
        /// The reason, with the line.
        reason: String,
    },
    /// A redirect pattern cannot be parsed.
    #[error("redirect allow list: \"{pattern}\": {reason}")]
    RedirectPattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        reason: String,
    },
}

/// Parses a setting that is an absolute URL.
///
/// # Errors
/// [`SettingsError::Url`].
pub(super) fn absolute_url(name: &'static str, value: &str) -> Result<Url, SettingsError> {
    Url::parse(value)
        .map_err(|error| error.to_string())
        .and_then(|url| if url.cannot_be_a_base() { Err("it has no host".to_owned()) } else { Ok(url) })
        .map_err(|reason| SettingsError::Url { name, value: value.to_owned(), reason })
}
