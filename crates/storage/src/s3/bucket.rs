//! Operations on buckets.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;

use super::call::{S3Call, empty, set};
use super::list::{ListVersion, behind};
use super::xml::{XmlElement, XmlWriter, xml_response};
use crate::bucket::{self, BucketListRequest, NewBucket};
use crate::error::{Result, S3Error};
use crate::object::list_page::PageCursor;
use crate::operation::{Actor, Operation, parse};

/// The most buckets of a page.
const MAX_BUCKETS: u64 = 10_000;

/// The columns of a bucket that responses have.
#[derive(Debug, Deserialize)]
struct BucketRow {
    name: String,
    created_at: Option<String>,
}

impl S3Call<'_> {
    pub(super) async fn list_buckets(&self) -> Result<Response> {
        self.allow_parameters(&["prefix", "max-buckets", "continuation-token", "bucket-region"])?;
        let text = |name: &str| self.query(name).filter(|text| !text.is_empty());
        let (prefix, token) = (text("prefix").unwrap_or_default(), text("continuation-token"));
        let last = token.map(PageCursor::decode).transpose()?;
        let count = self.number("max-buckets", MAX_BUCKETS)?;
        if count == Some(0) {
            return Err(S3Error::invalid_argument("max-buckets").into());
        }
        let is_here = text("bucket-region").is_none_or(|region| region == self.request.settings.region);
        let operation = self.operation("storage.s3.bucket.list");
        let request = BucketListRequest {
            limit: None,
            offset: 0,
            search: String::new(),
            column: "name",
            descending: false,
            has_type: false,
        };
        let mut buckets: Vec<BucketRow> = parse(&bucket::list(&operation, &request).await?)?;
        // The order of the database is that of a language
        buckets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        buckets.retain(|bucket| {
            let is_behind = last.as_ref().is_none_or(|last| bucket.name > last.name);
            is_here && is_behind && bucket.name.starts_with(prefix)
        });
        let count = count.map_or(buckets.len(), |count| count as usize);
        let next = buckets.get(count).and_then(|_| buckets.get(count.checked_sub(1)?));
        let next = next.map(|last| behind(&last.name, false).encode());
        buckets.truncate(count);
        let mut xml = XmlWriter::new();
        xml.root("ListAllMyBucketsResult", |xml| {
            xml.element("Buckets", |xml| {
                for bucket in &buckets {
                    xml.element("Bucket", |xml| {
                        xml.text("Name", &bucket.name);
                        xml.text("CreationDate", bucket.created_at.as_deref().unwrap_or_default());
                    });
                }
            });
            if let Some(next) = &next {
                xml.text("ContinuationToken", next);
            }
            if !prefix.is_empty() {
                xml.text("Prefix", prefix);
            }
        });
        Ok(xml_response(xml))
    }

    pub(super) async fn create_bucket(&self, name: String, body: Body) -> Result<Response> {
        self.allow_parameters(&[])?;
        let operation = self.operation("storage.s3.bucket.create");
        // The body names a region at most, and there is one
        let document = self.document(&operation, body).await?.bytes;
        if !document.is_empty() {
            XmlElement::parse(&document, "CreateBucketConfiguration")?;
        }
        let new = NewBucket {
            id: name.clone(),
            name,
            public: self.header("x-amz-acl") == Some("public-read"),
            file_size_limit: None,
            allowed_mime_types: None,
        };
        bucket::create(&operation, Actor::Caller, &new).await?;
        let mut response = empty(StatusCode::OK);
        set(&mut response, "location", &format!("/{}", super::query::encode_path(&new.name)));
        Ok(response)
    }

    pub(super) async fn head_bucket(&self, name: &str) -> Result<Response> {
        self.allow_parameters(&[])?;
        bucket::get(&self.operation("storage.s3.bucket.head"), Actor::Caller, name).await?;
        let mut response = empty(StatusCode::OK);
        set(&mut response, "x-amz-bucket-region", &self.request.settings.region);
        Ok(response)
    }

    pub(super) async fn delete_bucket(&self, name: &str) -> Result<Response> {
        self.allow_parameters(&[])?;
        bucket::delete_bucket(&self.operation("storage.s3.bucket.delete"), name).await?;
        Ok(empty(StatusCode::NO_CONTENT))
    }

    /// Responds to a `GET` of a bucket, whose parameters name what is read.
    pub(super) async fn get_bucket(&self, name: String) -> Result<Response> {
        match () {
            () if self.has("location") => self.get_location(&name).await,
            () if self.has("versioning") => self.get_versioning(&name).await,
            () if self.has("uploads") => self.list_uploads(name).await,
            () => match self.query("list-type") {
                None => self.list_objects(name, ListVersion::One).await,
                Some("2") => self.list_objects(name, ListVersion::Two).await,
                Some(_) => Err(S3Error::invalid_argument("list-type").into()),
            },
        }
    }

    async fn get_location(&self, name: &str) -> Result<Response> {
        self.allow_parameters(&["location"])?;
        bucket::get(&self.operation("storage.s3.bucket.get_location"), Actor::Caller, name).await?;
        let mut xml = XmlWriter::new();
        xml.root("LocationConstraint", |xml| xml.escaped(&self.request.settings.region));
        Ok(xml_response(xml))
    }

    async fn get_versioning(&self, name: &str) -> Result<Response> {
        self.allow_parameters(&["versioning"])?;
        bucket::get(&self.operation("storage.s3.bucket.get_versioning"), Actor::Caller, name).await?;
        let mut xml = XmlWriter::new();
        xml.root("VersioningConfiguration", |xml| {
            xml.text("Status", "Suspended");
            xml.text("MfaDelete", "Disabled");
        });
        Ok(xml_response(xml))
    }

    /// Checks that a bucket exists, whether its row is visible to the caller or not: as for an
    /// upload, its name is no secret, and its objects are.
    pub(super) async fn require_bucket(&self, operation: &Operation, name: &str) -> Result<()> {
        bucket::get(operation, Actor::Service, name).await.map(drop)
    }
}
