//! The development mailbox: takes every email and text message and delivers none.
//!
//! Emails come in through [`Mailbox::transport`] or over SMTP ([`Mailbox::listen_smtp`]), and are
//! read with the HTTP API of Mailpit, which existing test suites speak (`api`), or live as
//! server-sent events. What exceeds the limits pushes out the oldest. Nothing is kept on disk.
//!
//! | Path | What |
//! | --- | --- |
//! | `/api/v1/messages`, `/search`, `/message/{id}`, `/info`, `/tags`, `/view/...` | Mailpit's API |
//! | `/api/v1/events` | server-sent events `mail`, `text`, `changed`, `reset` |
//! | `/portico/v1/texts` | captured text messages (GET, DELETE) |

mod api;
mod limits;
mod message;
mod search;
mod smtp;
mod store;

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use portico_base::{AllowedOrigins, Clock};
use portico_mail::{Email, SendError, Transport};
use tokio::{net::TcpListener, sync::broadcast};

use crate::Development;

pub use limits::MailboxLimits;
pub use message::{CapturedAddress, CapturedMail, CapturedText};
use store::Store;

/// Something that happened in the mailbox.
#[derive(Debug, Clone)]
pub enum MailboxEvent {
    /// An email came in.
    Mail(Arc<CapturedMail>),
    /// A text message came in.
    Text(Arc<CapturedText>),
    /// Messages were deleted, read or tagged.
    Changed,
}

/// The mailbox. Clones are the same mailbox.
#[derive(Clone)]
pub struct Mailbox {
    inner: Arc<MailboxState>,
}

struct MailboxState {
    store: Mutex<Store>,
    events: broadcast::Sender<MailboxEvent>,
    limits: MailboxLimits,
    clock: Clock,
    started: time::OffsetDateTime,
}

impl Mailbox {
    /// Makes an empty mailbox.
    pub fn new(development: Development, limits: MailboxLimits) -> Self {
        Self::with_clock(development, limits, Clock::system())
    }

    /// Makes an empty mailbox that dates messages by the given clock.
    pub fn with_clock(_: Development, limits: MailboxLimits, clock: Clock) -> Self {
        let (events, _) = broadcast::channel(256);
        let started = clock.now();
        Self { inner: Arc::new(MailboxState { store: Mutex::new(Store::default()), events, limits, clock, started }) }
    }

    /// Returns a transport that puts every email into this mailbox.
    pub fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(Capture(self.clone()))
    }

    /// Returns the HTTP API and the live events: for programs, for pages of this machine (loopback
    /// names), and for pages of these sites (addresses such as `https://app.example.com`). Pages of
    /// other websites are refused.
    pub fn router(&self, sites: &[&str]) -> axum::Router {
        api::router(self.clone(), AllowedOrigins::new(sites.iter().copied()))
    }

    /// Takes emails over SMTP until `shutdown` is done. Any login is accepted, and nothing is
    /// passed on.
    pub async fn serve_smtp(&self, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) {
        smtp::serve(self.clone(), listener, shutdown).await;
    }

    /// Takes emails over SMTP in a task of its own, until the returned value is dropped.
    pub fn listen_smtp(&self, listener: TcpListener) -> SmtpListener {
        let mailbox = self.clone();
        SmtpListener(tokio::spawn(async move { smtp::serve(mailbox, listener, std::future::pending()).await }))
    }

    /// Takes a message as it came over the wire. Recipients of the envelope that the message does
    /// not name become blind copies.
    ///
    /// # Errors
    ///
    /// [`SendError::Permanent`] if it is larger than the limit or no message at all.
    pub fn capture(&self, raw: Vec<u8>, sender: &str, recipients: &[String]) -> Result<Arc<CapturedMail>, SendError> {
        if raw.len() > self.inner.limits.message_bytes {
            return Err(SendError::Permanent("the email is too large".to_owned()));
        }
        let mail = CapturedMail::parse(raw, sender, recipients, self.inner.clock.now())
            .ok_or_else(|| SendError::Permanent("this is no email".to_owned()))?;
        let mail = Arc::new(mail);
        self.store().add(Arc::clone(&mail), &self.inner.limits);
        self.announce(MailboxEvent::Mail(Arc::clone(&mail)));
        Ok(mail)
    }

    /// Takes a text message in the place of the provider that would have sent it.
    pub fn capture_text(&self, to: &str, body: &str, provider: &str) -> Arc<CapturedText> {
        let text = Arc::new(CapturedText::new(to, body, provider, self.inner.clock.now()));
        self.store().add_text(Arc::clone(&text), self.inner.limits.messages);
        self.announce(MailboxEvent::Text(Arc::clone(&text)));
        text
    }

    /// Returns the emails, newest first.
    pub fn messages(&self) -> Vec<Arc<CapturedMail>> {
        self.store().mails().map(|entry| Arc::clone(&entry.mail)).collect()
    }

    /// Returns the text messages, newest first.
    pub fn texts(&self) -> Vec<Arc<CapturedText>> {
        self.store().texts().cloned().collect()
    }

    /// Subscribes to the events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<MailboxEvent> {
        self.inner.events.subscribe()
    }

    /// Returns the newest email that `wanted` accepts: one that is there already, or the first to
    /// come. Waits without end.
    pub async fn wait_for(&self, wanted: impl Fn(&CapturedMail) -> bool) -> Arc<CapturedMail> {
        // Subscribed before looking, so that an email between the two is not missed
        let mut events = self.subscribe();
        loop {
            if let Some(mail) = self.messages().into_iter().find(|mail| wanted(mail)) {
                return mail;
            }
            // A closed channel cannot be: this mailbox holds its sender. After a lag the emails are
            // looked through again
            let _ = events.recv().await;
        }
    }

    /// Removes all emails and text messages.
    pub fn clear(&self) {
        self.store().clear();
        self.announce(MailboxEvent::Changed);
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.inner.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, event: MailboxEvent) {
        // An error only says that there is no subscriber
        let _ = self.inner.events.send(event);
    }
}

/// The mailbox's SMTP port; it closes when this is dropped.
#[derive(Debug)]
#[must_use = "the port closes when this is dropped"]
pub struct SmtpListener(tokio::task::JoinHandle<()>);

impl Drop for SmtpListener {
    fn drop(&mut self) {
        // The connections are tasks of that task and end with it
        self.0.abort();
    }
}

struct Capture(Mailbox);

impl Transport for Capture {
    fn send(&self, email: Email) -> futures_util::future::BoxFuture<'_, Result<(), SendError>> {
        Box::pin(async move {
            let raw = portico_mail::compose(&email)?;
            let recipients = [email.to().as_str().to_owned()];
            self.0.capture(raw, email.from().address().as_str(), &recipients).map(drop)
        })
    }
}
