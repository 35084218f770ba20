//! The ways on which parts travel between servers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use portico_database::wire::{Access, Batch, Pool, Statement, WireError};
use portico_database::{Database, DatabaseError, Listener};

/// The channel of the notifications.
const CHANNEL: &str = "portico_realtime";
/// A notification has less than 8000 bytes, in base64. Messages are split rather than put into a
/// table: the parts of one message are one transaction either way, and nothing has to be removed.
const MAX_NOTIFICATION: usize = 5_990;
/// The parts of one transaction.
const PARTS_PER_TRANSACTION: usize = 256;
/// Sends a notification for each part.
const NOTIFY: &str =
    "select pg_catalog.pg_notify('portico_realtime', part) from pg_catalog.unnest($1::pg_catalog.text[]) as part";

/// A way between servers.
#[derive(Debug)]
pub(super) enum Way {
    Notify { database: Database, pool: Pool },
}

/// An open way.
#[derive(Debug)]
pub(super) enum Link {
    Notify { listener: Listener, pool: Pool },
}

/// The reason why a way cannot be used at the moment.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("notifications cannot be received through a connection pooler")]
    Pooled,
    #[error(transparent)]
    Listen(#[from] DatabaseError),
    #[error(transparent)]
    Notify(#[from] WireError),
}

impl Way {
    /// Opens the way. What others send from now on arrives.
    pub async fn open(&self) -> Result<Link, LinkError> {
        match self {
            Self::Notify { database, .. } if !database.receives_notifications() => Err(LinkError::Pooled),
            Self::Notify { database, pool } => {
                let listener = Listener::open(database.endpoint(), CHANNEL).await?;
                Ok(Link::Notify { listener, pool: pool.clone() })
            }
        }
    }
}

impl Link {
    /// Returns the size of the largest part.
    pub fn max_part(&self) -> usize {
        match self {
            Self::Notify { .. } => MAX_NOTIFICATION,
        }
    }

    /// Sends parts, in their order.
    pub async fn send(&mut self, parts: &[Vec<u8>]) -> Result<(), LinkError> {
        match self {
            Self::Notify { pool, .. } => {
                for parts in parts.chunks(PARTS_PER_TRANSACTION) {
                    let texts: Vec<String> = parts.iter().map(|part| STANDARD_NO_PAD.encode(part)).collect();
                    // Base64 needs no quotes
                    let array = format!("{{{}}}", texts.join(","));
                    let values = [Some(array.as_bytes())];
                    let batch = Batch::new().statement(Statement::named(NOTIFY, &values)).ending(Access::ReadWrite);
                    pool.checkout().await?.run(&batch).await?;
                }
                Ok(())
            }
        }
    }

    /// Waits for the next part of any server. `None`: the way is closed. Nothing is lost if the
    /// future is dropped.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Notify { listener, .. } => loop {
                // Others may notify the channel too
                if let Ok(part) = STANDARD_NO_PAD.decode(listener.next().await?) {
                    return Some(part);
                }
            },
        }
    }
}
