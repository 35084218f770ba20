//! Uploads in parts.

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use http::StatusCode;

use super::call::{S3Call, empty, set};
use super::list::{MAX_KEYS, NameEncoding};
use super::object::{StoredRow, unmet_if};
use super::xml::{XmlElement, XmlWriter, xml_response};
use crate::backend::ByteRange;
use crate::checksum::{CHECKSUMS, Checksum, ExpectedChecksum};
use crate::error::{Result, S3Error, StorageError};
use crate::model::{ObjectRow, timestamp};
use crate::name::ObjectPath;
use crate::object::condition::{ConditionOutcome, WriteCondition};
use crate::object::download::{self, ReadRule, find_visible};
use crate::object::multipart::{
    self, CompletionRequest, MAX_PART_NUMBER, UploadListEntry, UploadListRequest, UploadName,
};
use crate::operation::parse;

/// The checksum that is of the whole object where a completion does not name a type.
const WHOLE_BY_DEFAULT: &str = "x-amz-checksum-crc64nvme";

impl S3Call<'_> {
    /// Returns the upload that the request names.
    fn upload_name(&self, target: ObjectPath) -> UploadName {
        UploadName { target, id: self.query("uploadId").unwrap_or_default().to_owned() }
    }

    pub(super) async fn begin_multipart(&self, path: ObjectPath) -> Result<Response> {
        self.allow_parameters(&["uploads"])?;
        self.refuse_other_content()?;
        let operation = self.operation("storage.s3.upload.create_multipart");
        let upload = multipart::begin(&operation, path.clone(), self.description()).await?;
        let mut xml = XmlWriter::new();
        xml.root("InitiateMultipartUploadResult", |xml| {
            xml.text("Bucket", &path.bucket);
            xml.text("Key", &path.name);
            xml.text("UploadId", &upload);
        });
        Ok(xml_response(xml))
    }

    pub(super) async fn upload_part(&self, path: ObjectPath, body: Body) -> Result<Response> {
        self.allow_parameters(&["uploadId", "partNumber"])?;
        self.refuse_other_content()?;
        let number = self.query("partNumber").and_then(|number| number.parse::<u16>().ok());
        let number = number.filter(|number| (1..=MAX_PART_NUMBER).contains(number));
        let number = number.ok_or_else(|| S3Error::invalid_argument("partNumber"))?;
        let name = self.upload_name(path);
        if self.header("x-amz-copy-source").is_some() {
            return self.copy_part(&name, number).await;
        }
        let operation = self.operation("storage.s3.upload.part");
        let size = self.content_length()?.ok_or(S3Error::MISSING_CONTENT_LENGTH)?;
        let upload = multipart::find(&operation, &name, number).await?;
        let permit = multipart::permit_part(&operation, &upload, size).await?;
        let mut content = self.payload(body)?;
        let part = multipart::put_part(&operation, &upload, &permit, (number, size), &mut content).await?;
        let mut response = empty(StatusCode::OK);
        set(&mut response, "etag", &format!("\"{}\"", part.etag));
        Ok(response)
    }

    async fn copy_part(&self, name: &UploadName, number: u16) -> Result<Response> {
        let operation = self.operation("storage.s3.upload.part_copy");
        let source = self.copy_source()?;
        let range = self
            .header("x-amz-copy-source-range")
            .map(|range| parse_range(range).ok_or_else(|| S3Error::invalid_argument("x-amz-copy-source-range")));
        let range = range.transpose()?;
        let upload = multipart::find(&operation, name, number).await?;
        let row = find_visible(&operation, &source).await?;
        let conditions = self.copy_conditions();
        let is_met = |row: &ObjectRow| conditions.evaluate(row) == ConditionOutcome::Met;
        if !is_met(&row) {
            return Err(S3Error::PRECONDITION_FAILED.into());
        }
        let range_of_backend = range.map(|(start, end)| ByteRange::From(start, Some(end)));
        let opened = download::open(&operation, ReadRule::Policies, &source, &row, range_of_backend).await?;
        let (replaced, content) = opened;
        if replaced.is_some_and(|row| !is_met(&row)) {
            return Err(S3Error::PRECONDITION_FAILED.into());
        }
        if range.is_some_and(|(_, end)| end >= content.size) {
            return Err(StorageError::InvalidRange);
        }
        let size = content.range.1 - content.range.0;
        let permit = multipart::permit_part(&operation, &upload, size).await?;
        let mut stream = content.body.into_data_stream().map(|chunk| {
            chunk.map_err(|error| {
                tracing::error!(error = %error, "the source of a copy could not be read");
                StorageError::Internal
            })
        });
        let part = multipart::put_part(&operation, &upload, &permit, (number, size), &mut stream).await?;
        let mut xml = XmlWriter::new();
        xml.root("CopyPartResult", |xml| {
            xml.text("ETag", &format!("\"{}\"", part.etag));
            xml.text("LastModified", &timestamp(operation.service.clock.now()));
        });
        Ok(xml_response(xml))
    }

    pub(super) async fn complete_multipart(&self, path: ObjectPath, body: Body) -> Result<Response> {
        if !self.has("uploadId") {
            return Err(S3Error::NOT_IMPLEMENTED.into());
        }
        self.allow_parameters(&["uploadId"])?;
        let operation = self.operation("storage.s3.upload.complete_multipart");
        let checksums = self.checksums_of_object()?;
        // They are those of the object, not of the document
        let mut headers = self.headers().clone();
        for name in CHECKSUMS {
            headers.remove(name);
        }
        let condition = self.write_condition()?;
        let is_new = condition == Some(WriteCondition::Absent);
        let parts = parts_to_complete(&self.document_with(&operation, body, &headers).await?.bytes)?;
        let name = self.upload_name(path);
        let ObjectPath { bucket, name: key } = name.target.clone();
        let request = CompletionRequest { name, parts, checksums, condition };
        let completed = multipart::complete(&operation, request).await.map_err(|error| unmet_if(is_new, error))?;
        let row: StoredRow = parse(&completed)?;
        let mut xml = XmlWriter::new();
        xml.root("CompleteMultipartUploadResult", |xml| {
            xml.text("Location", &format!("{bucket}/{key}"));
            xml.text("Bucket", &bucket);
            xml.text("Key", &key);
            xml.text("ETag", row.metadata.etag().unwrap_or_default());
        });
        Ok(xml_response(xml))
    }

    /// Returns the checksums of the whole object that a completion has. One of the parts' checksums
    /// is not compared: each part was, as it arrived.
    fn checksums_of_object(&self) -> Result<Vec<ExpectedChecksum>> {
        let kind = self.header("x-amz-checksum-type");
        let mut checksums = Vec::new();
        for name in CHECKSUMS {
            // The only one that is always of the whole object
            let is_whole = kind.map_or(name == WHOLE_BY_DEFAULT, |kind| kind.eq_ignore_ascii_case("FULL_OBJECT"));
            let (true, Some(value), Some(checksum)) = (is_whole, self.header(name), Checksum::of_header(name)) else {
                continue;
            };
            let value = STANDARD.decode(value).map_err(|_| S3Error::invalid_argument(name))?;
            checksums.push(ExpectedChecksum { checksum, value });
        }
        Ok(checksums)
    }

    pub(super) async fn abort_multipart(&self, path: ObjectPath) -> Result<Response> {
        self.allow_parameters(&["uploadId"])?;
        let operation = self.operation("storage.s3.upload.abort_multipart");
        let upload = multipart::find(&operation, &self.upload_name(path), 0).await?;
        multipart::abort(&operation, &upload).await?;
        Ok(empty(StatusCode::OK))
    }

    pub(super) async fn list_parts(&self, path: ObjectPath) -> Result<Response> {
        self.allow_parameters(&["uploadId", "part-number-marker", "max-parts"])?;
        let operation = self.operation("storage.s3.upload.list_parts");
        let after = self.number("part-number-marker", MAX_PART_NUMBER.into())?.unwrap_or_default();
        let limit = self.number("max-parts", MAX_KEYS)?.unwrap_or(MAX_KEYS).max(1);
        let name = self.upload_name(path);
        let upload = multipart::find(&operation, &name, 0).await?;
        let limit = usize::try_from(limit).unwrap_or_default();
        let after = u16::try_from(after).unwrap_or(MAX_PART_NUMBER);
        let mut parts = multipart::parts(&operation, &upload, after, limit + 1).await?;
        let is_truncated = parts.len() > limit;
        parts.truncate(limit);
        let mut xml = XmlWriter::new();
        xml.root("ListPartsResult", |xml| {
            xml.text("Bucket", &name.target.bucket);
            xml.text("Key", &name.target.name);
            xml.text("UploadId", &name.id);
            xml.text("PartNumberMarker", &after.to_string());
            if let Some(last) = parts.last().filter(|_| is_truncated) {
                xml.text("NextPartNumberMarker", &last.number.to_string());
            }
            xml.text("MaxParts", &limit.to_string());
            xml.text("IsTruncated", if is_truncated { "true" } else { "false" });
            for part in &parts {
                xml.element("Part", |xml| {
                    xml.text("PartNumber", &part.number.to_string());
                    xml.text("LastModified", &part.created_at);
                    xml.text("ETag", &format!("\"{}\"", part.etag));
                    xml.text("Size", &part.size.to_string());
                });
            }
        });
        Ok(xml_response(xml))
    }

    pub(super) async fn list_uploads(&self, bucket: String) -> Result<Response> {
        let known =
            ["uploads", "prefix", "delimiter", "key-marker", "upload-id-marker", "max-uploads", "encoding-type"];
        self.allow_parameters(&known)?;
        let encoding = NameEncoding::of(self)?;
        let operation = self.operation("storage.s3.upload.list_multipart");
        self.require_bucket(&operation, &bucket).await?;
        let text = |name: &str| self.query(name).filter(|text| !text.is_empty()).map(str::to_owned);
        let limit = self.number("max-uploads", MAX_KEYS)?.unwrap_or(MAX_KEYS).max(1);
        let request = UploadListRequest {
            bucket: bucket.clone(),
            prefix: text("prefix").unwrap_or_default(),
            delimiter: text("delimiter").unwrap_or_default(),
            after_id: text("upload-id-marker").filter(|_| self.has("key-marker")),
            after_key: text("key-marker"),
            limit: usize::try_from(limit).unwrap_or_default(),
        };
        let (entries, is_truncated) = multipart::list(&operation, request).await?;
        let mut xml = XmlWriter::new();
        xml.root("ListMultipartUploadsResult", |xml| {
            xml.text("Name", &bucket);
            encoding.write(xml, "Prefix", &text("prefix").unwrap_or_default());
            for entry in &entries {
                if let UploadListEntry::Upload { key, id, created_at } = entry {
                    xml.element("Upload", |xml| {
                        encoding.write(xml, "Key", key);
                        xml.text("Initiated", created_at);
                        xml.text("UploadId", id);
                        xml.text("StorageClass", "STANDARD");
                    });
                }
            }
            xml.text("IsTruncated", if is_truncated { "true" } else { "false" });
            xml.text("MaxUploads", &limit.to_string());
            xml.text("KeyCount", &entries.len().to_string());
            if let Some(delimiter) = text("delimiter") {
                encoding.write(xml, "Delimiter", &delimiter);
            }
            encoding.write_type(xml);
            match entries.last().filter(|_| is_truncated) {
                Some(UploadListEntry::Upload { key, id, .. }) => {
                    encoding.write(xml, "NextKeyMarker", key);
                    xml.text("NextUploadIdMarker", id);
                }
                Some(UploadListEntry::Group(group)) => encoding.write(xml, "NextKeyMarker", group),
                None => {}
            }
            for entry in &entries {
                if let UploadListEntry::Group(group) = entry {
                    xml.element("CommonPrefixes", |xml| encoding.write(xml, "Prefix", group));
                }
            }
        });
        Ok(xml_response(xml))
    }
}

/// Reads the document of a completion: the numbers and ETags of the parts.
fn parts_to_complete(document: &[u8]) -> Result<Vec<(u16, String)>> {
    let document = XmlElement::parse(document, "CompleteMultipartUpload")?;
    let part = |part: &XmlElement| {
        let number = part.child("PartNumber")?.trim().parse::<u16>().ok()?;
        let is_possible = (1..=MAX_PART_NUMBER).contains(&number);
        is_possible.then_some((number, part.child("ETag")?.trim().to_owned()))
    };
    let parts: Option<Vec<(u16, String)>> = document.children("Part").map(part).collect();
    let parts = parts.filter(|parts| !parts.is_empty() && parts.len() <= usize::from(MAX_PART_NUMBER));
    parts.ok_or_else(|| S3Error::malformed_xml("parts with numbers and ETags are expected").into())
}

/// Parses `bytes=a-b`: both positions are in the range.
fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    (start <= end).then_some((start, end))
}
