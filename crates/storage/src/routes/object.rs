//! Routes below `/object`.

use axum::body::Body;
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::address::ObjectAddress;
use super::fields::JsonFields;
use crate::error::{Result, StorageError};
use crate::http::call::StorageCall;
use crate::http::object_headers::{Caching, describe};
use crate::http::response::{json_bytes, json_response, message};
use crate::name::ObjectPath;
use crate::object::condition::Conditions;
use crate::object::copy::{self, CopyMetadata, CopyRequest};
use crate::object::download::{self, ReadRule};
use crate::object::list::{self, ListRequest};
use crate::object::list_page::{self, PageCursor, PageOrder, PageRequest};
use crate::object::{delete, relocate};
use crate::operation::{Operation, parse};

/// The most names that one request deletes.
const MAX_DELETED: usize = 1000;
const INFO_OPERATION: &str = "object.get_authenticated_info";
const HEAD_OPERATION: &str = "object.head_authenticated_info";

/// The description of an object.
#[derive(Serialize)]
struct ObjectInfo<'a> {
    id: &'a str,
    name: &'a str,
    version: &'a str,
    bucket_id: &'a str,
    size: Option<u64>,
    content_type: Option<&'a str>,
    cache_control: Option<&'a str>,
    etag: Option<&'a str>,
    metadata: Option<&'a RawValue>,
    last_modified: Option<&'a str>,
    created_at: Option<&'a str>,
}

