//! A captured message, read once when it comes in.

use bytes::Bytes;
use mail_parser::{Address, Message, MessageParser, MimeHeaders, PartType};
use portico_base::random;
use serde::Serialize;
use time::OffsetDateTime;

/// Parts of one message that are kept apart.
const MOST_PARTS: usize = 200;
const MOST_TAGS: usize = 20;

/// One person's name and address.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CapturedAddress {
    /// The name, often empty.
    pub name: String,
    /// The address.
    pub address: String,
}

/// An email in the mailbox.
#[derive(Debug, Clone)]
pub struct CapturedMail {
    /// The mailbox's own name for it.
    pub id: String,
    /// The time of its arrival.
    pub received_at: OffsetDateTime,
    /// The time in its `Date` header, else the time of its arrival.
    pub date: OffsetDateTime,
    /// `Message-ID` without its angle brackets.
    pub message_id: String,
    /// The sender that its header names.
    pub from: Option<CapturedAddress>,
    /// The recipients that it names.
    pub to: Vec<CapturedAddress>,
    /// Recipients of copies.
    pub cc: Vec<CapturedAddress>,
    /// Recipients of the envelope that the message does not name.
    pub bcc: Vec<CapturedAddress>,
    /// The addresses for replies.
    pub reply_to: Vec<CapturedAddress>,
    /// The sender of the envelope.
    pub return_path: String,
    /// The subject.
    pub subject: String,
    /// The body as plain text.
    pub text: String,
    /// The body as HTML, empty when there is none.
    pub html: String,
    /// The message as it came in.
    pub raw: Bytes,
    /// The headers in their order, unfolded.
    pub headers: Vec<(String, String)>,
    pub(super) parts: Vec<MailPart>,
}

/// An attachment, or a picture that the body shows.
#[derive(Debug, Clone)]
pub(super) struct MailPart {
    pub id: String,
    pub file_name: String,
    pub content_type: String,
    pub content_id: String,
    pub is_inline: bool,
    pub content: Bytes,
}

impl CapturedMail {
    pub(super) fn parse(raw: Vec<u8>, sender: &str, recipients: &[String], now: OffsetDateTime) -> Option<Self> {
        let raw = Bytes::from(raw);
        let message = MessageParser::default().parse(raw.as_ref())?;
        let to = addresses(message.to());
        let cc = addresses(message.cc());
        let named = |address: &str| to.iter().chain(&cc).any(|known| known.address.eq_ignore_ascii_case(address));
        let mut bcc = addresses(message.bcc());
        for recipient in recipients.iter().filter(|recipient| !named(recipient)) {
            if !bcc.iter().any(|known| known.address.eq_ignore_ascii_case(recipient)) {
                bcc.push(CapturedAddress { name: String::new(), address: recipient.clone() });
            }
        }
        let html = message
            .html_bodies()
            .find_map(|part| match &part.body {
                PartType::Html(html) => Some(html.to_string()),
                _ => None,
            })
            .unwrap_or_default();
        let text = message
            .text_bodies()
            .find_map(|part| match &part.body {
                PartType::Text(text) => Some(text.to_string()),
                _ => None,
            })
            .unwrap_or_else(|| portico_mail::plain_text(&html));
        let date = message.date().and_then(|date| OffsetDateTime::from_unix_timestamp(date.to_timestamp()).ok());
        let mail = Self {
            id: random::alphanumeric(22),
            received_at: now,
            date: date.unwrap_or(now),
            message_id: message.message_id().unwrap_or_default().to_owned(),
            from: addresses(message.from()).into_iter().next(),
            to,
            cc,
            bcc,
            reply_to: addresses(message.reply_to()),
            return_path: sender.to_owned(),
            subject: message.subject().unwrap_or_default().to_owned(),
            text,
            html,
            headers: message.headers_raw().map(|(name, value)| (name.to_owned(), unfold(value))).collect(),
            parts: parts(&message),
            raw: raw.clone(),
        };
        Some(mail)
    }

    /// Returns true if the email was delivered to this address, also as a blind copy.
    pub fn is_to(&self, address: &str) -> bool {
        self.to.iter().chain(&self.cc).chain(&self.bcc).any(|known| known.address.eq_ignore_ascii_case(address))
    }

    /// Returns the target of the first link in the body.
    pub fn link(&self) -> Option<String> {
        let start = self.html.find("href=\"")? + "href=\"".len();
        let end = self.html[start..].find('"')?;
        Some(self.html[start..start + end].replace("&amp;", "&").replace("&#43;", "+"))
    }

