//! The rows of schema `storage`, and the JSON that clients see.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// The value of `Cache-Control` for content whose sender names none.
pub(crate) const NO_CACHE: &str = "no-cache";

/// The rules of a bucket for what is uploaded.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct BucketRules {
    pub file_size_limit: Option<i64>,
    pub allowed_mime_types: Option<Vec<String>>,
}

impl BucketRules {
    /// Returns the largest object in bytes.
    pub fn size_limit(&self, global: u64) -> u64 {
        let own = self.file_size_limit.and_then(|limit| u64::try_from(limit).ok());
        own.map_or(global, |limit| limit.min(global))
    }
}

/// A row of `storage.objects`, as far as its content and its description need it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ObjectRow {
    pub id: String,
    pub version: Option<String>,
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
    #[serde(default)]
    pub metadata: FileMetadata,
    /// As PostgreSQL has it: most reads do not need it.
    pub user_metadata: Option<Box<RawValue>>,
}

/// The name of an object and the version that its row refers to.
#[derive(Debug, Deserialize)]
pub(crate) struct NamedVersion {
    pub name: String,
    pub version: Option<String>,
}

/// The column `metadata`. SQL may have written anything there, so every field may be missing or of
/// another type.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Option<Value>")]
pub(crate) struct FileMetadata(Map<String, Value>);

impl From<Option<Value>> for FileMetadata {
    fn from(value: Option<Value>) -> Self {
        match value {
            Some(Value::Object(fields)) => Self(fields),
            _ => Self::default(),
        }
    }
}

impl FileMetadata {
    fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field).and_then(Value::as_str)
    }

    /// Returns the ETag, with its quotes.
    pub fn etag(&self) -> Option<&str> {
        self.text("eTag")
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> Option<u64> {
        let size = self.0.get("size")?;
        size.as_u64().or_else(|| size.as_str()?.parse().ok())
    }

    /// Returns the content type.
    pub fn mimetype(&self) -> Option<&str> {
        self.text("mimetype")
    }

    /// Returns the value of `Cache-Control`.
    pub fn cache_control(&self) -> Option<&str> {
        self.text("cacheControl")
    }

    /// Returns the value of `X-Robots-Tag`.
    pub fn robots_tag(&self) -> Option<&str> {
        self.text("xRobotsTag")
    }

    /// Returns the time of the last change of the content.
    pub fn last_modified(&self) -> Option<&str> {
        self.text("lastModified")
    }

    /// Returns the same metadata with other values for fields that were given.
    pub fn replacing(&self, cache_control: Option<&str>, mimetype: Option<&str>) -> Self {
        let mut fields = self.0.clone();
        for (name, value) in [("cacheControl", cache_control), ("mimetype", mimetype)] {
            if let Some(value) = value {
                fields.insert(name.into(), value.into());
            }
        }
        Self(fields)
    }

    /// Returns the same metadata for a new version of the same content.
    pub fn for_new_version(&self, size: u64, modified: OffsetDateTime) -> Self {
        let mut fields = self.0.clone();
        fields.insert("size".into(), size.into());
        fields.insert("contentLength".into(), size.into());
        fields.insert("lastModified".into(), timestamp(modified).into());
        fields.insert("httpStatusCode".into(), 200.into());
        Self(fields)
    }

    /// Returns the metadata as JSON text.
    pub fn to_json(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}

/// The facts about new content that its row records.
pub(crate) struct NewMetadata<'a> {
    pub etag: &'a str,
    pub size: u64,
    pub modified: OffsetDateTime,
    pub mimetype: &'a str,
    pub cache_control: &'a str,
    pub robots_tag: Option<&'a str>,
}

impl NewMetadata<'_> {
    /// Returns the column `metadata` as JSON text.
    pub fn to_json(&self) -> String {
        let mut fields = json!({
            "eTag": self.etag,
            "size": self.size,
            "mimetype": self.mimetype,
            "cacheControl": self.cache_control,
            "lastModified": timestamp(self.modified),
            "contentLength": self.size,
            "httpStatusCode": 200,
        });
        if let Some(robots_tag) = self.robots_tag {
            fields["xRobotsTag"] = robots_tag.into();
        }
        fields.to_string()
    }
}

const TIMESTAMP: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Returns a time as clients read it: ISO 8601 in UTC with milliseconds.
pub(crate) fn timestamp(time: OffsetDateTime) -> String {
    time.to_offset(time::UtcOffset::UTC).format(TIMESTAMP).unwrap_or_default()
}

/// Parses a time in ISO 8601.
pub(crate) fn parse_timestamp(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()
}
