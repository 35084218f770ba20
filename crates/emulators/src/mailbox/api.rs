//! Mailpit's HTTP API, in the names that its public description gives them, and the live events.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State},
    middleware,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, put},
};
use futures_util::{Stream, StreamExt};
use http::{HeaderName, HeaderValue, StatusCode, header};
use portico_base::AllowedOrigins;
use serde::Deserialize;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio_stream::wrappers::BroadcastStream;

use crate::admission::{self, AdmissionRules};

use super::{
    CapturedMail, Mailbox, MailboxEvent,
    message::{MailPart, clean_tags},
    search::MailSearch,
    store::{Store, StoredMail},
};

/// The most messages that one response lists.
const LONGEST_PAGE: usize = 1_000;

pub(super) fn router(mailbox: Mailbox, origins: AllowedOrigins) -> Router {
    Router::new()
        .route("/api/v1/messages", get(list).put(set_read).delete(delete))
        .route("/api/v1/search", get(search).delete(delete_found))
        .route("/api/v1/message/{id}", get(message))
        .route("/api/v1/message/{id}/headers", get(headers))
        .route("/api/v1/message/{id}/raw", get(raw))
        .route("/api/v1/message/{id}/part/{part}", get(part))
        .route("/api/v1/tags", get(tags).put(set_tags))
        .route("/api/v1/tags/{tag}", put(rename_tag).delete(delete_tag))
        .route("/api/v1/info", get(info))
        .route("/api/v1/events", get(events))
        .route("/view/{file}", get(view))
        .route("/portico/v1/texts", get(texts).delete(delete_texts))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(async || "ok"))
        .fallback(async || not_found("Not found"))
        .layer(DefaultBodyLimit::max(1 << 20))
        .layer(middleware::from_fn_with_state(AdmissionRules { origins, shares: true }, admission::admit))
        .with_state(mailbox)
}

#[derive(Deserialize)]
struct PageQuery {
    #[serde(default)]
    query: String,
    start: Option<String>,
    limit: Option<String>,
}

impl PageQuery {
    /// Returns the start and the length of the page. A value that is not a number counts as absent,
    /// as Mailpit has it.
    fn bounds(&self) -> (usize, usize) {
        let number = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<usize>().ok());
        let limit = number(&self.limit).unwrap_or(50).min(LONGEST_PAGE);
        (number(&self.start).unwrap_or(0), limit)
    }
}

/// `GET /api/v1/messages`
async fn list(State(mailbox): State<Mailbox>, Query(page): Query<PageQuery>) -> Json<Value> {
    Json(summaries(&mailbox.store(), &page, |_| true))
}

/// `GET /api/v1/search?query=`
async fn search(State(mailbox): State<Mailbox>, Query(page): Query<PageQuery>) -> Response {
    let search = MailSearch::parse(&page.query);
    if search.is_empty() {
        return bad_request("Error: no search query");
    }
    Json(summaries(&mailbox.store(), &page, |entry| search.finds(entry))).into_response()
}

fn summaries(store: &Store, page: &PageQuery, wanted: impl Fn(&StoredMail) -> bool) -> Value {
    let (start, limit) = page.bounds();
    let mut found = 0;
    let mut unread_found = 0;
    let mut messages = Vec::new();
    for entry in store.mails().filter(|entry| wanted(entry)) {
        if found >= start && messages.len() < limit {
            messages.push(summary(entry));
        }
        found += 1;
        unread_found += usize::from(!entry.is_read);
    }
    json!({
        "total": store.len(),
        "unread": store.unread(),
        "count": messages.len(),
        "messages_count": found,
        "messages_unread": unread_found,
        "start": start,
        "tags": store.tags().into_keys().collect::<Vec<_>>(),
        "messages": messages,
    })
}

