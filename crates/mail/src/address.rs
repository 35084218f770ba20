//! The address of one mailbox, in a form that a mail server accepts and that cannot inject a
//! header.

use std::{fmt, str::FromStr};

/// The longest text that is parsed: 64 bytes of name, an `@` and 255 bytes of domain.
const LONGEST_TEXT: usize = 320;
/// The longest address that SMTP carries (RFC 5321, 4.5.3.1.3, without the angle brackets).
const LONGEST_ON_THE_WIRE: usize = 254;

/// The address of one mailbox, such as `someone@example.com`.
///
/// Only [`Address::parse`] makes one: it holds no control, invisible or text-direction characters,
/// no display name, no comment and no second address. The letters are kept as they came; comparing
/// accounts is not this type's matter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    text: String,
    wire: lettre::Address,
}

/// The reason why a text is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing but white space.
    #[error("the address is empty")]
    Empty,
    /// More than 320 bytes of text, or more than 254 with the domain in its ASCII form.
    #[error("the address is too long")]
    TooLong,
    /// Control, invisible or text-direction characters.
    #[error("the address contains characters that cannot be seen")]
    Invisible,
    /// The shape is not `name@domain`.
    #[error("the address does not have the form name@domain")]
    Malformed,
}

impl Address {
    /// Reads one address. White space around it is dropped; an international domain is accepted.
    ///
    /// # Errors
    ///
    /// [`AddressError`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.len() > LONGEST_TEXT * 2 {
            return Err(AddressError::TooLong);
        }
        // Only plain spaces are trimmed: a line break at the end is an attempt at a second header
        let text = text.trim_matches(' ');
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        if text.len() > LONGEST_TEXT {
            return Err(AddressError::TooLong);
        }
        if text.chars().any(is_invisible) {
            return Err(AddressError::Invisible);
        }
        let (name, domain) = text.rsplit_once('@').ok_or(AddressError::Malformed)?;
        let domain = ascii_domain(domain).ok_or(AddressError::Malformed)?;
        if name.len() > 64 || name.len() + 1 + domain.len() > LONGEST_ON_THE_WIRE {
            return Err(AddressError::TooLong);
        }
        // Quoted names ("a b"@host) are legal, but in practice only attacks use them
        if name.contains(['"', '\\', '@', '<', '>', '(', ')', ',', ';', ':', '[', ']', ' ']) {
            return Err(AddressError::Malformed);
        }
        let wire = lettre::Address::new(name, domain).map_err(|_| AddressError::Malformed)?;
        Ok(Self { text: text.to_owned(), wire })
    }

    /// Returns the address as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the domain in its ASCII form, in lower case.
    pub fn domain(&self) -> &str {
        self.wire.domain()
    }

    /// Returns the address with its domain in ASCII form, as sent to the mail server.
    pub(crate) fn wire(&self) -> &lettre::Address {
        &self.wire
    }
}

/// Returns the domain in lower-case ASCII ("xn--" labels), or `None` if it is no host name.
fn ascii_domain(domain: &str) -> Option<String> {
    // The URL parser decodes percent signs and reads numbers as IPv4 addresses; neither is a mail
    // domain
    if domain.is_empty() || domain.contains(['%', '[', ']', ' ']) || domain.starts_with('.') || domain.ends_with('.') {
        return None;
    }
    match url::Host::parse(domain).ok()? {
        url::Host::Domain(ascii) if is_host_name(&ascii) => Some(ascii),
        _ => None,
    }
}

fn is_host_name(ascii: &str) -> bool {
    ascii.len() <= 253
        && ascii.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
}

/// Returns true if a character is invisible or changes the direction of the text around it.
pub(crate) fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{E0000}'..='\u{E0FFF}')
        || (character.is_whitespace() && character != ' ')
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses are personal data: a debug line shows where an email goes, not to whom
        write!(formatter, "Address(***@{})", self.domain())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}
