//! Uploads in one request: as a form or as a raw body.

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portico_base::CappedPermit;
use serde::Deserialize;
use serde_json::json;

use super::fields::declared_type;
use crate::error::{Result, StorageError};
use crate::http::body::UploadBody;
use crate::http::call::StorageCall;
use crate::http::form::{FormReader, PartHead};
use crate::http::response::json_response;
use crate::media_type::OCTETS;
use crate::model::NO_CACHE;
use crate::name::ObjectPath;
use crate::object::upload::{self, ContentDescription, UploadAuthority, UploadRequest};
use crate::operation::{Operation, parse};

/// The most fields of a form besides the file.
const MAX_FIELDS: usize = 10;
/// The largest `x-metadata`, decoded, in bytes.
const MAX_USER_METADATA: usize = 1024 * 1024;
/// The longest field of a form besides the metadata, in bytes. As much as that is not counted as
/// memory for bodies: the headers of a request take more.
const MAX_FIELD: usize = 8 * 1024;

/// The columns of a stored row that responses have.
#[derive(Debug, Deserialize)]
struct StoredObjectId {
    id: String,
}

/// The fields of a form.
#[derive(Debug, Default)]
struct FormFields {
    count: usize,
    cache_control: Option<String>,
    user_metadata: Option<String>,
    /// The memory that is reserved for the metadata.
    memory: Option<CappedPermit>,
    content_type: Option<String>,
}

impl StorageCall<'_> {
    /// Stores an object, and returns its key and id.
    pub(super) async fn upload(&self, path: ObjectPath, body: Body, replaces: bool) -> Result<Response> {
        let name = if replaces { "storage.object.upload_update" } else { "storage.object.upload" };
        let operation = self.operation(name)?;
        let upsert = replaces || self.upserts();
        let key = format!("{}/{}", path.bucket, path.name);
        let row = self.store(&operation, path, upsert, UploadAuthority::Caller, body).await?;
        let StoredObjectId { id } = parse(&row)?;
        Ok(json_response(&json!({ "Key": key, "Id": id })))
    }

    /// Reads an upload and stores it. Returns the row as JSON.
    pub(super) async fn store(
        &self,
        operation: &Operation,
        target: ObjectPath,
        upsert: bool,
        authority: UploadAuthority,
        body: Body,
    ) -> Result<Bytes> {
        let content_type = self.content_type()?;
        let mut body = UploadBody::new(body, &self.service.settings);
        let request = UploadRequest {
            target,
            upsert,
            content_length: self.content_length(),
            exact_size: None,
            has_content: true,
            description: self.description_of_raw(content_type.unwrap_or(OCTETS))?,
        };
        let is_form = content_type.is_some_and(|kind| {
            kind.get(.."multipart/form-data".len()).is_some_and(|kind| kind.eq_ignore_ascii_case("multipart/form-data"))
        });
        match content_type.filter(|_| is_form) {
            Some(content_type) => {
                let form = FormReader::new(body, content_type)?;
                store_form(operation, request, authority, form).await
            }
            None => {
                let request = UploadRequest { exact_size: request.content_length, ..request };
                upload::store(operation, request, authority, &mut body).await
            }
        }
    }

    /// Describes the upload that a request announces, for a permission test without content.
    pub(super) fn announced(&self, target: ObjectPath, upsert: bool) -> Result<UploadRequest> {
        let content_type = self.content_type()?.unwrap_or(OCTETS);
        Ok(UploadRequest {
            target,
            upsert,
            content_length: self.content_length(),
            exact_size: None,
            has_content: false,
            description: self.description_of_raw(content_type)?,
        })
    }

    fn content_type(&self) -> Result<Option<&str>> {
        declared_type(&self.parts.headers)
    }

    fn content_length(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// Describes content by the headers of the request.
    fn description_of_raw(&self, content_type: &str) -> Result<ContentDescription> {
        let robots_tag = self.header("x-robots-tag").map(str::to_owned);
        if let Some(tag) = &robots_tag {
            check_robots_tag(tag)?;
        }
        Ok(ContentDescription {
            mimetype: content_type.to_owned(),
            cache_control: self.header("cache-control").unwrap_or(NO_CACHE).to_owned(),
            robots_tag,
            user_metadata: Some(self.user_metadata()?.unwrap_or_else(|| "{}".into())),
        })
    }

    /// Returns the metadata in the header `x-metadata`. What cannot be read is ignored.
    pub(super) fn user_metadata(&self) -> Result<Option<String>> {
        let decoded = self.header("x-metadata").and_then(|value| STANDARD.decode(value).ok());
        if decoded.as_ref().is_some_and(|decoded| decoded.len() > MAX_USER_METADATA) {
            return Err(StorageError::TooLarge("user_metadata"));
        }
        Ok(decoded.and_then(|decoded| upload::metadata_text(&decoded)))
    }
}

