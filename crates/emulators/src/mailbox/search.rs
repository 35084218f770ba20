//! The search language of Mailpit: words that must all be found, some of them in one field only.
//!
//! `word`, `"some words"`, `subject:x`, `to:`, `from:`, `cc:`, `bcc:`, `reply-to:`, `addressed:`,
//! `message-id:`, `tag:`, `is:read|unread|tagged`, `has:attachment|inline`, `larger:1M`,
//! `smaller:`, `before:2026-01-31`, `after:`; a `-` or `!` in front turns a word around. Letter
//! case does not matter.

use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, format_description::well_known::Rfc3339};

use super::{message::CapturedAddress, store::StoredMail};

/// The most words that are looked at.
const MOST_WORDS: usize = 50;

pub(super) struct MailSearch {
    terms: Vec<Term>,
}

struct Term {
    negated: bool,
    what: TermTarget,
}

enum TermTarget {
    Anywhere(String),
    Subject(String),
    To(String),
    From(String),
    Cc(String),
    Bcc(String),
    ReplyTo(String),
    Addressed(String),
    MessageId(String),
    Tag(String),
    Read(bool),
    Tagged,
    Attachment,
    Inline,
    Larger(usize),
    Smaller(usize),
    Before(OffsetDateTime),
    After(OffsetDateTime),
    /// A value that cannot be understood finds nothing, rather than everything.
    Nothing,
}

impl MailSearch {
    pub(super) fn parse(query: &str) -> Self {
        let terms = words(query).into_iter().take(MOST_WORDS).filter_map(|word| Term::parse(&word)).collect();
        Self { terms }
    }

    /// Returns true if the search has no terms.
    pub(super) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(super) fn finds(&self, entry: &StoredMail) -> bool {
        self.terms.iter().all(|term| term.what.holds(entry) != term.negated)
    }
}

