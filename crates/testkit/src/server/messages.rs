//! The emails and text messages that the server under test sends.

use portico_auth::TextMessage;
use portico_mail::Email;

use super::{PATIENCE, TestServer};

impl TestServer {
    /// Returns the only email to `address`. Waits for it.
    ///
    /// # Panics
    /// When it does not arrive, or when there are several: "the newest" would depend on which of
    /// them has arrived. A test with several names one by [`Self::nth_mail_to`].
    pub async fn mail_to(&self, address: &str) -> Email {
        let mail = self.nth_mail_to(address, 0).await;
        assert_eq!(self.mails_to(address).len(), 1, "emails to {address}");
        mail
    }

    /// Returns the email to `address` that arrives as number `index` (from 0). Waits for it.
    ///
    /// # Panics
    /// When it does not arrive.
    pub async fn nth_mail_to(&self, address: &str, index: usize) -> Email {
        self.mail_when(address, |mails| mails.get(index).cloned()).await
    }

    async fn mail_when(&self, address: &str, choose: impl Fn(&[Email]) -> Option<Email>) -> Email {
        let mut arrivals = self.outgoing.arrivals();
        let waiting = async {
            loop {
                if let Some(mail) = choose(&self.outgoing.to(address)) {
                    return mail;
                }
                arrivals.changed().await.expect("the mailbox is there");
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(mail) => mail,
            Err(_) => panic!("no such mail to {address} arrived; there are {}", self.outgoing.all().len()),
        }
    }

    /// Waits until every email has been delivered and deleted from the outbox.
    pub(super) async fn mail_is_out(&self) {
        // The deletion of a row sends no event, so it is polled
        let gone = async { while self.count("select count(*) from portico.mail_outbox").await > 0 {} };
        assert!(tokio::time::timeout(PATIENCE, gone).await.is_ok(), "an email is still waiting to be sent");
    }

    /// Returns the emails to `address` that have arrived, oldest first.
    pub fn mails_to(&self, address: &str) -> Vec<Email> {
        self.outgoing.to(address)
    }

    /// Returns every email that was sent, oldest first.
    pub fn mails(&self) -> Vec<Email> {
        self.outgoing.all()
    }

    /// Returns the newest text message to `phone` (digits without the plus sign). Waits for one if
    /// there is none yet.
    ///
    /// # Panics
    /// When none arrives.
    pub async fn text_to(&self, phone: &str) -> TextMessage {
        self.texts_when(phone, 1).await.pop().expect("there is one")
    }

    /// Returns the text messages to `phone`, oldest first, once there are `count`.
    ///
    /// # Panics
    /// When they do not arrive.
    pub async fn texts_when(&self, phone: &str, count: usize) -> Vec<TextMessage> {
        let mut arrivals = self.texts.arrivals();
        let waiting = async {
            loop {
                let texts = self.texts.to(phone);
                if texts.len() >= count {
                    return texts;
                }
                arrivals.changed().await.expect("the collection is there");
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(texts) => texts,
            Err(_) => panic!("only {} of {count} text messages to {phone} arrived", self.texts.to(phone).len()),
        }
    }

    /// Returns the text messages to `phone` that have arrived, oldest first.
    pub fn texts_to(&self, phone: &str) -> Vec<TextMessage> {
        self.texts.to(phone)
    }
}