    /// Returns the first run of six to ten digits that stands alone in the text: the one-time code.
    pub fn code(&self) -> Option<&str> {
        self.text
            .split(|character: char| !character.is_alphanumeric() && !matches!(character, '_' | '-' | '=' | '/' | '%'))
            .find(|word| (6..=10).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// Returns the beginning of the text on one line.
    pub(super) fn snippet(&self) -> String {
        let mut snippet = String::new();
        for word in self.text.split_whitespace() {
            if !snippet.is_empty() {
                snippet.push(' ');
            }
            snippet.push_str(word);
            if snippet.len() > 1_000 {
                break;
            }
        }
        match snippet.char_indices().nth(250) {
            Some((end, _)) => format!("{}...", &snippet[..end]),
            None => snippet,
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Tags that the sender asks for with `X-Tags`.
    pub(super) fn header_tags(&self) -> Vec<String> {
        let tags = self.header("x-tags").unwrap_or_default().split(',');
        clean_tags(tags.map(str::to_owned))
    }

    /// Returns roughly the bytes of memory that the email takes.
    pub(super) fn weight(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| part.content.len() + 200).sum();
        self.raw.len() + self.text.len() + self.html.len() + parts + 1_000
    }
}

/// Tags without surrounding space, doubles and unusual characters.
pub(super) fn clean_tags(tags: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for tag in tags {
        let tag: String = tag
            .trim()
            .chars()
            .filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_' | '.' | '@'))
            .take(100)
            .collect();
        if !tag.is_empty() && kept.len() < MOST_TAGS && !kept.iter().any(|known| known.eq_ignore_ascii_case(&tag)) {
            kept.push(tag);
        }
    }
    kept
}

fn addresses(field: Option<&Address<'_>>) -> Vec<CapturedAddress> {
    field
        .map(|field| {
            field
                .iter()
                .filter_map(|one| {
                    let address = one.address()?.to_owned();
                    Some(CapturedAddress { name: one.name().unwrap_or_default().to_owned(), address })
                })
                .collect()
        })
        .unwrap_or_default()
}

fn unfold(value: &str) -> String {
    value.split(['\r', '\n']).map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

fn parts(message: &Message<'_>) -> Vec<MailPart> {
    let shown: Vec<u32> = message.html_body.iter().chain(&message.text_body).copied().collect();
    (0u32..)
        .zip(&message.parts)
        .take(MOST_PARTS)
        .filter(|(index, part)| !shown.contains(index) && !matches!(part.body, PartType::Multipart(_)))
        .map(|(index, part)| {
            let content_type = part.content_type().map_or_else(
                || "application/octet-stream".to_owned(),
                |kind| match kind.subtype() {
                    Some(subtype) => format!("{}/{subtype}", kind.ctype()).to_ascii_lowercase(),
                    None => kind.ctype().to_ascii_lowercase(),
                },
            );
            MailPart {
                id: index.to_string(),
                file_name: part.attachment_name().unwrap_or_default().to_owned(),
                content_type,
                content_id: part.content_id().unwrap_or_default().to_owned(),
                is_inline: matches!(part.body, PartType::InlineBinary(_)) || part.content_id().is_some(),
                content: Bytes::copy_from_slice(part.contents()),
            }
        })
        .collect()
}

/// A text message in the mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapturedText {
    /// The mailbox's own name for it.
    pub id: String,
    /// The number that it would have gone to.
    pub to: String,
    /// The text.
    pub body: String,
    /// The provider that would have sent it.
    pub provider: String,
    /// The time of its arrival.
    #[serde(with = "time::serde::rfc3339")]
    pub received_at: OffsetDateTime,
}

impl CapturedText {
    pub(super) fn new(to: &str, body: &str, provider: &str, now: OffsetDateTime) -> Self {
        let bounded = |text: &str, most: usize| text.chars().take(most).collect::<String>();
        Self {
            id: random::alphanumeric(22),
            to: bounded(to, 64),
            body: bounded(body, 4_096),
            provider: bounded(provider, 64),
            received_at: now,
        }
    }

    /// Returns the first run of digits in the text: the one-time code.
    pub fn code(&self) -> Option<&str> {
        self.body.split(|character: char| !character.is_ascii_digit()).find(|run| (4..=10).contains(&run.len()))
    }
}
