//! Listings of objects, in both versions.

use axum::response::Response;

use super::call::S3Call;
use super::query::encode_path;
use super::xml::{XmlWriter, xml_response};
use crate::error::{Result, S3Error};
use crate::model::FileMetadata;
use crate::object::list_page::{self, PageCursor, PageEntry, PageOrder, PageRequest};

/// The largest page.
pub(super) const MAX_KEYS: u64 = 1000;

/// The version of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListVersion {
    One,
    Two,
}

/// Writes names, encoded if the client asks for it.
#[derive(Clone, Copy)]
pub(super) struct NameEncoding(bool);

impl NameEncoding {
    /// Reads `encoding-type`.
    ///
    /// # Errors
    /// When it is another one than `url`.
    pub fn of(call: &S3Call<'_>) -> Result<Self> {
        match call.query("encoding-type") {
            None | Some("") => Ok(Self(false)),
            Some("url") => Ok(Self(true)),
            Some(_) => Err(S3Error::invalid_argument("encoding-type").into()),
        }
    }

    /// Writes a name.
    pub fn write(self, xml: &mut XmlWriter, element: &str, name: &str) {
        if self.0 { xml.text(element, &encode_path(name)) } else { xml.text(element, name) }
    }

    /// Writes the element that names the encoding.
    pub fn write_type(self, xml: &mut XmlWriter) {
        if self.0 {
            xml.text("EncodingType", "url");
        }
    }
}

/// Returns the position behind a name, as a client gives it.
pub(super) fn behind(name: &str, is_folder: bool) -> PageCursor {
    PageCursor { name: name.to_owned(), is_folder, order: PageOrder::Name, descending: false, time: None }
}

impl S3Call<'_> {
    pub(super) async fn list_objects(&self, bucket: String, version: ListVersion) -> Result<Response> {
        let own = match version {
            ListVersion::One => &["marker"][..],
            ListVersion::Two => &["list-type", "continuation-token", "start-after", "fetch-owner"],
        };
        self.allow_parameters(&[&["prefix", "delimiter", "max-keys", "encoding-type"], own].concat())?;
        let encoding = NameEncoding::of(self)?;
        let operation = self.operation("storage.s3.object.list");
        self.require_bucket(&operation, &bucket).await?;
        let text = |name: &str| self.query(name).filter(|text| !text.is_empty());
        let (prefix, delimiter) = (text("prefix").unwrap_or_default(), text("delimiter"));
        if prefix.contains('\0') || delimiter.is_some_and(|delimiter| delimiter.contains('\0')) {
            return Err(S3Error::invalid_argument("prefix").into());
        }
        let cursor = match version {
            ListVersion::One => text("marker").map(|marker| {
                // The last entry of the page before, which may have been a group
                let is_group = |delimiter: &str| marker.len() > prefix.len() && marker.ends_with(delimiter);
                behind(marker, delimiter.is_some_and(is_group))
            }),
            ListVersion::Two => match text("continuation-token") {
                Some(token) => Some(PageCursor::decode(token)?),
                None => text("start-after").map(|name| behind(name, false)),
            },
        };
        if cursor
            .as_ref()
            .is_some_and(|cursor| cursor.name.contains('\0') || cursor.order != PageOrder::Name || cursor.descending)
        {
            return Err(S3Error::invalid_argument("continuation-token").into());
        }
        let max_keys = self.number("max-keys", MAX_KEYS)?.unwrap_or(MAX_KEYS);
        let request = PageRequest {
            bucket: bucket.clone(),
            prefix: prefix.to_owned(),
            limit: max_keys,
            delimiter: delimiter.map(str::to_owned),
            cursor,
            ..PageRequest::default()
        };
        let page = if max_keys == 0 {
            list_page::ObjectListPage { entries: Vec::new(), next: None }
        } else {
            list_page::page(&operation, request).await?
        };
        let mut xml = XmlWriter::new();
        xml.root("ListBucketResult", |xml| {
            xml.text("Name", &bucket);
            encoding.write(xml, "Prefix", prefix);
            for entry in page.entries.iter().filter(|entry| entry.id.is_some()) {
                xml.element("Contents", |xml| write_object(xml, encoding, entry));
            }
            xml.text("IsTruncated", if page.next.is_some() { "true" } else { "false" });
            xml.text("MaxKeys", &max_keys.to_string());
            if let Some(delimiter) = delimiter {
                encoding.write(xml, "Delimiter", delimiter);
            }
            encoding.write_type(xml);
            if version == ListVersion::Two {
                xml.text("KeyCount", &page.entries.len().to_string());
            }
            for entry in page.entries.iter().filter(|entry| entry.id.is_none()) {
                xml.element("CommonPrefixes", |xml| encoding.write(xml, "Prefix", &entry.name));
            }
            match version {
                ListVersion::One => {
                    encoding.write(xml, "Marker", self.query("marker").unwrap_or_default());
                    if let Some(next) = page.next.as_ref().filter(|_| delimiter.is_some()) {
                        encoding.write(xml, "NextMarker", &next.name);
                    }
                }
                ListVersion::Two => {
                    if let Some(token) = text("continuation-token") {
                        xml.text("ContinuationToken", token);
                    }
                    if let Some(name) = text("start-after") {
                        encoding.write(xml, "StartAfter", name);
                    }
                    if let Some(next) = &page.next {
                        xml.text("NextContinuationToken", &next.encode());
                    }
                }
            }
        });
        Ok(xml_response(xml))
    }
}

fn write_object(xml: &mut XmlWriter, encoding: NameEncoding, entry: &PageEntry) {
    let metadata = entry.metadata.as_ref().and_then(|json| serde_json::from_str(json.get()).ok());
    let metadata: FileMetadata = metadata.unwrap_or_default();
    encoding.write(xml, "Key", &entry.name);
    xml.text("LastModified", entry.updated_at.as_deref().unwrap_or_default());
    xml.text("ETag", metadata.etag().unwrap_or_default());
    xml.text("Size", &metadata.size().unwrap_or_default().to_string());
    xml.text("StorageClass", "STANDARD");
}
