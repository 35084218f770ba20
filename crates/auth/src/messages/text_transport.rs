//! Text messages, and what takes them: a gateway of the operator's, or the development inbox.

use std::time::Duration;

use futures_util::future::BoxFuture;

/// A text message.
#[derive(Debug, Clone)]
pub struct TextMessage {
    /// Digits without the plus sign.
    pub to: String,
    /// The text.
    pub body: String,
    /// The code in it, for gateways with templates of their own.
    pub code: String,
    /// `sms` or `whatsapp`.
    pub channel: String,
}

/// A gateway that takes text messages.
pub trait TextTransport: Send + Sync {
    /// Hands the message over. Returns the id that the gateway gave it, which may be empty.
    ///
    /// # Errors
    /// The message of the gateway, for the caller: no secrets.
    fn send(&self, message: TextMessage) -> BoxFuture<'_, Result<String, String>>;

    /// Returns true if the `whatsapp` channel works.
    fn speaks_whatsapp(&self) -> bool {
        false
    }

    /// Checks a code that was sent to a number, where the gateway makes the codes itself. Returns
    /// `None` where it does not, and the code is the one of the [`TextMessage`]. Nothing happens
    /// before the future is polled.
    ///
    /// # Errors
    /// The message of the gateway instead of a verdict, for the caller: no secrets.
    fn check<'a>(&'a self, _to: &'a str, _code: &'a str) -> Option<BoxFuture<'a, Result<bool, String>>> {
        None
    }
}

/// Waits for a gateway at most for `limit`.
pub(crate) async fn within<T>(limit: Duration, response: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let response = tokio::time::timeout(limit, response).await;
    response.unwrap_or_else(|_| Err("the provider did not answer in time".to_owned()))
}
