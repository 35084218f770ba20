//! The settings of an endpoint: the way to the server, the password, the protection.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::{EndpointError, invalid};

/// The way to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// The folder that holds the server's socket.
    Socket(PathBuf),
    /// A host name or an IP address.
    Tcp(String),
}

/// A password that does not show itself in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Takes the password's text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the password's text, for the connection and for URLs that a user requested.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The protection of the connection: PostgreSQL's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// Never encrypted.
    Disable,
    /// Encrypted when the server can, without looking at its certificate.
    #[default]
    Prefer,
    /// Encrypted. The certificate is checked only when `sslrootcert` is given, as other clients do.
    Require,
    /// Encrypted, and the certificate was issued by an authority we trust.
    VerifyCa,
    /// Encrypted, the certificate was issued by an authority we trust, and names the host.
    VerifyFull,
}

/// TLS to an external server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The protection of the connection.
    pub mode: TlsMode,
    /// The authorities to trust, a PEM file; without one, those of the system.
    pub root_certificates: Option<PathBuf>,
    /// Our own certificate chain and its key, PEM files, for servers that ask for one.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Refuse a server whose password exchange is not bound to the TLS connection.
    pub require_channel_binding: bool,
}

impl TlsMode {
    /// Returns the value of `sslmode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        }
    }
}

impl FromStr for TlsMode {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Ok(match text {
            "disable" => Self::Disable,
            // `allow` starts in the clear and encrypts when asked to; to encrypt when possible is
            // no weaker.
            "allow" | "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            other => {
                let problem = format!("`{other}` is not disable, allow, prefer, require, verify-ca or verify-full");
                return Err(invalid("sslmode", problem));
            }
        })
    }
}

impl From<&Path> for Host {
    fn from(folder: &Path) -> Self {
        Self::Socket(folder.to_owned())
    }
}
