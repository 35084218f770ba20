//! Broadcasts over HTTP: several messages as JSON, or one message as it is.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::authorise::{AuthoriseError, Subject};
use crate::identity::ChannelIdentity;
use crate::rooms::{Publication, RoomKey, RoomMessage, RoomMessageBody};
use crate::service::RealtimeService;
use crate::socket::frame::{UserBroadcast, UserPayload};

/// The longest body, in bytes.
pub(crate) const MAX_BODY: usize = 8_000_000;

/// The messages of one batch.
const MAX_MESSAGES: usize = 1000;

const BLANK: &str = "can't be blank";
const INVALID: &str = "is invalid";
const TOO_LARGE: &str = "Payload size exceeds tenant limit";

/// The response to a request that is rejected. In a box, as results are returned through several
/// functions.
type BroadcastRejection = Box<Response>;

/// A request that may broadcast.
struct BroadcastSender {
    identity: Arc<ChannelIdentity>,
    headers: Arc<str>,
}

/// Responds to `POST /api/broadcast`.
pub(crate) async fn broadcast_batch(service: &RealtimeService, request: Request, may_be_privileged: bool) -> Response {
    let response = batch(service, request, may_be_privileged).await.unwrap_or_else(|rejection| *rejection);
    with_rate(service, response)
}

/// Responds to `POST /api/broadcast/{topic}/events/{event}`, with both names decoded.
pub(crate) async fn broadcast_one(
    service: &RealtimeService,
    request: Request,
    names: (String, String),
    may_be_privileged: bool,
) -> Response {
    let response = one(service, request, names, may_be_privileged).await.unwrap_or_else(|rejection| *rejection);
    with_rate(service, response)
}

async fn batch(
    service: &RealtimeService,
    request: Request,
    may_be_privileged: bool,
) -> Result<Response, BroadcastRejection> {
    let (parts, body) = request.into_parts();
    let sender = sender(service, &parts.headers, may_be_privileged)?;
    check_rate(service)?;
    let body = read(body).await?;
    let document: BatchDocument<'_> = serde_json::from_slice(&body).map_err(|_| bad_json())?;
    let Some(messages) = document.messages else {
        return Err(unprocessable(&json!({ "messages": [BLANK] })));
    };
    let Ok(messages) = serde_json::from_str::<Vec<&RawValue>>(messages.get()) else {
        return Err(unprocessable(&json!({ "messages": [INVALID] })));
    };
    if messages.len() > MAX_MESSAGES {
        return Err(unprocessable(&json!({ "messages": [format!("should have at most {MAX_MESSAGES} item(s)")] })));
    }
    let messages: Vec<Value> =
        messages.into_iter().map(|message| serde_json::from_str(message.get()).unwrap_or(Value::Null)).collect();
    let limit = service.settings.limits.max_payload_bytes;
    let parsed: Vec<_> = messages.iter().map(|message| BatchMessage::parse(message, limit)).collect();
    if parsed.iter().any(Result::is_err) {
        let errors = parsed.into_iter().map(|message| message.err().unwrap_or_default());
        return Err(unprocessable(&json!({ "messages": errors.map(Value::Object).collect::<Vec<_>>() })));
    }
    let messages: Vec<BatchMessage> = parsed.into_iter().filter_map(Result::ok).collect();
    if let Some(limit) = service.settings.limits.max_events_per_second
        && service.events.average() + messages.len() as u64 > u64::from(limit)
    {
        return Err(too_many("Too many messages to broadcast, please reduce the batch size"));
    }
    // Once for each private topic
    let mut permissions: HashMap<Arc<str>, bool> = HashMap::new();
    for message in messages {
        let topic = Arc::clone(&message.room.topic);
        if message.room.private {
            let may_write = match permissions.get(&topic) {
                Some(may_write) => *may_write,
                None => may_write(service, &sender, &topic).await.unwrap_or(false),
            };
            permissions.insert(topic, may_write);
            if !may_write {
                continue;
            }
        }
        publish(service, message.room, message.broadcast, message.metadata).await;
    }
    Ok(StatusCode::ACCEPTED.into_response())
}

