//! The emails that a server under test sends, and their content.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use portico_mail::{Email, SendError, Transport};
use regex::Regex;
use tokio::sync::watch;

/// A transport that collects emails.
#[derive(Clone)]
pub(crate) struct CollectedMails {
    mails: Arc<Mutex<Vec<Email>>>,
    arrivals: watch::Sender<usize>,
}

impl CollectedMails {
    pub(crate) fn new() -> Self {
        Self { mails: Arc::default(), arrivals: watch::Sender::new(0) }
    }

    /// Returns the emails to `address`, oldest first.
    pub(crate) fn to(&self, address: &str) -> Vec<Email> {
        let mails = self.mails.lock().unwrap_or_else(PoisonError::into_inner);
        mails.iter().filter(|mail| mail.to().as_str().eq_ignore_ascii_case(address)).cloned().collect()
    }

    /// Returns all emails, oldest first.
    pub(crate) fn all(&self) -> Vec<Email> {
        self.mails.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a receiver that changes with every arrival.
    pub(crate) fn arrivals(&self) -> watch::Receiver<usize> {
        self.arrivals.subscribe()
    }
}

impl Transport for CollectedMails {
    fn send(&self, email: Email) -> BoxFuture<'_, Result<(), SendError>> {
        self.mails.lock().unwrap_or_else(PoisonError::into_inner).push(email);
        self.arrivals.send_modify(|count| *count += 1);
        Box::pin(async { Ok(()) })
    }
}

/// Returns the link to the server's own `/verify` in an email's HTML.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn link_in(html: &str) -> url::Url {
    let pattern = Regex::new(r#"href="([^"]*/auth/v1/verify[^"]*)""#).expect("the pattern is valid");
    let found = pattern.captures(html).unwrap_or_else(|| panic!("no link in {html}"));
    found[1].replace("&amp;", "&").replace("&#43;", "+").parse().expect("the link is a URL")
}

/// Returns the hash of the token in that link.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn token_hash_in(html: &str) -> String {
    let link = link_in(html);
    let found = link.query_pairs().find(|(name, _)| name == "token");
    found.unwrap_or_else(|| panic!("no token in {link}")).1.into_owned()
}

/// Returns the six-digit code in an email's HTML.
///
/// # Panics
/// When there is none.
#[must_use]
#[track_caller]
pub fn code_in(html: &str) -> String {
    let pattern = Regex::new(r">\s*(\d{6})\s*<").expect("the pattern is valid");
    pattern.captures(html).unwrap_or_else(|| panic!("no code in {html}"))[1].to_owned()
}
