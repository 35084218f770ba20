//! Routes that make and use signed URLs.

use axum::body::Body;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::fields::JsonFields;
use super::render::transformation_of;
use crate::error::{Result, StorageError};
use crate::http::call::StorageCall;
use crate::http::object_headers::Caching;
use crate::http::response::json_response;
use crate::name::ObjectPath;
use crate::object::download::{self, ReadRule};
use crate::object::upload::{self, UploadAuthority};
use crate::sign::{self, UrlScope};

/// The most URLs that one request signs.
const MAX_SIGNED: usize = 1000;

impl StorageCall<'_> {
    /// Signs the URL of one object.
    pub(super) async fn sign(&self, path: ObjectPath, body: Body) -> Result<Response> {
        let operation = self.operation("storage.object.sign")?;
        let fields = self.fields(&operation, body).await?;
        let lifetime = fields.required_number("expiresIn", 1)?;
        let transformation = match fields.object("transform")? {
            Some(transform) => Some(transform.read(transformation_of)?),
            None => None,
        };
        download::find(&operation, ReadRule::Policies, &path).await?;
        // Without a renderer, the URL leads to the object as it is
        let transformation = transformation.filter(|_| self.service.renderer.is_some());
        let Some(transformation) = transformation else {
            let token = sign::sign(self.service, &path, UrlScope::Download, lifetime, Map::new())?;
            return Ok(json_response(&json!({ "signedURL": url(&path, &token) })));
        };
        let mut claims = Map::from_iter([("transformations".to_owned(), transformation.to_claim().into())]);
        if let Some(format) = transformation.format_name() {
            claims.insert("format".into(), format.into());
        }
        let token = sign::sign(self.service, &path, UrlScope::Download, lifetime, claims)?;
        let url = format!("/render/image/sign/{}/{}?token={token}", path.bucket, path.name);
        Ok(json_response(&json!({ "signedURL": url })))
    }

    /// Signs the URLs of many objects of a bucket.
    pub(super) async fn sign_many(&self, bucket: &str, body: Body) -> Result<Response> {
        let operation = self.operation("storage.object.sign_many")?;
        let fields = self.fields(&operation, body).await?;
        let lifetime = fields.required_number("expiresIn", 1)?;
        let names = fields.required_texts("paths", MAX_SIGNED)?;
        let readable = sign::readable(&operation, bucket, &names).await?;
        let readable: std::collections::HashSet<&str> = readable.iter().map(String::as_str).collect();
        let mut signed = Vec::with_capacity(names.len());
        for name in &names {
            let path = ObjectPath { bucket: bucket.to_owned(), name: name.clone() };
            signed.push(if readable.contains(name.as_str()) {
                let token = sign::sign(self.service, &path, UrlScope::Download, lifetime, Map::new())?;
                json!({ "error": null, "path": name, "signedURL": url(&path, &token) })
            } else {
                let error = "Either the object does not exist or you do not have access to it";
                json!({ "error": error, "path": name, "signedURL": null })
            });
        }
        Ok(json_response(&signed.into()))
    }

    /// Sends an object to the holder of a signed URL.
    pub(super) async fn get_signed(&self, path: ObjectPath) -> Result<Response> {
        let token = sign::verify(self.service, &self.token()?, &path, UrlScope::Download)?;
        // The URL of a preview does not lead to the original
        if token.transformation.is_some() {
            return Err(StorageError::InvalidSignature("Invalid signature"));
        }
        let operation = self.undescribed_operation("storage.object.get_signed");
        let found = download::find(&operation, ReadRule::SignedUrl, &path).await?;
        self.deliver(&operation, ReadRule::SignedUrl, &path, found.row, Caching::Until(token.expires_at)).await
    }

    /// Signs the URL of an upload.
    pub(super) async fn sign_upload(&self, path: ObjectPath) -> Result<Response> {
        let operation = self.operation("storage.object.sign_upload_url")?;
        let upsert = self.upserts();
        upload::permit(&operation, &self.announced(path.clone(), upsert)?, UploadAuthority::Caller).await?;
        let mut claims = Map::from_iter([("upsert".to_owned(), Value::Bool(upsert))]);
        if let Some(owner) = &operation.caller()?.subject {
            claims.insert("owner".into(), owner.as_str().into());
        }
        let lifetime = i64::try_from(self.service.settings.upload_url_lifetime.as_secs()).unwrap_or(i64::MAX);
        let token = sign::sign(self.service, &path, UrlScope::Upload, lifetime, claims)?;
        let url = format!("/object/upload/sign/{}/{}?token={token}", path.bucket, path.name);
        Ok(json_response(&json!({ "url": url, "token": token })))
    }

    /// Stores the upload of the holder of a signed URL.
    pub(super) async fn upload_signed(&self, path: ObjectPath, body: Body) -> Result<Response> {
        let token = sign::verify(self.service, &self.token()?, &path, UrlScope::Upload)?;
        let operation = self.open_operation("storage.object.upload_signed");
        let key = format!("{}/{}", path.bucket, path.name);
        self.store(&operation, path, token.upsert, UploadAuthority::SignedUrl(token.owner), body).await?;
        Ok(json_response(&json!({ "Key": key })))
    }

    /// Returns the token in the query.
    ///
    /// # Errors
    /// When it is missing.
    pub(super) fn token(&self) -> Result<String> {
        let query = JsonFields::of_query(self.parts.uri.query());
        query.required_text("token")
    }
}

/// Returns the address of an object below the base of the service, without percent encoding.
fn url(path: &ObjectPath, token: &str) -> String {
    format!("/object/sign/{}/{}?token={token}", path.bucket, path.name)
}
