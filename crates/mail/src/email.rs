//! An email that is ready to be sent.

use std::fmt;

use crate::{Address, address::is_invisible};

/// The longest header line that every server passes on (RFC 5322, 2.1.1).
const LONGEST_LINE: usize = 998;
/// The most headers that can be added to an email.
const MOST_HEADERS: usize = 32;

/// One line of text for a header: no control characters, so no line break, and at most 998 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderLine(String);

/// The reason why a header is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A line break or another control character.
    #[error("a header cannot hold line breaks or other control characters")]
    ControlCharacter,
    /// More than 998 bytes, or more than 32 headers.
    #[error("the header is too long")]
    TooLong,
    /// Not a header name, or one that the message sets itself.
    #[error("the header {0:?} cannot be set")]
    Name(String),
}

impl HeaderLine {
    /// Makes a line of a text without changing it.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] if it holds a control character or is too long.
    pub fn new(line: impl Into<String>) -> Result<Self, HeaderError> {
        let line = line.into();
        if line.chars().any(is_control) {
            return Err(HeaderError::ControlCharacter);
        }
        if line.len() > LONGEST_LINE {
            return Err(HeaderError::TooLong);
        }
        Ok(Self(line))
    }

    /// Makes one line of any text: line breaks and other control characters become single spaces,
    /// and what is too long is cut. For subjects that hold what a person typed.
    pub fn flatten(text: &str) -> Self {
        let mut line = String::with_capacity(text.len().min(LONGEST_LINE));
        for character in text.trim().chars() {
            let character = if is_control(character) { ' ' } else { character };
            if character == ' ' && line.ends_with(' ') {
                continue;
            }
            if line.len() + character.len_utf8() > LONGEST_LINE {
                break;
            }
            line.push(character);
        }
        line.truncate(line.trim_end().len());
        Self(line)
    }

    /// Returns the text of the line.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_control(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

impl fmt::Display for HeaderLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The sender of an email.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    name: HeaderLine,
    address: Address,
}

impl Sender {
    /// Makes a sender with a display name. With an empty name, only the address is shown.
    pub fn new(name: &str, address: Address) -> Self {
        let visible: String = name.chars().filter(|&character| character == '\n' || !is_invisible(character)).collect();
        Self { name: HeaderLine::flatten(&visible), address }
    }

    /// Returns the display name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the address that replies and bounces go to.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

/// An email to one person: HTML, with the plain text derived from it on the way out
/// ([`plain_text`](crate::plain_text)).
#[derive(Debug, Clone)]
pub struct Email {
    pub(crate) from: Sender,
    pub(crate) to: Address,
    pub(crate) subject: HeaderLine,
    pub(crate) html: String,
    pub(crate) headers: Vec<(String, HeaderLine)>,
    pub(crate) id: Option<String>,
}

impl Email {
    /// Makes an email with the usual headers only.
    pub fn new(from: Sender, to: Address, subject: HeaderLine, html: impl Into<String>) -> Self {
        Self { from, to, subject, html: html.into(), headers: Vec::new(), id: None }
    }

    /// Adds a header. One name may be added several times.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] if the name is none, belongs to the message itself (`From`, `Content-Type`,
    /// ...), or the value is no single line.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, HeaderError> {
        let is_name =
            (1..=76).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_name || is_reserved(name) {
            return Err(HeaderError::Name(name.chars().take(76).collect()));
        }
        if self.headers.len() == MOST_HEADERS {
            return Err(HeaderError::TooLong);
        }
        self.headers.push((name.to_owned(), HeaderLine::new(value)?));
        Ok(self)
    }

    /// Gives the email an identifier of its own, from which its `Message-ID` is made. An email that
    /// is sent a second time, because the first answer got lost, then arrives once. Anything but
    /// letters, digits, `-` and `_` is dropped.
    pub fn with_id(mut self, id: &str) -> Self {
        let id: String = id
            .chars()
            .filter(|character| character.is_ascii_alphanumeric() || matches!(character, '-' | '_'))
            .take(64)
            .collect();
        self.id = (!id.is_empty()).then_some(id);
        self
    }

    /// Returns the sender.
    pub fn from(&self) -> &Sender {
        &self.from
    }

    /// Returns the recipient.
    pub fn to(&self) -> &Address {
        &self.to
    }

    /// Returns the subject.
    pub fn subject(&self) -> &HeaderLine {
        &self.subject
    }

    /// Returns the HTML body.
    pub fn html(&self) -> &str {
        &self.html
    }

    /// Returns the headers that were added.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Returns true if a header is one that the message sets itself, or that would send copies
/// elsewhere.
fn is_reserved(name: &str) -> bool {
    const RESERVED: [&str; 14] = [
        "from",
        "to",
        "cc",
        "bcc",
        "subject",
        "date",
        "message-id",
        "mime-version",
        "sender",
        "return-path",
        "received",
        "resent-to",
        "resent-cc",
        "resent-bcc",
    ];
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&name.as_str()) || name.starts_with("content-")
}
