//! Objects as images: the content of a version to the renderer, and its results out of the cache
//! once the version is deleted.
//!
//! Permission is decided before, on each request.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use portico_images::{RenderError, RenderSource, RenderedImage, Renderer, RequestedFormat, Transformation};

use crate::backend::{BackendError, VersionKey};
use crate::error::Result;
use crate::model::ObjectRow;
use crate::name::ObjectPath;
use crate::object::download::{self, ReadRule};
use crate::operation::Operation;
use crate::service::StorageService;

/// The requested form of an image.
pub(crate) struct ImageRequest {
    pub transformation: Transformation,
    pub format: RequestedFormat,
}

/// Renders an object that was found, which has this row. Where it is replaced at that moment, the
/// new version is rendered; returns the row of the rendered one.
///
/// # Errors
/// [`StorageError::Render`](crate::error::StorageError::Render), and those of
/// [`download::find`] for an object that is deleted at that moment.
pub(crate) async fn render(
    renderer: &Renderer,
    operation: &Operation,
    rule: ReadRule,
    path: &ObjectPath,
    row: ObjectRow,
    request: &ImageRequest,
) -> Result<(ObjectRow, RenderedImage)> {
    match render_version(renderer, operation, path, &row, request).await {
        Ok(image) => Ok((row, image)),
        Err(RenderError::SourceUnavailable) => {
            let row = download::find(operation, rule, path).await?.row;
            let image = render_version(renderer, operation, path, &row, request).await?;
            Ok((row, image))
        }
        Err(error) => Err(error.into()),
    }
}

/// Renders the version of an object that its row names.
async fn render_version(
    renderer: &Renderer,
    operation: &Operation,
    path: &ObjectPath,
    row: &ObjectRow,
    request: &ImageRequest,
) -> std::result::Result<RenderedImage, RenderError> {
    let key = VersionKey::new(&path.bucket, &path.name, row.version.as_deref());
    let renderer = renderer.for_client(&operation.requester());
    // Content without a version is replaced in place, which its ETag shows
    let source =
        RenderSource::new(operation.service.backend.path(&key)).revision(row.metadata.etag().unwrap_or_default());
    let operation = operation.clone();
    let load = move |max_bytes| async move { read_source(&operation.service, &key, max_bytes).await };
    renderer.render(&source, &request.transformation, request.format, load).await
}

/// Reads the content of a version that is at most `max_bytes` long.
async fn read_source(
    service: &StorageService,
    key: &VersionKey,
    max_bytes: usize,
) -> std::result::Result<Bytes, RenderError> {
    let content = service.backend.get(key, None).await.map_err(|error| match error {
        BackendError::NotFound => RenderError::SourceUnavailable,
        error => {
            tracing::error!(error = %error, "the source of an image could not be read");
            RenderError::Internal
        }
    })?;
    if content.size > max_bytes as u64 {
        return Err(RenderError::FileTooLarge);
    }
    let whole = Limited::new(content.body, max_bytes).collect().await.map_err(|error| {
        tracing::error!(error = %error, "the source of an image could not be read");
        RenderError::SourceUnavailable
    })?;
    Ok(whole.to_bytes())
}
