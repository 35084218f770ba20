//! Uploads with a form of a page, which a signed policy allows.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::Stream;
use http::StatusCode;
use portico_base::Secret;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use super::call::{S3Request, empty, set};
use super::object::StoredRow;
use super::signature::{CredentialScope, SigningTime, is_signed_with};
use super::xml::{XmlWriter, xml_response};
use crate::error::{Result, S3Error, StorageError};
use crate::http::body::UploadBody;
use crate::http::form::{FormReader, PartHead};
use crate::model::parse_timestamp;
use crate::name::ObjectPath;
use crate::object::upload::{self, ContentDescription, UploadAuthority, UploadRequest};
use crate::operation::{Operation, RequestDescription, parse};
use crate::sigv4::ALGORITHM;

/// The most fields before the file.
const MAX_FIELDS: usize = 100;
/// The longest field, in bytes.
const MAX_FIELD: usize = 64 * 1024;
/// The largest size of all fields before the file with their names, in bytes. They are read before
/// the signature can be verified.
const MAX_FIELDS_SIZE: usize = 128 * 1024;
/// The most conditions of a policy.
const MAX_CONDITIONS: usize = 200;
/// The placeholder in a key for the name of the file.
const FILE_NAME: &str = "${filename}";

/// The fields before the file: names in lower case, and values.
struct PostFields(Vec<(String, String)>);

impl PostFields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns the size of the names and values in bytes.
    fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    fn required(&self, name: &str) -> Result<&str> {
        self.get(name).ok_or_else(|| S3Error::invalid(format!("The form field {name} is missing")).into())
    }
}

/// A condition of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PolicyCondition {
    Equal(String, String),
    StartsWith(String, String),
    /// The least and the largest size of the file, in bytes.
    Length(u64, u64),
}

/// A signed policy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UploadPolicy {
    expiration: OffsetDateTime,
    conditions: Vec<PolicyCondition>,
}

impl UploadPolicy {
    /// Parses a policy: JSON in base64.
    fn parse(encoded: &str) -> Option<Self> {
        let policy: Value = serde_json::from_slice(&STANDARD.decode(encoded).ok()?).ok()?;
        let expiration = parse_timestamp(policy.get("expiration")?.as_str()?)?;
        let mut conditions = Vec::new();
        for condition in policy.get("conditions")?.as_array().filter(|list| list.len() <= MAX_CONDITIONS)? {
            match condition {
                Value::Object(fields) => {
                    for (name, value) in fields {
                        let value = value.as_str()?.to_owned();
                        conditions.push(PolicyCondition::Equal(name.to_ascii_lowercase(), value));
                    }
                }
                Value::Array(condition) => conditions.push(Self::parse_condition(condition)?),
                _ => return None,
            }
        }
        Some(Self { expiration, conditions })
    }

    fn parse_condition(condition: &[Value]) -> Option<PolicyCondition> {
        let [operator, first, second] = condition else { return None };
        let field = || Some(first.as_str()?.strip_prefix('$')?.to_ascii_lowercase());
        let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
        Some(match operator.as_str()?.to_ascii_lowercase().as_str() {
            "eq" => PolicyCondition::Equal(field()?, second.as_str()?.to_owned()),
            "starts-with" => PolicyCondition::StartsWith(field()?, second.as_str()?.to_owned()),
            "content-length-range" => PolicyCondition::Length(number(first)?, number(second)?),
            _ => return None,
        })
    }

    /// Checks the fields of a form. Each condition must be met, and each field must have one,
    /// besides those of the signature and those that are ignored.
    fn check(&self, fields: &PostFields, bucket: &str) -> Result<()> {
        let value = |name: &str| if name == "bucket" { Some(bucket) } else { fields.get(name) };
        for condition in &self.conditions {
            let (name, is_met) = match condition {
                PolicyCondition::Equal(name, wanted) => (name, value(name) == Some(wanted)),
                PolicyCondition::StartsWith(name, begin) => {
                    // A list of types is compared one by one
                    let begins = |value: &str| value.split(',').all(|each| each.trim().starts_with(begin.as_str()));
                    let is_met = |value: &str| match name.as_str() {
                        "content-type" => begins(value),
                        _ => value.starts_with(begin.as_str()),
                    };
                    (name, value(name).is_some_and(is_met))
                }
                PolicyCondition::Length(..) => continue,
            };
            if !is_met {
                return Err(S3Error::policy(format!("Policy Condition failed: {name}")).into());
            }
        }
        let has_condition = |name: &str| {
            self.conditions.iter().any(|condition| match condition {
                PolicyCondition::Equal(key, _) | PolicyCondition::StartsWith(key, _) => key == name,
                PolicyCondition::Length(..) => false,
            })
        };
        // The bucket is in the path
        if !has_condition("bucket") {
            return Err(S3Error::policy("Extra input fields: bucket").into());
        }
        let is_free = |name: &str| {
            matches!(
                name,
                "policy"
                    | "file"
                    | "x-amz-signature"
                    | "x-amz-algorithm"
                    | "x-amz-credential"
                    | "x-amz-date"
                    | "x-amz-security-token"
            ) || name.starts_with("x-ignore-")
        };
        match fields.0.iter().find(|(name, _)| !is_free(name) && !has_condition(name)) {
            Some((name, _)) => Err(S3Error::policy(format!("Extra input fields: {name}")).into()),
            None => Ok(()),
        }
    }