fn summary(entry: &StoredMail) -> Value {
    let mail = &entry.mail;
    json!({
        "ID": mail.id,
        "MessageID": mail.message_id,
        "Read": entry.is_read,
        "From": mail.from,
        "To": mail.to,
        "Cc": mail.cc,
        "Bcc": mail.bcc,
        "ReplyTo": mail.reply_to,
        "Subject": mail.subject,
        "Created": moment(mail.received_at),
        "Username": "",
        "Tags": entry.tags,
        "Size": mail.raw.len(),
        "Attachments": mail.parts.iter().filter(|part| !part.is_inline).count(),
        "Snippet": mail.snippet(),
    })
}

/// `GET /api/v1/message/{id}`: the message, which counts as read from then on.
async fn message(State(mailbox): State<Mailbox>, Path(id): Path<String>) -> Response {
    let (response, was_unread) = {
        let mut store = mailbox.store();
        let Some(entry) = store.find(&id) else { return not_found("Message not found") };
        let was_unread = !std::mem::replace(&mut entry.is_read, true);
        (detail(entry), was_unread)
    };
    if was_unread {
        mailbox.announce(MailboxEvent::Changed);
    }
    Json(response).into_response()
}

fn detail(entry: &StoredMail) -> Value {
    let mail = &entry.mail;
    let attachments = |inline: bool| -> Vec<Value> {
        mail.parts.iter().filter(|part| part.is_inline == inline).map(attachment).collect()
    };
    json!({
        "ID": mail.id,
        "MessageID": mail.message_id,
        "From": mail.from,
        "To": mail.to,
        "Cc": mail.cc,
        "Bcc": mail.bcc,
        "ReplyTo": mail.reply_to,
        "ReturnPath": mail.return_path,
        "Subject": mail.subject,
        "ListUnsubscribe": {
            "Header": mail.header("list-unsubscribe").unwrap_or_default(),
            "Links": mail.header("list-unsubscribe").map(unsubscribe_links).unwrap_or_default(),
            "Errors": "",
            "HeaderPost": mail.header("list-unsubscribe-post").unwrap_or_default(),
        },
        "Date": moment(mail.date),
        "Tags": entry.tags,
        "Username": "",
        "Text": mail.text,
        "HTML": mail.html,
        "Size": mail.raw.len(),
        "Inline": attachments(true),
        "Attachments": attachments(false),
    })
}

fn unsubscribe_links(header: &str) -> Vec<&str> {
    header.split(',').filter_map(|link| link.trim().strip_prefix('<')?.strip_suffix('>')).collect()
}

fn attachment(part: &MailPart) -> Value {
    json!({
        "PartID": part.id,
        "FileName": part.file_name,
        "ContentType": part.content_type,
        "ContentID": part.content_id,
        "Size": part.content.len(),
    })
}

/// `GET /api/v1/message/{id}/headers`
async fn headers(State(mailbox): State<Mailbox>, Path(id): Path<String>) -> Response {
    let Some(mail) = find(&mailbox, &id) else { return not_found("Message not found") };
    let mut headers: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, value) in &mail.headers {
        headers.entry(canonical(name)).or_default().push(value);
    }
    Json(headers).into_response()
}

/// Returns `message-ID` as `Message-Id`: each word with a capital, the form in which Mailpit names
/// headers.
fn canonical(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters.map(|letter| letter.to_ascii_lowercase())).collect::<String>()
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// `GET /api/v1/message/{id}/raw`
async fn raw(State(mailbox): State<Mailbox>, Path(id): Path<String>) -> Response {
    match find(&mailbox, &id) {
        Some(mail) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], mail.raw.clone()).into_response(),
        None => not_found("Message not found"),
    }
}