impl StorageCall<'_> {
    pub(super) async fn object(&self, address: ObjectAddress, body: Body) -> Result<Response> {
        match address {
            ObjectAddress::Upload(path) => self.upload(path, body, false).await,
            ObjectAddress::Replace(path) => self.upload(path, body, true).await,
            ObjectAddress::Get(path) => {
                self.get(self.tolerant_operation(self.read_operation()), ReadRule::PublicOrPolicies, path).await
            }
            ObjectAddress::GetAuthenticated(path) => {
                self.get(self.operation(self.read_operation())?, ReadRule::PublicOrPolicies, path).await
            }
            ObjectAddress::GetPublic(path) => {
                self.get(self.undescribed_operation("storage.object.get_public"), ReadRule::Public, path).await
            }
            ObjectAddress::Info(path) => {
                self.info(self.tolerant_operation(INFO_OPERATION), ReadRule::PublicOrPolicies, path).await
            }
            ObjectAddress::InfoAuthenticated(path) => {
                self.info(self.operation(HEAD_OPERATION)?, ReadRule::PublicOrPolicies, path).await
            }
            ObjectAddress::InfoPublic(path) => {
                self.info(self.undescribed_operation("storage.object.info_public"), ReadRule::Public, path).await
            }
            ObjectAddress::List(bucket) => self.list(bucket, body).await,
            ObjectAddress::ListPage(bucket) => self.list_page(bucket, body).await,
            ObjectAddress::Move => self.relocate(body).await,
            ObjectAddress::Copy => self.copy(body).await,
            ObjectAddress::Delete(path) => {
                delete::delete(&self.operation("storage.object.delete")?, &path).await?;
                Ok(message("Successfully deleted"))
            }
            ObjectAddress::DeleteMany(bucket) => {
                let operation = self.operation("storage.object.delete_many")?;
                let fields = self.fields(&operation, body).await?;
                let names = fields.required_texts("prefixes", MAX_DELETED)?;
                delete::delete_many(&operation, &bucket, &names).await.map(json_bytes)
            }
            ObjectAddress::Sign(path) => self.sign(path, body).await,
            ObjectAddress::SignMany(bucket) => self.sign_many(&bucket, body).await,
            ObjectAddress::GetSigned(path) => self.get_signed(path).await,
            ObjectAddress::SignUpload(path) => self.sign_upload(path).await,
            ObjectAddress::UploadSigned(path) => self.upload_signed(path, body).await,
        }
    }

    /// Returns the name of the operation that reads an object.
    fn read_operation(&self) -> &'static str {
        if self.parts.method == http::Method::HEAD { HEAD_OPERATION } else { "storage.object.get_authenticated" }
    }

    async fn get(&self, operation: Operation, rule: ReadRule, path: ObjectPath) -> Result<Response> {
        let found = download::find(&operation, rule, &path).await?;
        let caching = if rule == ReadRule::Public || found.is_public { Caching::Stored } else { Caching::Private };
        self.deliver(&operation, rule, &path, found.row, caching).await
    }

    async fn info(&self, operation: Operation, rule: ReadRule, path: ObjectPath) -> Result<Response> {
        let found = download::find(&operation, rule, &path).await?;
        let row = &found.row;
        let caching = if found.is_public { Caching::Stored } else { Caching::Private };
        let metadata = &row.metadata;
        let info = ObjectInfo {
            id: &row.id,
            name: &path.name,
            version: row.version.as_deref().unwrap_or_default(),
            bucket_id: &path.bucket,
            size: metadata.size(),
            content_type: metadata.mimetype(),
            cache_control: metadata.cache_control(),
            etag: metadata.etag(),
            metadata: row.user_metadata.as_deref(),
            last_modified: row.updated_at.as_deref(),
            created_at: row.created_at.as_deref(),
        };
        let mut response = json_bytes(serde_json::to_vec(&info).map_err(|_| StorageError::Internal)?);
        let described = describe(row, caching, None);
        for name in [http::header::ETAG, http::header::LAST_MODIFIED, http::header::CACHE_CONTROL, http::header::VARY] {
            if let Some(value) = described.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        self.echo_transformation(response.headers_mut());
        Ok(response)
    }

    async fn list(&self, bucket: String, body: Body) -> Result<Response> {
        let operation = self.operation("storage.object.list")?;
        let fields = self.fields(&operation, body).await?;
        let columns = ["name", "updated_at", "created_at", "last_accessed_at"];
        let (column, descending) = sort_of(&fields, &columns, true)?;
        let request = ListRequest {
            bucket,
            prefix: fields.required_text("prefix")?,
            limit: fields.number("limit", 1)?.unwrap_or(100).unsigned_abs(),
            offset: fields.number("offset", 0)?.unwrap_or(0).unsigned_abs(),
            search: fields.text("search")?.unwrap_or_default(),
            column: column.unwrap_or("name").to_owned(),
            descending,
        };
        list::list(&operation, &request).await.map(json_bytes)
    }

    async fn list_page(&self, bucket: String, body: Body) -> Result<Response> {
        let operation = self.operation("storage.object.list_v2")?;
        let fields = self.fields(&operation, body).await?;
        let (column, descending) = sort_of(&fields, &["name", "updated_at", "created_at"], false)?;
        let by_folder = fields.flag("with_delimiter")?.unwrap_or_default();
        let cursor = fields.text("cursor")?.filter(|cursor| !cursor.is_empty());
        let request = PageRequest {
            bucket,
            prefix: fields.text("prefix")?.unwrap_or_default(),
            limit: fields.number("limit", 1)?.unwrap_or(1000).unsigned_abs(),
            delimiter: by_folder.then(|| "/".to_owned()),
            order: column.and_then(PageOrder::parse).unwrap_or_default(),
            descending,
            cursor: cursor.map(|cursor| PageCursor::decode(&cursor)).transpose()?,
        };
        let page = list_page::page(&operation, request).await?;
        Ok(json_response(&page.to_json(by_folder)))
    }

    async fn relocate(&self, body: Body) -> Result<Response> {
        let operation = self.operation("storage.object.move")?;
        let fields = self.fields(&operation, body).await?;
        let (source, destination) = source_and_destination(&fields)?;
        relocate::relocate(&operation, source, destination).await?;
        Ok(message("Successfully moved"))
    }

    async fn copy(&self, body: Body) -> Result<Response> {
        let operation = self.operation("storage.object.copy")?;
        let fields = self.fields(&operation, body).await?;
        let (source, destination) = source_and_destination(&fields)?;
        let key = format!("{}/{}", destination.bucket, destination.name);
        let metadata = if fields.flag("copyMetadata")?.unwrap_or(true) {
            None
        } else {
            let given = match fields.object("metadata")? {
                Some(given) => given.read(|given| Ok((given.text("cacheControl")?, given.text("mimetype")?)))?,
                None => (None, None),
            };
            Some(CopyMetadata { cache_control: given.0, mimetype: given.1, user_metadata: self.user_metadata()? })
        };
        let conditions = Conditions::default();
        let upsert = self.upserts();
        let request = CopyRequest { source, destination, upsert, metadata, conditions, replaced_etag: None };
        let row: Value = parse(&copy::copy(&operation, request).await?)?;
        let mut response = json!({ "Key": key, "Id": row["id"] });
        if let (Value::Object(response), Value::Object(row)) = (&mut response, row) {
            response.extend(row);
        }
        Ok(json_response(&response))
    }
}

/// Reads `sortBy`. Returns the column, and true for a descending order.
fn sort_of(fields: &JsonFields, columns: &[&'static str], needs_column: bool) -> Result<(Option<&'static str>, bool)> {
    let Some(sort) = fields.object("sortBy")? else { return Ok((None, false)) };
    sort.read(|sort| {
        let column = sort.choice("column", columns)?;
        if needs_column && column.is_none() {
            return Err(StorageError::Schema(" must have required property 'column'".into()));
        }
        Ok((column, sort.choice("order", &["asc", "desc"])? == Some("desc")))
    })
}

fn source_and_destination(fields: &JsonFields) -> Result<(ObjectPath, ObjectPath)> {
    let bucket = fields.required_text("bucketId")?;
    let source = fields.required_text("sourceKey")?;
    let destination = fields.required_text("destinationKey")?;
    let other = fields.text("destinationBucket")?.filter(|bucket| !bucket.is_empty());
    if bucket.contains('\0') || source.contains('\0') {
        return Err(StorageError::NoSuchKey);
    }
    Ok((
        ObjectPath { bucket: bucket.clone(), name: source },
        ObjectPath { bucket: other.unwrap_or(bucket), name: destination },
    ))
}
