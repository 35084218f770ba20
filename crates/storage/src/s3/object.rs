//! Operations on objects.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::address::S3Address;
use super::call::{S3Call, empty, set};
use super::xml::{XmlElement, XmlWriter, xml_response};
use crate::error::{Result, S3Error, StorageError};
use crate::http::object_headers::{Caching, describe, http_date, is_for_shared_caches, private, sent_type};
use crate::model::{FileMetadata, ObjectRow, parse_timestamp};
use crate::name::{EMPTY_FOLDER_PLACEHOLDER, MAX_KEY, ObjectPath};
use crate::object::condition::{ConditionOutcome, Conditions, WriteCondition};
use crate::object::copy::{self, CopyMetadata, CopyRequest};
use crate::object::delete;
use crate::object::download::{self, ReadRule, RequestedContent};
use crate::object::multipart::MAX_PART_NUMBER;
use crate::object::upload::{self, ContentDescription, UploadAuthority, UploadRequest};
use crate::operation::parse;
use crate::sign::readable;

/// The largest object of one request, in bytes.
const MAX_PUT: u64 = 5 * 1024 * 1024 * 1024;
/// The most keys that one request deletes.
const MAX_DELETED: usize = 1000;
/// The longest value of a header with metadata of the user, in bytes.
const MAX_METADATA_VALUE: usize = 2048;
/// The conditions of writes that are not implemented.
const OTHER_CONDITIONS: [&str; 4] =
    ["if-modified-since", "if-unmodified-since", "x-amz-if-match-last-modified-time", "x-amz-if-match-size"];
const METADATA: &str = "x-amz-meta-";
/// The code and the text of an object that may not be deleted, in the response to many deletions.
const ACCESS_DENIED: (&str, Cow<'_, str>) = ("AccessDenied", Cow::Borrowed("Access Denied"));
const OCTETS: &str = "application/octet-stream";

/// The parameters that replace headers of a response.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-content-type", header::CONTENT_TYPE),
    ("response-content-disposition", header::CONTENT_DISPOSITION),
    ("response-content-encoding", header::CONTENT_ENCODING),
    ("response-content-language", header::CONTENT_LANGUAGE),
    ("response-cache-control", header::CACHE_CONTROL),
    ("response-expires", header::EXPIRES),
];

/// The columns of a stored row that responses have.
#[derive(Debug, Deserialize)]
pub(super) struct StoredRow {
    pub metadata: FileMetadata,
    pub updated_at: Option<String>,
}

