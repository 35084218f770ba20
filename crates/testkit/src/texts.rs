//! The text messages that a server under test sends.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use portico_auth::{TextMessage, TextTransport};
use tokio::sync::watch;

/// Keeps what it is given.
#[derive(Clone)]
pub(crate) struct OutgoingTexts {
    texts: Arc<Mutex<Vec<TextMessage>>>,
    arrivals: watch::Sender<usize>,
}

impl OutgoingTexts {
    pub(crate) fn new() -> Self {
        Self { texts: Arc::default(), arrivals: watch::Sender::new(0) }
    }

    /// The messages to `phone`, oldest first.
    pub(crate) fn to(&self, phone: &str) -> Vec<TextMessage> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.iter().filter(|text| text.to == phone).cloned().collect()
    }

    /// Changes with every arrival.
    pub(crate) fn arrivals(&self) -> watch::Receiver<usize> {
        self.arrivals.subscribe()
    }
}

impl TextTransport for OutgoingTexts {
    /// The id that the answer carries counts the messages: `SM1`, `SM2`, ...
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