/// `GET /api/v1/message/{id}/part/{part}`
async fn part(State(mailbox): State<Mailbox>, Path((id, part)): Path<(String, String)>) -> Response {
    let Some(mail) = find(&mailbox, &id) else { return not_found("Message not found") };
    let Some(part) = mail.parts.iter().find(|known| known.id == part) else { return not_found("Part not found") };
    let kind = HeaderValue::from_str(&part.content_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    let mut response = (sandbox(), part.content.clone()).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// `GET /view/{id}.html` and `/view/{id}.txt`
async fn view(State(mailbox): State<Mailbox>, Path(file): Path<String>) -> Response {
    let (id, kind) = file.rsplit_once('.').unwrap_or((&file, ""));
    let Some(mail) = find(&mailbox, id) else { return not_found("Message not found") };
    match kind {
        "html" if !mail.html.is_empty() => {
            (sandbox(), [(header::CONTENT_TYPE, "text/html; charset=utf-8")], mail.html.clone()).into_response()
        }
        "txt" => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], mail.text.clone()).into_response(),
        _ => not_found("The message has no such part"),
    }
}

/// Returns the headers that keep a message's content from acting as a page of this origin.
fn sandbox() -> [(HeaderName, &'static str); 1] {
    [(
        header::CONTENT_SECURITY_POLICY,
        "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; img-src * data:; style-src 'unsafe-inline'; \
         font-src *",
    )]
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Selection {
    #[serde(rename = "IDs")]
    ids: Option<Vec<String>>,
    read: bool,
    tags: Option<Vec<String>>,
    search: Option<String>,
    name: String,
}

impl Selection {
    /// Reads a selection. Test suites send no body, an empty one, or JSON with or without a content
    /// type.
    fn read(body: &Bytes) -> Result<Self, serde_json::Error> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        serde_json::from_slice::<Option<Self>>(body).map(Option::unwrap_or_default)
    }

    /// Returns a function that selects emails. No ids mean all, unless a search narrows them.
    fn selects(&self) -> impl Fn(&StoredMail) -> bool {
        let search = self.search.as_deref().map(MailSearch::parse).filter(|search| !search.is_empty());
        let ids = self.ids.clone().unwrap_or_default();
        move |entry| match &search {
            Some(search) if ids.is_empty() => search.finds(entry),
            _ => ids.is_empty() || ids.contains(&entry.mail.id),
        }
    }
}

/// `DELETE /api/v1/messages`
async fn delete(State(mailbox): State<Mailbox>, body: Bytes) -> Response {
    match Selection::read(&body) {
        Ok(selection) => {
            mailbox.store().delete(selection.selects());
            changed(&mailbox)
        }
        Err(error) => bad_json(&error),
    }
}

/// `DELETE /api/v1/search?query=`
async fn delete_found(State(mailbox): State<Mailbox>, Query(page): Query<PageQuery>) -> Response {
    let search = MailSearch::parse(&page.query);
    if search.is_empty() {
        return bad_request("Error: no search query");
    }
    mailbox.store().delete(|entry| search.finds(entry));
    changed(&mailbox)
}

/// `PUT /api/v1/messages`: read or unread.
async fn set_read(State(mailbox): State<Mailbox>, body: Bytes) -> Response {
    match Selection::read(&body) {
        Ok(selection) => {
            let selects = selection.selects();
            mailbox.store().update(|entry| {
                if selects(entry) {
                    entry.is_read = selection.read;
                }
            });
            changed(&mailbox)
        }
        Err(error) => bad_json(&error),
    }
}

/// `GET /api/v1/tags`
async fn tags(State(mailbox): State<Mailbox>) -> Json<Value> {
    Json(json!(mailbox.store().tags().into_keys().collect::<Vec<_>>()))
}

/// `PUT /api/v1/tags`: gives the selected messages these tags and no others.
async fn set_tags(State(mailbox): State<Mailbox>, body: Bytes) -> Response {
    match Selection::read(&body) {
        Ok(selection) => {
            let wanted = clean_tags(selection.tags.unwrap_or_default().into_iter());
            let ids = selection.ids.unwrap_or_default();
            mailbox.store().update(|entry| {
                if ids.contains(&entry.mail.id) {
                    entry.tags.clone_from(&wanted);
                }
            });
            changed(&mailbox)
        }
        Err(error) => bad_json(&error),
    }
}

/// `PUT /api/v1/tags/{tag}`: gives a tag another name.
async fn rename_tag(State(mailbox): State<Mailbox>, Path(tag): Path<String>, body: Bytes) -> Response {
    let name = match Selection::read(&body).map(|selection| clean_tags([selection.name].into_iter())) {
        Ok(name) => name,
        Err(error) => return bad_json(&error),
    };
    let Some(name) = name.into_iter().next() else { return bad_request("Error: a name is needed") };
    mailbox.store().update(|entry| {
        if entry.tags.contains(&tag) {
            let renamed = entry.tags.iter().map(|known| if *known == tag { name.clone() } else { known.clone() });
            entry.tags = clean_tags(renamed);
        }
    });
    changed(&mailbox)
}

/// `DELETE /api/v1/tags/{tag}`
async fn delete_tag(State(mailbox): State<Mailbox>, Path(tag): Path<String>) -> Response {
    mailbox.store().update(|entry| entry.tags.retain(|known| *known != tag));
    changed(&mailbox)
}

/// `GET /api/v1/info`
async fn info(State(mailbox): State<Mailbox>) -> Json<Value> {
    let store = mailbox.store();
    let uptime = mailbox.inner.clock.now() - mailbox.inner.started;
    Json(json!({
        "Version": concat!("portico ", env!("CARGO_PKG_VERSION")),
        "LatestVersion": concat!("portico ", env!("CARGO_PKG_VERSION")),
        "Database": "memory",
        "DatabaseSize": store.bytes(),
        "Messages": store.len(),
        "Unread": store.unread(),
        "Tags": store.tags(),
        "RuntimeStats": {
            "Uptime": uptime.whole_seconds().max(0),
            "Memory": store.bytes(),
            "MessagesDeleted": store.deleted,
            "SMTPAccepted": store.accepted,
            "SMTPAcceptedSize": store.accepted_bytes,
            "SMTPRejected": 0,
            "SMTPIgnored": 0,
        },
    }))
}

/// `GET /api/v1/events`: `mail` and `text` carry the message, `changed` and `reset` ask to read
/// again.
async fn events(State(mailbox): State<Mailbox>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stream = BroadcastStream::new(mailbox.subscribe()).map(|event| {
        Ok(match event {
            Ok(MailboxEvent::Mail(mail)) => {
                let entry = StoredMail { tags: mail.header_tags(), mail, is_read: false };
                Event::default().event("mail").data(summary(&entry).to_string())
            }
            Ok(MailboxEvent::Text(text)) => Event::default().event("text").data(json!(*text).to_string()),
            Ok(MailboxEvent::Changed) => Event::default().event("changed").data("{}"),
            Err(_) => Event::default().event("reset").data("{}"),
        })
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(20)))
}

/// `GET /portico/v1/texts`
async fn texts(State(mailbox): State<Mailbox>) -> Json<Value> {
    Json(json!({ "texts": mailbox.texts().iter().map(|text| json!(**text)).collect::<Vec<_>>() }))
}

/// `DELETE /portico/v1/texts`
async fn delete_texts(State(mailbox): State<Mailbox>) -> Response {
    mailbox.store().clear_texts();
    changed(&mailbox)
}

fn find(mailbox: &Mailbox, id: &str) -> Option<Arc<CapturedMail>> {
    mailbox.store().find(id).map(|entry| Arc::clone(&entry.mail))
}

fn changed(mailbox: &Mailbox) -> Response {
    mailbox.announce(MailboxEvent::Changed);
    "ok".into_response()
}

fn moment(moment: OffsetDateTime) -> String {
    moment.format(&Rfc3339).unwrap_or_default()
}

fn not_found(text: &str) -> Response {
    (StatusCode::NOT_FOUND, text.to_owned()).into_response()
}

fn bad_json(error: &serde_json::Error) -> Response {
    bad_request(&format!("Error: {error}"))
}

fn bad_request(text: &str) -> Response {
    (StatusCode::BAD_REQUEST, text.to_owned()).into_response()
}
