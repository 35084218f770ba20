//! Notifications: a connection that listens.

use futures_util::future::poll_fn;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client};

use crate::connection;
use crate::endpoint::Endpoint;
use crate::error::DatabaseError;
use crate::quote;
use crate::tls::Tls;

/// Notifications that wait to be read; more are dropped, the newest first, since a listener that is
/// so far behind reads everything anew anyway.
const WAITING: usize = 1024;

/// A connection that listens on one channel (`LISTEN`). It closes when this is dropped.
///
/// Behind a connection pooler in transaction mode nothing can be received: there a listener has no
/// connection, and no notification ever comes.
#[derive(Debug)]
pub struct Listener(Option<Listening>);

#[derive(Debug)]
struct Listening {
    client: Client,
    payloads: mpsc::Receiver<String>,
    driver: JoinHandle<()>,
}

impl Listener {
    /// Connects and listens on `channel` from the moment this returns.
    ///
    /// # Errors
    /// Those of [`connect`](crate::connect); [`DatabaseError::Postgres`] also when the server does
    /// not take writes, whose notifications never arrive (a stand-by).
    pub async fn open(endpoint: &Endpoint, channel: &str) -> Result<Self, DatabaseError> {
        if !endpoint.receives_notifications() {
            return Ok(Self(None));
        }
        let endpoint = endpoint.direct();
        let tls = Tls::new(endpoint.tls(), endpoint.host())?;
        let connected = endpoint.to_config().connect(tls).await;
        let (client, mut driven) = connected.map_err(|error| connection::rejection(endpoint, error))?;
        let (sender, payloads) = mpsc::channel(WAITING);
        let driver = tokio::spawn(async move {
            // A full queue loses nothing that matters: see `WAITING`. An error ends the stream,
            // which the reader notices.
            while let Some(Ok(message)) = poll_fn(|context| driven.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message {
                    let _ = sender.try_send(notification.payload().to_owned());
                }
            }
        });
        let listening = Listening { client, payloads, driver };
        let channel = quote::identifier(channel);
        listening
            .client
            .batch_execute(&format!("listen {channel}"))
            .await
            .map_err(|error| connection::rejection(endpoint, error))?;
        Ok(Self(Some(listening)))
    }

    /// Returns the payload of the next notification; `None` when the connection is lost.
    pub async fn next(&mut self) -> Option<String> {
        match &mut self.0 {
            Some(listening) => listening.payloads.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the payloads that have arrived and were not read yet, without waiting.
    pub fn pending(&mut self) -> Vec<String> {
        let Some(listening) = &mut self.0 else { return Vec::new() };
        std::iter::from_fn(|| listening.payloads.try_recv().ok()).collect()
    }

    /// Returns when every notification of a transaction that was committed before this call can be
    /// read.
    ///
    /// # Errors
    /// [`DatabaseError::Unreachable`] when the connection is lost.
    pub async fn catch_up(&self) -> Result<(), DatabaseError> {
        // The server sends what waits for a session before it says that the session's statement is
        // done
        if let Some(listening) = &self.0 {
            listening.client.simple_query("").await?;
        }
        Ok(())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
