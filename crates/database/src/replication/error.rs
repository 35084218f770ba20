//! The errors of replication, each with its remedy.

use crate::endpoint::Endpoint;
use crate::tls::TlsError;
use crate::wire::{PostgresError, WireError};

/// The reason why a stream could not be opened, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ReplicationError {
    /// The server could not be reached, or did not answer in time.
    #[error("the database at {server} cannot be reached: {source}")]
    Unreachable {
        /// The address, without any secret.
        server: String,
        /// The error of the attempt.
        #[source]
        source: WireError,
    },
    /// The certificates that the endpoint names cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server's log does not have what a logical stream needs.
    #[error(
        "PostgreSQL does not log what replication needs: run `alter system set wal_level = logical` and restart it \
         ({0})"
    )]
    NotLogical(Box<PostgresError>),
    /// The login role may not replicate.
    #[error(
        "the login role `{role}` may not replicate: as a superuser, run \
         `alter role \"{role}\" with replication` ({source})"
    )]
    NoReplicationRight {
        /// The login role.
        role: String,
        /// PostgreSQL's error.
        #[source]
        source: Box<PostgresError>,
    },
    /// Every replication slot is in use.
    #[error("PostgreSQL has no free replication slot: raise `max_replication_slots`, or drop an unused slot ({0})")]
    NoFreeSlot(Box<PostgresError>),
    /// Every process that sends the log is in use, or the connections of the server or of the role.
    #[error("PostgreSQL has no free connection for replication: raise `max_wal_senders` or `max_connections` ({0})")]
    NoFreeSender(Box<PostgresError>),
    /// Another connection has a slot of this name.
    #[error("the replication slot is in use by another connection ({0})")]
    SlotInUse(Box<PostgresError>),
    /// The slot was too far behind, and the server has removed the log that it needed.
    #[error("the replication slot has lost its place in the log ({0})")]
    SlotLost(Box<PostgresError>),
    /// A publication of the stream does not exist.
    #[error("a publication does not exist ({0})")]
    MissingPublication(Box<PostgresError>),
    /// The connection broke, or the server did not answer in time.
    #[error(transparent)]
    Lost(WireError),
    /// Any other error of PostgreSQL, and everything that the wire client rejects.
    #[error(transparent)]
    Failed(WireError),
    /// The name of a slot or of a publication is not one.
    #[error("the {0} of a replication stream has an invalid name")]
    InvalidName(&'static str),
}

impl ReplicationError {
    /// Returns true if a stream can only be opened after a change of the configuration.
    pub fn needs_configuration(&self) -> bool {
        matches!(self, Self::NotLogical(_) | Self::NoReplicationRight { .. } | Self::Tls(_) | Self::InvalidName(_))
    }

    /// Classifies an error of the connection attempt.
    pub(super) fn connecting(endpoint: &Endpoint, error: WireError) -> Self {
        match error {
            WireError::Postgres(answer) => match &*answer.code {
                "42501" => Self::NoReplicationRight { role: endpoint.user().to_owned(), source: answer },
                "53300" => Self::NoFreeSender(answer),
                _ if WireError::Postgres(answer.clone()).is_unavailable() => {
                    Self::Unreachable { server: endpoint.description(), source: WireError::Postgres(answer) }
                }
                // A pooler that does not know the parameter
                "08P01" => Self::Failed(WireError::Refused(format!(
                    "the connection at {} does not replicate ({answer}): name a direct connection to PostgreSQL, \
                     past the connection pooler",
                    endpoint.description()
                ))),
                _ => Self::Failed(WireError::Postgres(answer)),
            },
            error @ WireError::Lost(_) => Self::Unreachable { server: endpoint.description(), source: error },
            error => Self::Failed(error),
        }
    }

    /// Classifies an error of the command that creates the slot.
    pub(super) fn creating(endpoint: &Endpoint, error: WireError) -> Self {
        match error {
            WireError::Postgres(answer) => match &*answer.code {
                "55000" => Self::NotLogical(answer),
                "42501" => Self::NoReplicationRight { role: endpoint.user().to_owned(), source: answer },
                "53400" => Self::NoFreeSlot(answer),
                "42710" | "55006" => Self::SlotInUse(answer),
                _ => Self::streaming(WireError::Postgres(answer)),
            },
            error => Self::streaming(error),
        }
    }

    /// Classifies an error of a stream that is open.
    pub(super) fn streaming(error: WireError) -> Self {
        match error {
            WireError::Postgres(answer) => match &*answer.code {
                "42704" => Self::MissingPublication(answer),
                "55000" => Self::SlotLost(answer),
                _ if answer.is_fatal() => Self::Lost(WireError::Postgres(answer)),
                _ => Self::Failed(WireError::Postgres(answer)),
            },
            error @ WireError::Lost(_) => Self::Lost(error),
            error => Self::Failed(error),
        }
    }
}
