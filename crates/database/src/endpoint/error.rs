//! The errors of connection URLs.

/// The known parameters, for the error message.
const KNOWN: &str = "sslmode, sslrootcert, sslcert, sslkey, channel_binding, host, port, user, password, dbname, \
                     application_name, connect_timeout, options";

/// A connection URL that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not a URL at all, or of another scheme.
    #[error("not a PostgreSQL URL ({0}): it looks like postgresql://user:password@host:5432/database")]
    NotAUrl(String),
    /// A part of the URL has no meaning.
    #[error("the PostgreSQL URL has an invalid {part}: {problem}")]
    Invalid {
        /// The name of the part.
        part: &'static str,
        /// The reason.
        problem: String,
    },
    /// A parameter we do not know. Ignoring it could weaken what the person asked for.
    #[error("the PostgreSQL URL has the unknown parameter `{0}`; understood are {KNOWN}")]
    UnknownParameter(String),
}

/// Returns the error of a part.
pub(super) fn invalid(part: &'static str, problem: String) -> EndpointError {
    EndpointError::Invalid { part, problem }
}