async fn one(
    service: &RealtimeService,
    request: Request,
    (topic, event): (String, String),
    may_be_privileged: bool,
) -> Result<Response, BroadcastRejection> {
    let (parts, body) = request.into_parts();
    let sender = sender(service, &parts.headers, may_be_privileged)?;
    check_rate(service)?;
    let is_private = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
        (name == "private").then(|| value == "true")
    };
    let query = parts.uri.query().unwrap_or_default();
    let private = form_urlencoded::parse(query.as_bytes()).find_map(is_private).unwrap_or(false);
    let media_type = parts.headers.get(header::CONTENT_TYPE).map(|value| {
        let value = String::from_utf8_lossy(value.as_bytes());
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    });
    let body = match media_type.as_deref() {
        None | Some("application/json" | "application/octet-stream") => read(body).await?,
        Some(_) => {
            let message = "Unsupported Media Type. Use application/json or application/octet-stream";
            return Err(rejection(StatusCode::UNSUPPORTED_MEDIA_TYPE, &json!({ "error": message })));
        }
    };
    let payload = match media_type.as_deref() {
        Some("application/octet-stream") => UserPayload::Binary(body),
        Some(_) if !body.is_empty() => {
            serde_json::from_slice::<&RawValue>(&body).map_err(|_| bad_json())?;
            UserPayload::Json(body)
        }
        _ => UserPayload::Json(Bytes::from_static(b"{}")),
    };
    for (name, value) in [("topic", &topic), ("event", &event)] {
        if value.trim().is_empty() {
            return Err(unprocessable(&json!({ name: [BLANK] })));
        }
    }
    if payload.len() > service.settings.limits.max_payload_bytes {
        return Err(unprocessable(&json!({ "payload": [TOO_LARGE] })));
    }
    let room = RoomKey { private, topic: topic.into() };
    if private && !may_write(service, &sender, &room.topic).await.map_err(|error| not_authorised(&error))? {
        return Err(rejection(StatusCode::FORBIDDEN, &json!({ "message": "Unauthorized" })));
    }
    let broadcast = UserBroadcast { event: event.into(), payload };
    publish(service, room, BroadcastForm::User(broadcast), String::new()).await;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// The body of a batch.
#[derive(Deserialize)]
struct BatchDocument<'a> {
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
}

/// A message of a batch.
struct BatchMessage {
    room: RoomKey,
    broadcast: BroadcastForm,
    metadata: String,
}

/// The form in which a message is delivered.
enum BroadcastForm {
    /// Text for every version: the JSON of the whole payload.
    Text(Bytes),
    User(UserBroadcast),
}

