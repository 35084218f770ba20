//! A request to the service, without its body.

use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;
use portico_base::ForwardedHeaders;
use portico_tokens::Caller;

use crate::error::{Result, StorageError};
use crate::identity::CallerIdentity;
use crate::operation::{Operation, RequestDescription};
use crate::service::StorageService;

/// A request without its body.
pub(crate) struct StorageCall<'a> {
    pub service: &'a Arc<StorageService>,
    pub parts: &'a Parts,
    pub forwarded: ForwardedHeaders<'a>,
}

impl StorageCall<'_> {
    /// Returns the identity of the caller.
    pub fn identity(&self) -> Result<CallerIdentity> {
        let anonymous = Caller::anonymous();
        let caller = self.parts.extensions.get::<Caller>().unwrap_or(&anonymous);
        let StorageService { keys, login, clock, .. } = &**self.service;
        CallerIdentity::of(caller, &self.parts.headers, keys, login, clock.now())
    }

    /// Returns the shared state of the service.
    pub fn service(&self) -> &Arc<StorageService> {
        self.service
    }

    /// Returns the method and the headers as the client has sent them.
    pub fn parts(&self) -> &Parts {
        self.parts
    }

    /// Returns the headers of the request with those of the gateway.
    pub fn forwarded_headers(&self) -> HeaderMap {
        self.forwarded.added_to(&self.parts.headers)
    }

    /// Describes the request as SQL sees it.
    pub fn description(&self) -> RequestDescription {
        let headers = self.forwarded_headers();
        let caller = self.parts.extensions.get::<Caller>();
        let authorization = caller.and_then(|caller| caller.authorization.as_ref());
        let description = RequestDescription::new(&self.parts.method, self.parts.uri.path(), &headers, authorization);
        description.with_client(&self.parts.extensions)
    }

    /// Returns an operation of a caller with a valid token.
    pub fn operation(&self, name: &'static str) -> Result<Operation> {
        Ok(Operation::new(self.service, name, Some(self.identity()?), self.description()))
    }

    /// Returns an operation of a caller whose token is missing or may be invalid.
    pub fn tolerant_operation(&self, name: &'static str) -> Operation {
        Operation::new(self.service, name, self.identity().ok(), self.description())
    }

    /// Returns an operation that looks at no token.
    pub fn open_operation(&self, name: &'static str) -> Operation {
        Operation::new(self.service, name, None, self.description())
    }

    /// Returns an operation that looks at no token and whose SQL does not see the request: it reads
    /// as the service only.
    pub fn undescribed_operation(&self, name: &'static str) -> Operation {
        Operation::new(self.service, name, None, RequestDescription::of_client(&self.parts.extensions))
    }

    /// Checks that the caller has the rights of the service.
    pub fn require_service_role(&self) -> Result<()> {
        match self.identity() {
            Ok(identity) if identity.is_service_role() => Ok(()),
            Ok(_) => Err(StorageError::ServiceRoleOnly("Access denied: Invalid role")),
            Err(_) => Err(StorageError::ServiceRoleOnly("Access denied: JWT is not authenticated")),
        }
    }

    /// Returns the first value of a query parameter.
    pub fn query(&self, name: &str) -> Option<String> {
        let query = self.parts.uri.query()?;
        form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// Returns a header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns true if the request asks to replace an existing object.
    pub fn upserts(&self) -> bool {
        self.header("x-upsert") == Some("true")
    }
}