impl S3Call<'_> {
    /// Describes the content by the headers of the request.
    pub(super) fn description(&self) -> ContentDescription {
        let mut metadata = Map::new();
        for (name, value) in self.headers() {
            if let Some(name) = name.as_str().strip_prefix(METADATA) {
                metadata.insert(name.to_owned(), String::from_utf8_lossy(value.as_bytes()).into());
            }
        }
        if self.is_presigned() {
            for (name, value) in self.request.query.pairs() {
                if let Some(name) = name.to_ascii_lowercase().strip_prefix(METADATA) {
                    metadata.entry(name.to_owned()).or_insert_with(|| value.into());
                }
            }
        }
        ContentDescription {
            mimetype: self.header("content-type").filter(|kind| !kind.is_empty()).unwrap_or(OCTETS).to_owned(),
            cache_control: self.header("cache-control").unwrap_or("no-cache").to_owned(),
            robots_tag: None,
            user_metadata: (!metadata.is_empty()).then(|| Value::Object(metadata).to_string()),
        }
    }

    /// Rejects headers of which the content would not be what the client means: encrypted with its
    /// key, or appended to an object.
    pub(super) fn refuse_other_content(&self) -> Result<()> {
        const HEADERS: [&str; 3] = [
            "x-amz-server-side-encryption-customer-algorithm",
            "x-amz-server-side-encryption-customer-key",
            "x-amz-write-offset-bytes",
        ];
        let asks = HEADERS.iter().any(|name| self.header(name).is_some());
        if asks { Err(S3Error::NOT_IMPLEMENTED.into()) } else { Ok(()) }
    }

    /// Returns the condition on the object that a write replaces or deletes.
    ///
    /// # Errors
    /// `NotImplemented` for a condition that would not be kept.
    pub(super) fn write_condition(&self) -> Result<Option<WriteCondition>> {
        let has_unknown = OTHER_CONDITIONS.iter().any(|name| self.header(name).is_some());
        let only = |name: &str| match self.headers().get_all(name).iter().collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [value] if !has_unknown => {
                value.to_str().map(|value| Some(value.trim())).map_err(|_| S3Error::NOT_IMPLEMENTED)
            }
            _ => Err(S3Error::NOT_IMPLEMENTED),
        };
        match (only("if-none-match")?, only("if-match")?) {
            (None, None) if has_unknown => Err(S3Error::NOT_IMPLEMENTED.into()),
            (None, None) => Ok(None),
            (Some("*"), None) => Ok(Some(WriteCondition::Absent)),
            (None, Some(etag)) if !etag.contains(',') => {
                Ok(Some(WriteCondition::Etag(etag.trim_matches('"').to_owned())))
            }
            _ => Err(S3Error::NOT_IMPLEMENTED.into()),
        }
    }

    pub(super) async fn put_object(&self, mut path: ObjectPath, body: Body) -> Result<Response> {
        self.allow_parameters(&[])?;
        self.refuse_other_content()?;
        let operation = self.operation("storage.s3.upload");
        let size = self.content_length()?.ok_or(S3Error::MISSING_CONTENT_LENGTH)?;
        if size > MAX_PUT {
            return Err(StorageError::TooLarge("object"));
        }
        if size == 0 && path.name.ends_with('/') {
            path.name.push_str(EMPTY_FOLDER_PLACEHOLDER);
        }
        let condition = self.write_condition()?;
        let is_new = condition == Some(WriteCondition::Absent);
        let request = UploadRequest {
            target: path,
            upsert: !is_new,
            content_length: Some(size),
            exact_size: Some(size),
            has_content: true,
            description: self.description(),
        };
        let mut content = self.payload(body)?;
        let stored = match condition {
            Some(WriteCondition::Etag(etag)) => upload::replace(&operation, request, etag, &mut content).await,
            _ => upload::store(&operation, request, UploadAuthority::Caller, &mut content).await,
        };
        let row: StoredRow = parse(&stored.map_err(|error| unmet_if(is_new, error))?)?;
        let mut response = empty(StatusCode::OK);
        set(&mut response, "etag", row.metadata.etag().unwrap_or_default());
        Ok(response)
    }

    /// Sends an object, or its headers.
    pub(super) async fn get_object(&self, path: ObjectPath) -> Result<Response> {
        let overrides = OVERRIDES.iter().map(|(parameter, _)| *parameter);
        self.allow_parameters(&overrides.chain(["versionId", "partNumber"]).collect::<Vec<_>>())?;
        if self.query("versionId").is_some_and(|version| version != "null") {
            return Err(S3Error::NOT_IMPLEMENTED.into());
        }
        let is_head = self.request.parts.method == Method::HEAD;
        let is_part = self.reads_part()?;
        let operation = self.operation(if is_head { "storage.s3.object.info" } else { "storage.s3.object.get" });
        let found = download::find(&operation, ReadRule::PublicOrPolicies, &path).await?;
        let conditions = Conditions::of_headers(|name| self.header(name));
        let headers = self.describe(&found.row, found.is_public);
        match conditions.evaluate(&found.row) {
            ConditionOutcome::Failed => return Err(S3Error::PRECONDITION_FAILED.into()),
            ConditionOutcome::NotModified => return Ok(respond(StatusCode::NOT_MODIFIED, headers, Body::empty())),
            ConditionOutcome::Met => {}
        }
        if is_head && let Some(size) = found.row.metadata.size() {
            let status = if is_part && size > 0 { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
            let mut response = respond(status, headers, Body::empty());
            response.headers_mut().insert(header::CONTENT_LENGTH, size.into());
            set_content_range(&mut response, (0, size), size);
            return Ok(response);
        }
        let requested = if is_head { None } else { Some(self.headers()) };
        let opened =
            download::open_requested(&operation, ReadRule::PublicOrPolicies, &path, &found.row, requested).await?;
        let RequestedContent { replaced, content, is_range } = opened;
        if replaced.as_ref().is_some_and(|row| conditions.evaluate(row) != ConditionOutcome::Met) {
            return Err(S3Error::PRECONDITION_FAILED.into());
        }
        let headers = replaced.map_or(headers, |row| self.describe(&row, found.is_public));
        let (start, end) = content.range;
        let is_partial = is_range || (is_part && content.size > 0);
        let status = if is_partial { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
        let mut response = respond(status, headers, content.body);
        response.headers_mut().insert(header::CONTENT_LENGTH, (end - start).into());
        set_content_range(&mut response, (start, end), content.size);
        Ok(response)
    }

    /// Returns true if the request is about the first part of an object. An object is one part,
    /// however it was uploaded.
    fn reads_part(&self) -> Result<bool> {
        let Some(number) = self.query("partNumber") else { return Ok(false) };
        let number = number.parse().ok().filter(|number| (1..=MAX_PART_NUMBER).contains(number));
        match number.ok_or_else(|| S3Error::invalid_argument("partNumber"))? {
            _ if self.headers().contains_key(header::RANGE) => {
                Err(S3Error::invalid("Cannot specify both Range header and partNumber query parameter").into())
            }
            1 => Ok(true),
            _ => Err(S3Error::INVALID_PART_NUMBER.into()),
        }
    }

    /// Returns the headers that describe an object.
    fn describe(&self, row: &ObjectRow, is_public: bool) -> HeaderMap {
        let caching = if is_public { Caching::Stored } else { Caching::Private };
        let mut headers = describe(row, caching, None);
        let set = |headers: &mut HeaderMap, name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        let stored_type = row.metadata.mimetype().unwrap_or(OCTETS);
        if !self.is_presigned() {
            // No browser opens a request with a signature in its headers, so the type is as stored,
            // and the value for caches as well, as long as it permits nothing to shared ones
            set(&mut headers, header::CONTENT_TYPE, stored_type);
            let stored = row.metadata.cache_control().unwrap_or("no-cache");
            if !stored.is_empty() && !is_for_shared_caches(stored) {
                set(&mut headers, header::CACHE_CONTROL, stored);
            }
        }
        for (parameter, name) in OVERRIDES {
            let Some(value) = self.query(parameter) else { continue };
            match name {
                header::CONTENT_TYPE => {
                    // The object with this type, so that active content stays in its sandbox
                    let replaced = FileMetadata::default().replacing(None, Some(value));
                    let policy = describe(&ObjectRow { metadata: replaced, ..row.clone() }, caching, None);
                    headers.remove(header::CONTENT_SECURITY_POLICY);
                    headers.extend(
                        policy
                            .get(header::CONTENT_SECURITY_POLICY)
                            .map(|policy| (header::CONTENT_SECURITY_POLICY, policy.clone())),
                    );
                    if self.is_presigned() {
                        headers.insert(name, sent_type(value));
                    } else {
                        set(&mut headers, name, value);
                    }
                }
                header::CACHE_CONTROL if !is_public => set(&mut headers, name, &private(value)),
                name => set(&mut headers, name, value),
            }
        }
        if let Some(created) = row.created_at.as_deref().and_then(parse_timestamp) {
            set(&mut headers, HeaderName::from_static("created-at"), &http_date(created));
        }
        write_user_metadata(&mut headers, row.user_metadata.as_deref());
        headers
    }

    pub(super) async fn get_tagging(&self, path: &ObjectPath) -> Result<Response> {
        self.allow_parameters(&["tagging"])?;
        let operation = self.operation("storage.s3.object.get_tagging");
        download::find(&operation, ReadRule::PublicOrPolicies, path).await?;
        let mut xml = XmlWriter::new();
        xml.root("Tagging", |xml| xml.text("TagSet", ""));
        Ok(xml_response(xml))
    }

    /// Returns the source of a copy.
    pub(super) fn copy_source(&self) -> Result<ObjectPath> {
        S3Address::parse_source(self.header("x-amz-copy-source").unwrap_or_default())
    }

    /// Returns the conditions on the source of a copy.
    pub(super) fn copy_conditions(&self) -> Conditions {
        Conditions::of_headers(|name| self.header(&format!("x-amz-copy-source-{name}")))
    }

    pub(super) async fn copy_object(&self, destination: ObjectPath) -> Result<Response> {
        self.allow_parameters(&[])?;
        self.refuse_other_content()?;
        let source = self.copy_source()?;
        let metadata = match self.header("x-amz-metadata-directive") {
            None | Some("COPY") => None,
            Some("REPLACE") => {
                let ContentDescription { mimetype, cache_control, user_metadata, .. } = self.description();
                Some(CopyMetadata { cache_control: Some(cache_control), mimetype: Some(mimetype), user_metadata })
            }
            Some(_) => return Err(S3Error::invalid_argument("x-amz-metadata-directive").into()),
        };
        let operation = self.operation("storage.s3.object.copy");
        self.require_bucket(&operation, &destination.bucket).await?;
        let (upsert, replaced_etag) = match self.write_condition()? {
            None => (true, None),
            Some(WriteCondition::Absent) => (false, None),
            Some(WriteCondition::Etag(etag)) => (true, Some(etag)),
        };
        let conditions = self.copy_conditions();
        let request = CopyRequest { source, destination, upsert, metadata, conditions, replaced_etag };
        let copied = copy::copy(&operation, request).await.map_err(|error| unmet_if(!upsert, error))?;
        let row: StoredRow = parse(&copied)?;
        let mut xml = XmlWriter::new();
        xml.root("CopyObjectResult", |xml| {
            xml.text("ETag", row.metadata.etag().unwrap_or_default());
            let modified = row.metadata.last_modified().or(row.updated_at.as_deref());
            xml.text("LastModified", modified.unwrap_or_default());
        });
        Ok(xml_response(xml))
    }

    pub(super) async fn delete_object(&self, path: &ObjectPath) -> Result<Response> {
        self.allow_parameters(&["versionId"])?;
        if self.query("versionId").is_some_and(|version| version != "null") {
            return Err(S3Error::NOT_IMPLEMENTED.into());
        }
        let etag = match self.write_condition()? {
            None => None,
            Some(WriteCondition::Etag(etag)) => Some(etag),
            Some(WriteCondition::Absent) => return Err(S3Error::NOT_IMPLEMENTED.into()),
        };
        let operation = self.operation("storage.s3.object.delete");
        match delete::delete_if(&operation, path, etag.as_deref()).await {
            // An object that the caller cannot see does not exist
            Err(StorageError::NoSuchKey) => {
                self.require_bucket(&operation, &path.bucket).await?;
                if etag.is_some() { Err(StorageError::NoSuchKey) } else { Ok(empty(StatusCode::NO_CONTENT)) }
            }
            outcome => outcome.map(|()| empty(StatusCode::NO_CONTENT)),
        }
    }

    pub(super) async fn delete_objects(&self, bucket: &str, body: Body) -> Result<Response> {
        if !self.has("delete") {
            return Err(S3Error::NOT_IMPLEMENTED.into());
        }
        self.allow_parameters(&["delete"])?;
        let operation = self.operation("storage.s3.object.delete_many");
        let (objects, is_quiet) = objects_to_delete(&self.document(&operation, body).await?.bytes)?;
        self.require_bucket(&operation, bucket).await?;
        let mut failures: HashMap<&str, (&str, Cow<'_, str>)> = HashMap::new();
        let is_plain = |object: &&WantedDeletion| object.etag.is_none();
        let plain: Vec<String> = objects.iter().filter(is_plain).map(|object| object.key.clone()).collect();
        let deleted: Vec<DeletedRow> = parse(&delete::delete_many(&operation, bucket, &plain).await?)?;
        // An object that is still visible was not deleted, unless it was stored again since; one
        // that is not visible does not exist
        let mut denied: HashSet<String> = readable(&operation, bucket, &plain).await?.into_iter().collect();
        deleted.iter().for_each(|row| _ = denied.remove(&row.name));
        for WantedDeletion { key, etag } in &objects {
            let Some(etag) = etag else {
                if denied.contains(key) {
                    failures.insert(key, ACCESS_DENIED);
                }
                continue;
            };
            let path = ObjectPath { bucket: bucket.to_owned(), name: key.clone() };
            let failure = match delete::delete_if(&operation, &path, Some(etag)).await {
                Ok(()) => continue,
                Err(StorageError::AccessDenied(_)) => ACCESS_DENIED,
                Err(StorageError::NoSuchKey) => ("NoSuchKey", StorageError::NoSuchKey.message().into_owned().into()),
                Err(StorageError::S3(error)) => (error.code, error.message),
                Err(error) => return Err(error),
            };
            failures.insert(key, failure);
        }
        let mut xml = XmlWriter::new();
        xml.root("DeleteResult", |xml| {
            for object in objects.iter().filter(|object| !is_quiet && !failures.contains_key(&*object.key)) {
                xml.element("Deleted", |xml| xml.text("Key", &object.key));
            }
            for object in &objects {
                let Some((code, message)) = failures.get(&*object.key) else { continue };
                xml.element("Error", |xml| {
                    xml.text("Key", &object.key);
                    xml.text("Code", code);
                    xml.text("Message", message);
                });
            }
        });
        Ok(xml_response(xml))
    }
}

/// An object that was deleted.
#[derive(Debug, Deserialize)]
struct DeletedRow {
    name: String,
}

/// An object that a request deletes.
#[derive(Debug, PartialEq, Eq)]
struct WantedDeletion {
    key: String,
    /// The ETag that it must have, without quotes.
    etag: Option<String>,
}

/// Returns the error of a write, which is that of its condition if the condition was that no object
/// has the key.
pub(super) fn unmet_if(is_new: bool, error: StorageError) -> StorageError {
    match error {
        StorageError::Exists(_) if is_new => S3Error::PRECONDITION_FAILED.into(),
        error => error,
    }
}

/// Adds the range of a response with some of the content.
fn set_content_range(response: &mut Response, (start, end): (u64, u64), size: u64) {
    if response.status() == StatusCode::PARTIAL_CONTENT {
        set(response, "content-range", &format!("bytes {start}-{}/{size}", end.saturating_sub(1)));
    }
}

/// Reads the document of a deletion: the objects, and true if only failures are reported.
fn objects_to_delete(document: &[u8]) -> Result<(Vec<WantedDeletion>, bool)> {
    let document = XmlElement::parse(document, "Delete")?;
    let mut objects = Vec::new();
    for object in document.children("Object") {
        let key = object.child("Key").filter(|key| !key.is_empty() && key.chars().count() <= MAX_KEY);
        let key = key.ok_or_else(|| S3Error::malformed_xml("an object without a key"))?.to_owned();
        let has_other_version = object.child("VersionId").is_some_and(|version| !matches!(version, "" | "null"));
        let has_condition = ["LastModifiedTime", "Size"].iter().any(|condition| object.child(condition).is_some());
        if has_other_version || has_condition {
            return Err(S3Error::NOT_IMPLEMENTED.into());
        }
        let etag = object.child("ETag").map(|etag| etag.trim().trim_matches('"')).filter(|etag| !etag.is_empty());
        objects.push(WantedDeletion { key, etag: etag.map(str::to_owned) });
    }
    if objects.is_empty() || objects.len() > MAX_DELETED {
        return Err(S3Error::malformed_xml("1 to 1000 objects are expected").into());
    }
    Ok((objects, document.child("Quiet") == Some("true")))
}

fn respond(status: StatusCode, headers: HeaderMap, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Writes the metadata of the user. What no header can have is counted.
fn write_user_metadata(headers: &mut HeaderMap, metadata: Option<&RawValue>) {
    let metadata = metadata.and_then(|metadata| serde_json::from_str(metadata.get()).ok());
    let Some(Value::Object(metadata)) = &metadata else { return };
    let mut missing = 0_u32;
    for (name, value) in metadata {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => String::from("\n"),
        };
        let name = HeaderName::try_from(format!("{METADATA}{}", name.to_ascii_lowercase()));
        let is_possible = text.len() <= MAX_METADATA_VALUE && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        match (name, HeaderValue::try_from(text)) {
            (Ok(name), Ok(value)) if is_possible => {
                headers.insert(name, value);
            }
            _ => missing += 1,
        }
    }
    if missing > 0 {
        headers.insert("x-amz-missing-meta", missing.into());
    }
}