impl BatchMessage {
    /// Parses a message. The error has the reasons by field.
    fn parse(message: &Value, max_bytes: usize) -> Result<Self, Map<String, Value>> {
        let mut errors = Map::new();
        let mut text = |name: &str| match message.get(name) {
            Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
            Some(Value::String(_) | Value::Null) | None => {
                errors.insert(name.to_owned(), json!([BLANK]));
                String::new()
            }
            Some(_) => {
                errors.insert(name.to_owned(), json!([INVALID]));
                String::new()
            }
        };
        let (topic, event) = (text("topic"), text("event"));
        let payload = match message.get("payload") {
            Some(Value::Object(payload)) => payload.clone(),
            Some(Value::Null) | None => {
                errors.insert("payload".to_owned(), json!([BLANK]));
                Map::new()
            }
            Some(_) => {
                errors.insert("payload".to_owned(), json!([INVALID]));
                Map::new()
            }
        };
        let private = match message.get("private") {
            Some(Value::Bool(private)) => *private,
            Some(Value::Null) | None => false,
            Some(Value::String(text)) if text == "true" || text == "false" => text == "true",
            Some(_) => {
                errors.insert("private".to_owned(), json!([INVALID]));
                false
            }
        };
        let payload = Value::Object(payload);
        if payload.to_string().len() > max_bytes {
            errors.insert("payload".to_owned(), json!([TOO_LARGE]));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut whole = json!({ "payload": payload, "event": event, "type": "broadcast" });
        if let Some(id) = message.get("id").and_then(Value::as_str) {
            whole["meta"] = json!({ "id": id });
        }
        let broadcast = BroadcastForm::Text(whole.to_string().into());
        Ok(Self { room: RoomKey { private, topic: topic.into() }, broadcast, metadata: String::new() })
    }
}

async fn publish(service: &RealtimeService, room: RoomKey, form: BroadcastForm, metadata: String) {
    service.events.add(1);
    let body = match form {
        BroadcastForm::Text(payload) => RoomMessageBody::Broadcast(payload),
        BroadcastForm::User(broadcast) => RoomMessageBody::UserBroadcast { broadcast, metadata: metadata.into() },
    };
    let message = RoomMessage::new(&room.topic, body);
    service.rooms.publish(None, Publication { room, message, except: None }).await;
}

async fn may_write(service: &RealtimeService, sender: &BroadcastSender, topic: &str) -> Result<bool, AuthoriseError> {
    // Messages of the database are delivered for a while after this, as after a join
    let _used = service.stream.use_stream();
    let subject = Subject { identity: &sender.identity, headers: &sender.headers, topic };
    let permissions = service.authoriser.write(&subject).await;
    permissions.map(|permissions| permissions.broadcast).inspect_err(|error| {
        tracing::warn!(error = %error, "a broadcast could not be authorised");
    })
}

/// Determines who sends: the bearer token, else the API key.
fn sender(
    service: &RealtimeService,
    headers: &HeaderMap,
    may_be_privileged: bool,
) -> Result<BroadcastSender, BroadcastRejection> {
    let unauthorized = || rejection(StatusCode::UNAUTHORIZED, &json!({ "message": "Unauthorized" }));
    let identity = service.verifier.verify_request(headers, may_be_privileged).ok_or_else(unauthorized)?;
    Ok(BroadcastSender { identity: Arc::new(identity), headers: visible_headers(headers).into() })
}

/// Returns the headers that policies see, as a JSON object.
fn visible_headers(headers: &HeaderMap) -> String {
    let visible = headers.iter().filter(|(name, _)| **name != header::COOKIE && *name != "apikey");
    let visible = visible.map(|(name, value)| {
        (name.as_str().to_owned(), Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    Value::Object(visible.collect::<Map<_, _>>()).to_string()
}

async fn read(body: Body) -> Result<Bytes, BroadcastRejection> {
    let whole = Limited::new(body, MAX_BODY).collect().await;
    whole.map(http_body_util::Collected::to_bytes).map_err(|_| Box::new(StatusCode::PAYLOAD_TOO_LARGE.into_response()))
}

fn check_rate(service: &RealtimeService) -> Result<(), BroadcastRejection> {
    match service.events.exceeds(service.settings.limits.max_events_per_second) {
        true => Err(too_many("Too many requests")),
        false => Ok(()),
    }
}

/// Adds the rate of messages to a response, where it is limited.
fn with_rate(service: &RealtimeService, mut response: Response) -> Response {
    if let Some(limit) = service.settings.limits.max_events_per_second {
        let average = service.events.average();
        let left = u64::from(limit).saturating_sub(average);
        let rates = [("x-rate-rolling", average), ("x-rate-limit", limit.into()), ("x-rate-limit-remaining", left)];
        for (name, value) in rates {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(value));
        }
    }
    response
}

fn not_authorised(error: &AuthoriseError) -> BroadcastRejection {
    let message = match error {
        AuthoriseError::Policy(_) => "RLS policy error",
        AuthoriseError::QueryCanceled(_) => "Query canceled",
        AuthoriseError::MissingPartition => "Missing messages partition",
        AuthoriseError::Unreachable => "Tenant database unavailable",
        AuthoriseError::NoConnection => return too_many("Connection pool exhausted"),
        AuthoriseError::Failed => {
            let body = json!({ "message": "Unable to authorize broadcast" });
            return rejection(StatusCode::INTERNAL_SERVER_ERROR, &body);
        }
    };
    rejection(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "message": message }))
}

fn bad_json() -> BroadcastRejection {
    rejection(StatusCode::BAD_REQUEST, &json!({ "message": "The body is not valid JSON" }))
}

fn unprocessable(errors: &Value) -> BroadcastRejection {
    rejection(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "errors": errors }))
}

fn too_many(message: &str) -> BroadcastRejection {
    rejection(StatusCode::TOO_MANY_REQUESTS, &json!({ "message": message }))
}

fn rejection(status: StatusCode, body: &Value) -> BroadcastRejection {
    Box::new((status, axum::Json(body)).into_response())
}
