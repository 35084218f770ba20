//! The ways on which fragments travel between servers.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::{ConnectOptions, ServerAddr};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use futures_util::StreamExt as _;
use percent_encoding::percent_decode_str;
use portico_base::Secret;
use portico_database::wire::{Access, Batch, Pool, Statement, WireError};
use portico_database::{Database, DatabaseError, Listener};

/// The channel of the notifications.
const CHANNEL: &str = "portico_realtime";
/// A notification has less than 8000 bytes, in base64. Messages are split rather than put into a
/// table: the fragments of one message are one transaction either way, and nothing has to be
/// removed.
const MAX_NOTIFICATION: usize = 5_990;
/// The fragments of one transaction.
const FRAGMENTS_PER_TRANSACTION: usize = 256;
/// Sends a notification for each fragment.
const NOTIFY: &str = "select pg_catalog.pg_notify('portico_realtime', fragment) from pg_catalog.unnest($1::pg_catalog.text[]) as fragment";

/// The largest fragment on NATS, whose servers accept a megabyte unless they are set up otherwise.
const MAX_NATS_FRAGMENT: usize = 64 * 1024;
/// The fragments that may wait to be read: 256 MiB of the largest ones. Further ones are dropped.
const NATS_QUEUE: usize = 4 * 1024;
const NATS_TIMEOUT: Duration = Duration::from_secs(5);

/// A way between servers.
#[derive(Debug)]
pub(super) enum LinkSettings {
    Notify {
        database: Database,
        pool: Pool,
    },
    /// The address may contain a password. The servers of a project share a subject.
    Nats {
        address: Secret,
        subject: String,
    },
}

/// An open way.
#[derive(Debug)]
pub(super) enum ClusterLink {
    Notify { listener: Listener, pool: Pool },
    Nats { client: async_nats::Client, subscription: async_nats::Subscriber, subject: String },
}

/// The reason why a way cannot be used at the moment.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("notifications cannot be received through a connection pooler")]
    Pooled,
    #[error("the NATS server cannot be reached: {0}")]
    Nats(String),
    #[error(transparent)]
    Listen(#[from] DatabaseError),
    #[error(transparent)]
    Notify(#[from] WireError),
}

impl LinkSettings {
    /// Opens the way. What others send from now on arrives.
    pub async fn open(&self) -> Result<ClusterLink, LinkError> {
        match self {
            Self::Notify { database, .. } if !database.receives_notifications() => Err(LinkError::Pooled),
            Self::Notify { database, pool } => {
                let listener = Listener::open(database.endpoint(), CHANNEL).await?;
                Ok(ClusterLink::Notify { listener, pool: pool.clone() })
            }
            Self::Nats { address, subject } => {
                let address: ServerAddr = address.expose().parse().map_err(|error| nats_error(&error))?;
                let client = nats_options(&address).connect(address).await.map_err(|error| nats_error(&error))?;
                let subscription = client.subscribe(subject.clone()).await.map_err(|error| nats_error(&error))?;
                // The server has the subscription when this returns
                client.flush().await.map_err(|error| nats_error(&error))?;
                Ok(ClusterLink::Nats { client, subscription, subject: subject.clone() })
            }
        }
    }
}

impl ClusterLink {
    /// Returns the size of the largest fragment.
    pub fn max_fragment(&self) -> usize {
        match self {
            Self::Notify { .. } => MAX_NOTIFICATION,
            Self::Nats { client, .. } => client.server_info().max_payload.clamp(1_024, MAX_NATS_FRAGMENT),
        }
    }

    /// Sends fragments, in their order.
    pub async fn send(&mut self, fragments: &[Vec<u8>]) -> Result<(), LinkError> {
        match self {
            Self::Notify { pool, .. } => {
                for fragments in fragments.chunks(FRAGMENTS_PER_TRANSACTION) {
                    let texts: Vec<String> =
                        fragments.iter().map(|fragment| STANDARD_NO_PAD.encode(fragment)).collect();
                    // Base64 needs no quotes
                    let array = format!("{{{}}}", texts.join(","));
                    let values = [Some(array.as_bytes())];
                    let batch = Batch::new().statement(Statement::named(NOTIFY, &values)).ending(Access::ReadWrite);
                    pool.checkout().await?.run(&batch).await?;
                }
                Ok(())
            }
            Self::Nats { client, subject, .. } => {
                for fragment in fragments {
                    // Its own attempts to connect again would let this wait
                    if client.connection_state() != State::Connected {
                        return Err(LinkError::Nats("the connection was lost".to_owned()));
                    }
                    let fragment = Bytes::copy_from_slice(fragment);
                    client.publish(subject.clone(), fragment).await.map_err(|error| nats_error(&error))?;
                }
                Ok(())
            }
        }
    }

    /// Waits until everything that was sent has left.
    pub async fn flush(&mut self) {
        match self {
            Self::Notify { .. } => {}
            Self::Nats { client, .. } => {
                let _ = tokio::time::timeout(NATS_TIMEOUT, client.flush()).await;
            }
        }
    }

    /// Waits for the next fragment of any server. `None`: the way is closed. Nothing is lost if the
    /// future is dropped.
    pub async fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Notify { listener, .. } => loop {
                // Others may notify the channel too
                if let Ok(fragment) = STANDARD_NO_PAD.decode(listener.next().await?) {
                    return Some(fragment.into());
                }
            },
            Self::Nats { subscription, .. } => subscription.next().await.map(|message| message.payload),
        }
    }
}

/// Returns the options of a connection. A user without a password is a token.
fn nats_options(address: &ServerAddr) -> ConnectOptions {
    let options = ConnectOptions::new()
        .name("portico")
        .no_echo()
        .connection_timeout(NATS_TIMEOUT)
        .subscription_capacity(NATS_QUEUE);
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    match (address.username().map(decoded), address.password().map(decoded)) {
        (Some(user), Some(password)) => options.user_and_password(user, password),
        (Some(token), None) => options.token(token),
        (None, _) => options,
    }
}

fn nats_error(error: &dyn std::error::Error) -> LinkError {
    LinkError::Nats(error.to_string())
}