    /// Returns the least and the largest size of the file, in bytes.
    fn length(&self) -> (u64, u64) {
        self.conditions.iter().fold((0, u64::MAX), |(least, largest), condition| match condition {
            PolicyCondition::Length(from, to) => (least.max(*from), largest.min(*to)),
            _ => (least, largest),
        })
    }
}

/// The content of a file, which has at least a size.
struct LeastSize<S> {
    content: S,
    left: u64,
    has_ended: bool,
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Stream for LeastSize<S> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let next = ready!(Pin::new(&mut self.content).poll_next(context));
        match &next {
            Some(Ok(bytes)) => self.left = self.left.saturating_sub(bytes.len() as u64),
            Some(Err(_)) => self.has_ended = true,
            None => {
                self.has_ended = true;
                if self.left > 0 {
                    return Poll::Ready(Some(Err(S3Error::TOO_SMALL.into())));
                }
            }
        }
        Poll::Ready(next)
    }
}

impl S3Request<'_> {
    pub(super) async fn post_form(&self, bucket: &str, content_type: &str, body: Body) -> Result<Response> {
        let settings = &self.service.settings;
        let mut form = FormReader::new(UploadBody::new(body, settings), content_type)?;
        // The fields are held before their signature can be verified, and until the file is stored
        let client = RequestDescription::of_client(&self.parts.extensions);
        let unverified = Operation::new(self.service, "storage.s3.upload", None, client);
        let mut memory = unverified.reserve_memory(MAX_FIELDS_SIZE).await?;
        let reading = tokio::time::timeout(settings.fields_timeout, read_fields(&mut form));
        let (mut fields, file) = reading.await.unwrap_or(Err(StorageError::TooSlow))?;
        memory.shrink_to(fields.size());

        let encoded = fields.required("policy").map_err(|_| S3Error::MISSING_SIGNATURE)?;
        let signature = fields.required("x-amz-signature").map_err(|_| S3Error::MISSING_SIGNATURE)?;
        if fields.required("x-amz-algorithm")? != ALGORITHM {
            return Err(S3Error::invalid_argument("x-amz-algorithm").into());
        }
        let scope = CredentialScope::parse(fields.required("x-amz-credential")?);
        let scope = scope.ok_or_else(|| S3Error::invalid_argument("x-amz-credential"))?;
        let time = SigningTime::parse(fields.required("x-amz-date")?);
        let time = time.ok_or_else(|| S3Error::invalid_argument("x-amz-date"))?;
        if scope.service != "s3" {
            return Err(S3Error::INVALID_SERVICE.into());
        }
        if !time.text.starts_with(&scope.date) {
            return Err(S3Error::WRONG_SIGNATURE.into());
        }
        let token = fields.get("x-amz-security-token").filter(|token| !token.is_empty()).map(Secret::new);
        let (identity, ()) = self.authenticate(&scope.access_key, token.as_ref(), |secret| {
            let is_signed = is_signed_with(&scope.signing().signing_key(secret), encoded.as_bytes(), signature);
            if is_signed { Ok(()) } else { Err(S3Error::WRONG_SIGNATURE.into()) }
        })?;
        let policy = UploadPolicy::parse(encoded).ok_or_else(|| S3Error::policy("malformed policy document"))?;
        if policy.expiration <= self.service.clock.now() {
            return Err(S3Error::policy("Policy expired").into());
        }
        if let Some((_, key)) = fields.0.iter_mut().find(|(name, _)| name == "key") {
            // The name of a file is not a path
            let name = file.file_name.as_deref().unwrap_or_default();
            *key = key.replace(FILE_NAME, name.rsplit(['/', '\\']).next().unwrap_or_default());
        }
        policy.check(&fields, bucket)?;

        let operation = self.operation("storage.s3.upload", &identity);
        let request = UploadRequest {
            target: ObjectPath { bucket: bucket.to_owned(), name: fields.required("key")?.to_owned() },
            upsert: true,
            content_length: self
                .parts
                .headers
                .get("content-length")
                .and_then(|value| value.to_str().ok()?.parse().ok()),
            exact_size: None,
            has_content: true,
            description: describe(&fields, &file),
        };
        let (least, largest) = policy.length();
        let mut permit = upload::permit(&operation, &request, UploadAuthority::Caller).await?;
        permit.limit_size(largest);
        let mut content = LeastSize { content: form.content(), left: least, has_ended: false };
        let received = upload::receive(&operation, &permit, &mut content).await?;
        let row = upload::commit(&operation, permit, received, request.description).await?;
        let row: StoredRow = parse(&row)?;
        let etag = row.metadata.etag().unwrap_or_default();
        let mut response = match fields.get("success_action_status") {
            Some("201") => {
                let mut xml = XmlWriter::new();
                xml.root("PostResponse", |xml| {
                    xml.text("Location", &format!("{bucket}/{}", request.target.name));
                    xml.text("Bucket", bucket);
                    xml.text("Key", &request.target.name);
                    xml.text("ETag", etag);
                });
                let mut response = xml_response(xml);
                *response.status_mut() = StatusCode::CREATED;
                response
            }
            Some("204") => empty(StatusCode::NO_CONTENT),
            _ => empty(StatusCode::OK),
        };
        set(&mut response, "etag", etag);
        Ok(response)
    }
}

