//! The text messages that a server under test sends.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use portico_auth::{TextMessage, TextTransport};
use tokio::sync::watch;

/// A transport that collects text messages.
#[derive(Clone)]
pub(crate) struct OutgoingTextMessages {
    texts: Arc<Mutex<Vec<TextMessage>>>,
    arrivals: watch::Sender<usize>,
}

impl OutgoingTextMessages {
    pub(crate) fn new() -> Self {
        Self { texts: Arc::default(), arrivals: watch::Sender::new(0) }
    }

    /// Returns the messages to `phone`, oldest first.
    pub(crate) fn to(&self, phone: &str) -> Vec<TextMessage> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.iter().filter(|text| text.to == phone).cloned().collect()
    }

    /// Returns a receiver that changes with every arrival.
    pub(crate) fn arrivals(&self) -> watch::Receiver<usize> {
        self.arrivals.subscribe()
    }
}

impl TextTransport for OutgoingTextMessages {
    /// Returns an id that counts the messages: `SM1`, `SM2`, ...
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>> {
        let count = {
            let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
            texts.push(message);
            texts.len()
        };
        self.arrivals.send_modify(|arrived| *arrived += 1);
        Box::pin(async move { Ok(format!("SM{count}")) })
    }
}
