//! Routes below `/bucket`.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, header};
use serde_json::{Value, json};

use super::address::BucketAddress;
use super::fields::JsonFields;
use crate::bucket::{self, BucketChanges, BucketListRequest, NewBucket};
use crate::error::{Result, StorageError};
use crate::http::call::StorageCall;
use crate::http::response::{json_bytes, json_response, message};
use crate::limits::parse_size_limit;
use crate::operation::Actor;

impl StorageCall<'_> {
    pub(super) async fn bucket(&self, address: BucketAddress, body: Body) -> Result<Response> {
        match address {
            BucketAddress::Create => self.create_bucket(body).await,
            BucketAddress::List => {
                let operation = self.operation("storage.bucket.list")?;
                let mut request = list_request(&JsonFields::of_query(self.parts.uri.query()))?;
                request.has_type = permits_type(&self.parts.headers);
                bucket::list(&operation, &request).await.map(json_bytes)
            }
            BucketAddress::Get(id) => {
                let operation = self.operation("storage.bucket.get")?;
                bucket::get(&operation, Actor::Caller, &id).await.map(json_bytes)
            }
            BucketAddress::Update(id) => self.update_bucket(&id, body).await,
            BucketAddress::Delete(id) => {
                let operation = self.operation("storage.bucket.delete")?;
                bucket::delete_bucket(&operation, &id).await?;
                Ok(message("Successfully deleted"))
            }
            BucketAddress::Empty(id) => {
                self.require_service_role()?;
                bucket::empty(&self.operation("storage.bucket.empty")?, &id).await?;
                Ok(message("Empty bucket has been queued. Completion may take up to an hour."))
            }
        }
    }

    async fn create_bucket(&self, body: Body) -> Result<Response> {
        let operation = self.operation("storage.bucket.create")?;
        let fields = self.fields(&operation, body).await?;
        let name = fields.required_text("name")?;
        let id = fields.text("id")?.filter(|id| !id.is_empty()).unwrap_or_else(|| name.clone());
        if fields.choice("type", &["STANDARD", "ANALYTICS"])? == Some("ANALYTICS") {
            return Err(StorageError::FeatureNotEnabled("iceberg"));
        }
        let limits = self.limits(&fields)?;
        let new = NewBucket {
            id,
            name,
            public: fields.flag("public")?.unwrap_or_default(),
            file_size_limit: limits.file_size_limit.flatten(),
            allowed_mime_types: limits.allowed_mime_types.flatten(),
        };
        bucket::create(&operation, Actor::Caller, &new).await?;
        Ok(json_response(&json!({ "name": new.name })))
    }

    async fn update_bucket(&self, id: &str, body: Body) -> Result<Response> {
        let operation = self.operation("storage.bucket.update")?;
        let fields = self.fields(&operation, body).await?;
        let changes = BucketChanges { public: fields.flag("public")?, ..self.limits(&fields)? };
        let has_change =
            ["public", "file_size_limit", "allowed_mime_types"].iter().any(|name| fields.get(name).is_some());
        if !has_change {
            return Err(StorageError::Schema("body must match a schema in anyOf".into()));
        }
        bucket::update(&operation, Actor::Caller, id, &changes).await?;
        Ok(message("Successfully updated"))
    }

    /// Reads the limits of a bucket.
    fn limits(&self, fields: &JsonFields) -> Result<BucketChanges> {
        let global = self.service.settings.file_size_limit;
        let size: Option<&Value> = fields.get("file_size_limit");
        let types = fields.texts("allowed_mime_types")?;
        let without_empty = |types: Vec<String>| types.into_iter().filter(|entry| !entry.is_empty()).collect();
        Ok(BucketChanges {
            public: None,
            file_size_limit: size.map(|size| parse_size_limit(size, global)).transpose()?,
            allowed_mime_types: types.map(|types| types.map(without_empty)),
        })
    }
}

fn list_request(fields: &JsonFields) -> Result<BucketListRequest> {
    let columns = ["id", "name", "created_at", "updated_at"];
    let limit = fields.number("limit", 1)?;
    let offset = fields.number("offset", 0)?;
    Ok(BucketListRequest {
        limit: limit.map(i64::unsigned_abs),
        offset: offset.unwrap_or_default().unsigned_abs(),
        search: fields.text("search")?.unwrap_or_default(),
        column: fields.choice("sortColumn", &columns)?.unwrap_or("name"),
        descending: fields.choice("sortOrder", &["asc", "desc"])? == Some("desc"),
        has_type: true,
    })
}

/// Returns whether the client accepts buckets with a type: older Python clients reject fields that
/// they do not know.
fn permits_type(headers: &HeaderMap) -> bool {
    let is_older = |header: HeaderName, product: &str, since: [u32; 3]| {
        let value = headers.get(header).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let value = value.to_ascii_lowercase();
        let version = value.split_once(product).and_then(|(_, version)| version_numbers(version));
        version.is_some_and(|version| version < since)
    };
    !is_older(HeaderName::from_static("x-client-info"), "supabase-py/", [2, 18, 0])
        && !is_older(header::USER_AGENT, "supabase-py/storage3 v", [0, 12, 1])
}

/// Returns the numbers of a version such as `2.17.3` or `2.17.3rc1`.
fn version_numbers(version: &str) -> Option<[u32; 3]> {
    let mut numbers = version.splitn(3, '.').map(|text| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok()
    });
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn older_python_clients_get_no_type() {
        for (name, value, permits) in [
            ("x-client-info", "supabase-py/2.17.3", false),
            ("x-client-info", "supabase-py/2.18.0", true),
            ("x-client-info", "supabase-py/10.0.0", true),
            ("x-client-info", "supabase-js/2.1.0", true),
            ("x-client-info", "supabase-py/new", true),
            ("user-agent", "supabase-py/storage3 v0.12.0", false),
            ("user-agent", "supabase-py/storage3 v0.12.1", true),
            ("user-agent", "Supabase-Py/storage3 v0.11.3rc1", false),
            ("user-agent", "python-httpx/0.27.0", true),
        ] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
            assert_eq!(permits_type(&headers), permits, "{name}: {value}");
        }
    }
}