/// Reads the fields up to the file.
async fn read_fields(form: &mut FormReader<UploadBody>) -> Result<(PostFields, PartHead)> {
    let (mut fields, mut size) = (Vec::new(), 0);
    while let Some(head) = form.next_part().await? {
        if head.is_file || head.name.eq_ignore_ascii_case("file") {
            return Ok((PostFields(fields), head));
        }
        size += head.name.len();
        if fields.len() == MAX_FIELDS || size > MAX_FIELDS_SIZE {
            return Err(StorageError::TooLarge("form"));
        }
        let value = form.field("form", MAX_FIELD.min(MAX_FIELDS_SIZE - size)).await?;
        size += value.len();
        let name = head.name.to_ascii_lowercase();
        // Of two values the policy could check one, and the other could be stored
        if fields.iter().any(|(other, _)| *other == name) {
            return Err(S3Error::invalid(format!("The form field {name} appears twice")).into());
        }
        fields.push((name, value));
    }
    Err(S3Error::invalid("POST requires exactly one file upload per request.").into())
}

/// Describes the content by the fields of a form.
fn describe(fields: &PostFields, file: &PartHead) -> ContentDescription {
    let text = |name: &str| fields.get(name).filter(|value| !value.is_empty());
    let metadata: Map<String, Value> = fields
        .0
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("x-amz-meta-")?.to_owned(), value.as_str().into())))
        .collect();
    let mimetype = text("content-type").or(file.content_type.as_deref().filter(|kind| !kind.is_empty()));
    ContentDescription {
        mimetype: mimetype.unwrap_or("application/octet-stream").to_owned(),
        cache_control: text("cache-control").unwrap_or("no-cache").to_owned(),
        robots_tag: None,
        user_metadata: (!metadata.is_empty()).then(|| Value::Object(metadata).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(conditions: Value, fields: &[(&str, &str)]) -> Result<()> {
        let policy = json!({ "expiration": "2026-08-01T09:00:00.000Z", "conditions": conditions });
        let policy = UploadPolicy::parse(&STANDARD.encode(policy.to_string())).unwrap();
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        policy.check(&PostFields(fields), "b")
    }

    #[test]
    fn a_form_must_meet_its_policy_in_every_field() {
        let conditions = json!([{ "bucket": "b" }, ["starts-with", "$key", "u/"], ["eq", "$Content-Type", "text/plain"], ["content-length-range", 1, 10]]);
        let fields = [("key", "u/a"), ("content-type", "text/plain"), ("policy", "x"), ("x-ignore-y", "z")];
        assert_eq!(check(conditions.clone(), &fields), Ok(()));
        for other in [
            &[("key", "v/a"), ("content-type", "text/plain")][..],
            &[("key", "u/a"), ("content-type", "text/html")],
            &[("key", "u/a")],
            &[("key", "u/a"), ("content-type", "text/plain"), ("cache-control", "public")],
        ] {
            assert_eq!(
                check(conditions.clone(), other).unwrap_err().status_and_code(),
                (403, "AccessDenied"),
                "{other:?}"
            );
        }
        assert!(check(json!([{ "bucket": "other" }]), &[]).is_err());
        assert!(check(json!([["starts-with", "$key", "u/"]]), &[("key", "u/a")]).is_err(), "for every bucket");
    }

    #[test]
    fn a_malformed_policy_allows_nothing() {
        for policy in [
            json!({}),
            json!({ "expiration": "tomorrow", "conditions": [] }),
            json!({ "expiration": "2026-08-01T09:00:00Z" }),
            json!({ "expiration": "2026-08-01T09:00:00Z", "conditions": [["ends-with", "$key", "x"]] }),
            json!({ "expiration": "2026-08-01T09:00:00Z", "conditions": [["eq", "key", "x"]] }),
            json!({ "expiration": "2026-08-01T09:00:00Z", "conditions": ["eq"] }),
        ] {
            assert_eq!(UploadPolicy::parse(&STANDARD.encode(policy.to_string())), None, "{policy}");
        }
        assert_eq!(UploadPolicy::parse("%"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_policies_do_not_panic(text in "\\PC{0,40}", policy in "[\\[\\]{}\":,a-z0-9$ ]{0,60}") {
            let _ = UploadPolicy::parse(&text);
            let _ = UploadPolicy::parse(&STANDARD.encode(policy));
        }
    }
}