/// Splits at spaces outside of quotation marks, which are dropped.
fn words(query: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for character in query.chars() {
        match character {
            '"' => quoted = !quoted,
            space if space.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

impl Term {
    fn parse(word: &str) -> Option<Self> {
        let (negated, word) = match word.strip_prefix(['-', '!']) {
            Some(rest) => (true, rest),
            None => (false, word),
        };
        if word.is_empty() {
            return None;
        }
        let lower = word.to_lowercase();
        let what = match lower.split_once(':') {
            Some((field, value)) if !value.trim().is_empty() => {
                TermTarget::field(field, value.trim()).unwrap_or(TermTarget::Anywhere(lower))
            }
            _ => TermTarget::Anywhere(lower),
        };
        Some(Self { negated, what })
    }
}

impl TermTarget {
    fn field(field: &str, value: &str) -> Option<Self> {
        let text = value.to_owned();
        Some(match field {
            "subject" => Self::Subject(text),
            "to" => Self::To(text),
            "from" => Self::From(text),
            "cc" => Self::Cc(text),
            "bcc" => Self::Bcc(text),
            "reply-to" => Self::ReplyTo(text),
            "addressed" => Self::Addressed(text),
            "message-id" => Self::MessageId(text),
            "tag" => Self::Tag(text),
            "is" => match value {
                "read" => Self::Read(true),
                "unread" => Self::Read(false),
                "tagged" => Self::Tagged,
                _ => Self::Nothing,
            },
            "has" => match value {
                "attachment" | "attachments" => Self::Attachment,
                "inline" | "inlines" => Self::Inline,
                _ => Self::Nothing,
            },
            "larger" => size(value).map_or(Self::Nothing, Self::Larger),
            "smaller" => size(value).map_or(Self::Nothing, Self::Smaller),
            "before" => moment(value).map_or(Self::Nothing, Self::Before),
            "after" => moment(value).map_or(Self::Nothing, Self::After),
            _ => return None,
        })
    }

    fn holds(&self, entry: &StoredMail) -> bool {
        let mail = &entry.mail;
        let contains = |text: &str, wanted: &str| text.to_lowercase().contains(wanted);
        let among = |people: &[CapturedAddress], wanted: &str| {
            people.iter().any(|one| contains(&one.address, wanted) || contains(&one.name, wanted))
        };
        match self {
            Self::Anywhere(text) => {
                contains(&mail.subject, text)
                    || contains(&mail.text, text)
                    || among(mail.from.as_slice(), text)
                    || [&mail.to, &mail.cc, &mail.bcc, &mail.reply_to].into_iter().any(|people| among(people, text))
                    || contains(&mail.message_id, text)
                    || mail.parts.iter().any(|part| contains(&part.file_name, text))
                    || contains(&mail.html, text)
            }
            Self::Subject(text) => contains(&mail.subject, text),
            Self::To(text) => among(&mail.to, text),
            Self::From(text) => among(mail.from.as_slice(), text),
            Self::Cc(text) => among(&mail.cc, text),
            Self::Bcc(text) => among(&mail.bcc, text),
            Self::ReplyTo(text) => among(&mail.reply_to, text),
            Self::Addressed(text) => {
                among(mail.from.as_slice(), text)
                    || [&mail.to, &mail.cc, &mail.bcc, &mail.reply_to].into_iter().any(|people| among(people, text))
            }
            Self::MessageId(text) => contains(&mail.message_id, text.trim_matches(['<', '>'])),
            Self::Tag(text) => entry.tags.iter().any(|tag| tag.to_lowercase() == *text),
            Self::Read(read) => entry.is_read == *read,
            Self::Tagged => !entry.tags.is_empty(),
            Self::Attachment => mail.parts.iter().any(|part| !part.is_inline),
            Self::Inline => mail.parts.iter().any(|part| part.is_inline),
            Self::Larger(bytes) => mail.raw.len() > *bytes,
            Self::Smaller(bytes) => mail.raw.len() < *bytes,
            Self::Before(moment) => mail.received_at < *moment,
            Self::After(moment) => mail.received_at > *moment,
            Self::Nothing => false,
        }
    }
}

/// Parses a size such as `500`, `20k`, `1.5M`.
fn size(text: &str) -> Option<usize> {
    let (number, factor) = match text.trim_end_matches('b') {
        number if number.ends_with('k') => (number.trim_end_matches('k'), 1_024.0),
        number if number.ends_with('m') => (number.trim_end_matches('m'), 1_048_576.0),
        number => (number, 1.0),
    };
    let bytes = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)? * factor;
    Some(bytes as usize)
}

/// Parses a time: `2026-01-31`, `2026/01/31`, with ` 12:30` or `t12:30:15` behind, or a full time
/// with its zone; without one it is UTC.
fn moment(text: &str) -> Option<OffsetDateTime> {
    if let Ok(moment) = OffsetDateTime::parse(&text.to_uppercase(), &Rfc3339) {
        return Some(moment);
    }
    let (date, clock) = text.split_once([' ', 't']).unwrap_or((text, "00:00:00"));
    let mut parts = date.split(['-', '/']);
    let year = parts.next()?.parse().ok()?;
    let month = Month::try_from(parts.next()?.parse::<u8>().ok()?).ok()?;
    let day = parts.next()?.parse().ok()?;
    let mut numbers = clock.split(':').map(|part| part.parse::<u8>().ok());
    let hour = numbers.next()??;
    let minute = numbers.next().unwrap_or(Some(0))?;
    let second = numbers.next().unwrap_or(Some(0))?;
    let date = Date::from_calendar_date(year, month, day).ok()?;
    Some(PrimitiveDateTime::new(date, Time::from_hms(hour, minute, second).ok()?).assume_utc())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use proptest::prelude::*;
    use time::macros::datetime;

    use super::{MailSearch, StoredMail, moment, size};
    use crate::CapturedMail;

    fn entry(raw: &str) -> Option<StoredMail> {
        let mail = CapturedMail::parse(raw.as_bytes().to_vec(), "", &[], datetime!(2026-01-31 12:00 UTC))?;
        Some(StoredMail { mail: Arc::new(mail), is_read: false, tags: Vec::new() })
    }

    #[test]
    fn sizes_and_moments_are_read_as_people_write_them() {
        assert_eq!(
            [size("500"), size("20k"), size("1.5mb"), size("x"), size("-1")],
            [Some(500), Some(20_480), Some(1_572_864), None, None]
        );
        assert_eq!(moment("2026-01-31"), Some(datetime!(2026-01-31 0:00 UTC)));
        assert_eq!(moment("2026/01/31 12:30"), Some(datetime!(2026-01-31 12:30 UTC)));
        assert_eq!(moment("2026-01-31t12:30:15+01:00"), Some(datetime!(2026-01-31 11:30:15 UTC)));
        assert_eq!([moment(""), moment("2026-02-31"), moment("2026-01-31t99:00")], [None, None, None]);
    }

    proptest! {
        #[test]
        fn any_query_can_be_asked(query in "([a-z]{1,9}:|\"|-|!| |is:|before:|larger:|\\PC){0,30}") {
            let entry = entry("From: a@b.ch\r\nSubject: x\r\n\r\nbody").unwrap();
            let _ = MailSearch::parse(&query).finds(&entry);
        }

        #[test]
        fn a_word_is_found_and_its_opposite_is_not(word in "[a-z]{3,12}") {
            let entry = entry(&format!("From: a@b.ch\r\nSubject: the {word} here\r\n\r\nbody")).unwrap();
            let subject = format!("subject:{word}");
            let negated = format!("-{word}");
            prop_assert!(MailSearch::parse(&word).finds(&entry));
            prop_assert!(MailSearch::parse(&subject).finds(&entry));
            prop_assert!(!MailSearch::parse(&negated).finds(&entry));
        }

        #[test]
        fn any_bytes_can_be_captured(raw in "(From: |To: |Content-Type: multipart/mixed; boundary=x|--x|\r\n|\\PC){0,40}") {
            if let Some(entry) = entry(&raw) {
                let _ = (entry.mail.snippet(), entry.mail.code(), entry.mail.link());
            }
        }
    }
}
