//! Routes below `/render/image`: objects as images of another size or format.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use portico_images::{OutputFormat, ParameterError, RenderedImage, Renderer, RequestedFormat, Transformation};

use super::address::RenderAddress;
use super::deliver::not_modified;
use super::fields::JsonFields;
use crate::error::{Result, StorageError};
use crate::http::call::StorageCall;
use crate::http::object_headers::{Caching, SANDBOX, describe};
use crate::model::ObjectRow;
use crate::object::download::{self, ReadRule};
use crate::rendering::{self, ImageRequest};
use crate::sign::{self, UrlScope};

/// Repeats the parameters in the words of the processor of the reference server.
const X_TRANSFORMATIONS: HeaderName = HeaderName::from_static("x-transformations");

impl StorageCall<'_> {
    /// Sends an object as an image. Permission is decided here, on each request, before anything
    /// that was rendered earlier is read.
    pub(super) async fn render(&self, address: RenderAddress) -> Result<Response> {
        let renderer = self.renderer()?;
        let (operation, rule, path, caching, transformation) = match address {
            RenderAddress::Public(path) => {
                let transformation = self.queried_transformation()?;
                let operation = self.undescribed_operation("storage.render.image_public");
                (operation, ReadRule::Public, path, Caching::Stored, transformation)
            }
            RenderAddress::Authenticated(path) => {
                let operation = self.operation("storage.render.image_authenticated")?;
                (operation, ReadRule::Policies, path, Caching::Private, self.queried_transformation()?)
            }
            RenderAddress::Signed(path) => {
                let token = sign::verify(self.service, &self.token()?, &path, UrlScope::Download)?;
                let operation = self.undescribed_operation("storage.render.image_sign");
                let transformation = token.transformation.unwrap_or_default();
                (operation, ReadRule::SignedUrl, path, Caching::Until(token.expires_at), transformation)
            }
        };
        let avif = self.service.settings.images.as_ref().is_some_and(|images| images.negotiate_avif);
        let format = RequestedFormat::negotiate(transformation.format(), self.header("accept"), avif);
        let request = ImageRequest { transformation, format };
        let row = download::find(&operation, rule, &path).await?.row;
        if self.has_current(&row) {
            return Ok(not_modified(&self.image_headers(&row, caching, &request.transformation)));
        }
        let (row, image) = rendering::render(renderer, &operation, rule, &path, row, &request).await?;
        Ok(self.image_response(&row, caching, &request.transformation, image))
    }

    /// Returns the renderer.
    ///
    /// # Errors
    /// [`StorageError::NoRoute`] where images are switched off.
    fn renderer(&self) -> Result<&Renderer> {
        let (method, path) = (&self.parts.method, self.parts.uri.path());
        self.service.renderer.as_ref().ok_or_else(|| StorageError::NoRoute(format!("{method}:{path}")))
    }

    fn queried_transformation(&self) -> Result<Transformation> {
        transformation_of(&JsonFields::of_query(self.parts.uri.query()))
    }

    /// Repeats the parameters of an image in the response about an object, where images are
    /// rendered and the query has valid ones.
    pub(super) fn echo_transformation(&self, headers: &mut HeaderMap) {
        let query = JsonFields::of_query(self.parts.uri.query());
        let is_given = Transformation::FIELDS.iter().any(|name| query.get(name).is_some());
        if self.service.renderer.is_some()
            && is_given
            && let Ok(transformation) = transformation_of(&query)
        {
            insert_transformation(headers, &transformation);
        }
    }

    /// Returns the headers that do not depend on the format. The ETag is that of the object, for
    /// all of its images: what is rendered from a version does not change.
    fn image_headers(&self, row: &ObjectRow, caching: Caching, transformation: &Transformation) -> HeaderMap {
        let mut headers = describe(row, caching, self.query("download").as_deref());
        headers.remove(header::ACCEPT_RANGES);
        headers.remove(header::CONTENT_SECURITY_POLICY);
        headers.insert("x-robots-tag", HeaderValue::from_static("none"));
        insert_transformation(&mut headers, transformation);
        if transformation.format().is_none() {
            headers.append(header::VARY, HeaderValue::from_static("Accept"));
        }
        headers
    }

    fn image_response(
        &self,
        row: &ObjectRow,
        caching: Caching,
        transformation: &Transformation,
        image: RenderedImage,
    ) -> Response {
        let mut headers = self.image_headers(row, caching, transformation);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(image.format.content_type()));
        if image.format == OutputFormat::Svg {
            headers.insert(header::CONTENT_SECURITY_POLICY, SANDBOX);
        }
        headers.insert(header::CONTENT_LENGTH, image.bytes.len().into());
        let mut response = Response::new(Body::from(image.bytes));
        *response.headers_mut() = headers;
        response
    }
}

fn insert_transformation(headers: &mut HeaderMap, transformation: &Transformation) {
    if let Ok(value) = HeaderValue::try_from(transformation.to_header()) {
        headers.insert(X_TRANSFORMATIONS, value);
    }
}

/// Parses the parameters of an image in a query or a body.
///
/// # Errors
/// [`StorageError::Schema`] and [`StorageError::InvalidParameter`].
pub(super) fn transformation_of(fields: &JsonFields) -> Result<Transformation> {
    let texts = Transformation::FIELDS.map(|name| fields.text(name).map(|text| (name, text)));
    let texts = texts.into_iter().collect::<Result<Vec<_>>>()?;
    let value = |name: &str| texts.iter().find(|(field, _)| *field == name).and_then(|(_, text)| text.as_deref());
    Transformation::parse(value).map_err(|error| match error {
        ParameterError::Schema { field, problem } => fields.invalid(field, problem),
        ParameterError::FocalPoint => StorageError::InvalidParameter(error.to_string()),
    })
}