/// Stores the file of a form.
async fn store_form(
    operation: &Operation,
    mut request: UploadRequest,
    authority: UploadAuthority,
    mut form: FormReader<UploadBody>,
) -> Result<Bytes> {
    let timeout = operation.service.settings.fields_timeout;
    let before_file = tokio::time::timeout(timeout, read_to_file(operation, &mut form));
    let (fields, file) = before_file.await.unwrap_or(Err(StorageError::TooSlow))?;
    let declared = file.content_type.filter(|kind| !kind.is_empty());
    fields.describe(&mut request.description, declared.as_deref());
    let permit = upload::permit(operation, &request, authority.clone()).await?;
    let received = upload::receive(operation, &permit, &mut form.content()).await?;
    let behind_file = async {
        let mut fields = fields;
        while let Some(head) = form.next_part().await? {
            if head.is_file {
                return Err(StorageError::InvalidRequest("reach files limit".into()));
            }
            fields.read(operation, &head.name, &mut form).await?;
        }
        Ok(fields)
    };
    let fields = tokio::time::timeout(timeout, behind_file).await.unwrap_or(Err(StorageError::TooSlow))?;
    // The client appends its fields to a form that already has the file. The type was checked
    // before the content and stays; the policies have to see metadata that they have not seen
    let mut description = request.description.clone();
    fields.describe(&mut description, None);
    description.mimetype.clone_from(&request.description.mimetype);
    let is_unseen = description.user_metadata != request.description.user_metadata;
    request.description = description;
    let permit = if is_unseen { upload::permit(operation, &request, authority).await? } else { permit };
    upload::commit(operation, permit, received, request.description).await
}

/// Reads a form up to the headers of its file.
async fn read_to_file(operation: &Operation, form: &mut FormReader<UploadBody>) -> Result<(FormFields, PartHead)> {
    let mut fields = FormFields::default();
    loop {
        match form.next_part().await? {
            None => return Err(StorageError::InvalidRequest("No content provided".into())),
            Some(head) if head.is_file => return Ok((fields, head)),
            Some(head) => fields.read(operation, &head.name, form).await?,
        }
    }
}

impl FormFields {
    /// Reads a field. One of another name is skipped with the next part.
    async fn read(&mut self, operation: &Operation, name: &str, form: &mut FormReader<UploadBody>) -> Result<()> {
        self.count += 1;
        if self.count > MAX_FIELDS {
            return Err(StorageError::InvalidRequest("reach fields limit".into()));
        }
        match name {
            "cacheControl" => self.cache_control = Some(form.field("field", MAX_FIELD).await?),
            "metadata" | "userMetadata" => {
                let mut memory = operation.reserve_memory(MAX_USER_METADATA).await?;
                let text = form.field("user_metadata", MAX_USER_METADATA).await?;
                if let Some(metadata) = upload::metadata_text(text.as_bytes()) {
                    memory.shrink_to(metadata.len());
                    (self.user_metadata, self.memory) = (Some(metadata), Some(memory));
                }
            }
            "contentType" => self.content_type = Some(form.field("field", MAX_FIELD).await?),
            _ => {}
        }
        Ok(())
    }

    /// Writes what the form says into a description. `declared` is the type of the file's part.
    fn describe(&self, description: &mut ContentDescription, declared: Option<&str>) {
        let mimetype = self.content_type.as_deref().filter(|kind| !kind.is_empty()).or(declared);
        mimetype.unwrap_or(OCTETS).clone_into(&mut description.mimetype);
        description.cache_control = match self.cache_control.as_deref().filter(|seconds| !seconds.is_empty()) {
            Some(seconds) => format!("max-age={seconds}"),
            None => NO_CACHE.into(),
        };
        if let Some(user_metadata) = &self.user_metadata {
            description.user_metadata = Some(user_metadata.clone());
        }
    }
}

/// Checks `x-robots-tag`: a list of rules, each for all robots or for a named one.
fn check_robots_tag(tag: &str) -> Result<()> {
    const PLAIN: [&str; 8] =
        ["all", "noindex", "nofollow", "none", "nosnippet", "indexifembedded", "notranslate", "noimageindex"];
    let is_number = |text: &str| text.parse::<i64>().is_ok_and(|number| number >= -1);
    let is_rule = |rule: &str| {
        let (name, value) = rule.split_once(':').map_or((rule, None), |(name, value)| (name, Some(value.trim())));
        match (name.trim(), value) {
            (name, None) => PLAIN.contains(&name),
            ("max-snippet" | "max-video-preview", Some(value)) => is_number(value),
            ("max-image-preview", Some(value)) => matches!(value, "none" | "standard" | "large"),
            ("unavailable_after", Some(value)) => !value.is_empty(),
            _ => false,
        }
    };
    let is_robot =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    // A date has a comma: what follows an end of availability belongs to it
    let mut after_date = false;
    for rule in tag.split(',').map(str::trim) {
        let behind_robot = rule.split_once(':').filter(|(name, _)| is_robot(name.trim())).map(|(_, rule)| rule.trim());
        let is_valid = is_rule(rule) || behind_robot.is_some_and(is_rule);
        if !is_valid && !after_date {
            return Err(StorageError::InvalidRobotsTag(rule.to_owned()));
        }
        after_date = rule.contains("unavailable_after");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn robots_tags_are_lists_of_known_rules() {
        for tag in [
            "none",
            "noindex, nofollow",
            "max-snippet:-1",
            "googlebot: noindex, max-image-preview:large",
            "unavailable_after: Sat, 01 Aug 2026 09:00:00 GMT",
        ] {
            assert_eq!(check_robots_tag(tag), Ok(()), "{tag}");
        }
        for tag in ["", "x", "noindex,,", "max-snippet:-2", "max-image-preview:huge", "bot: x"] {
            assert!(check_robots_tag(tag).is_err(), "{tag}");
        }
    }
}
