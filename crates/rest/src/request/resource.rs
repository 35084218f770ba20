//! The resource, the action and the schema of a request: path, method and profile headers.

use http::{HeaderMap, HeaderName, Method};
use percent_encoding::percent_decode_str;

use crate::config::{OpenApiMode, RestConfig};
use crate::error::RestError;
use crate::schema::{Relation, Routine, Volatility};

/// The resource at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The OpenAPI document, or the function that responds instead.
    Root,
    /// A table, or another relation that can be read like one.
    Relation(String),
    /// A function.
    Function(String),
}

impl Resource {
    /// Reads a path without the prefix of the service.
    pub fn of(path: &str, config: &RestConfig) -> Result<Self, RestError> {
        let mut segments = Vec::with_capacity(3);
        for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
            segments.push(percent_decode_str(segment).decode_utf8().map_err(|_| RestError::Path)?);
        }
        match segments.as_slice() {
            [only] if only.is_empty() => match config.openapi_mode {
                OpenApiMode::Disabled if config.root_spec.is_none() => Err(RestError::RootDisabled),
                _ => Ok(Self::Root),
            },
            [name] => Ok(Self::Relation(name.to_string())),
            [rpc, name] if rpc == "rpc" && !name.is_empty() => Ok(Self::Function(name.to_string())),
            _ => Err(RestError::Path),
        }
    }
}

/// The action on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestAction {
    /// GET, or HEAD without the body.
    Read { body: bool },
    /// POST, PATCH, PUT, DELETE on a relation.
    Write(WriteAction),
    /// POST on a function.
    Call,
    /// OPTIONS
    Options,
}

impl RequestAction {
    /// Returns the action of a method on a resource.
    pub fn of(resource: &Resource, method: &Method) -> Result<Self, RestError> {
        let is_function = matches!(resource, Resource::Function(_));
        match (resource, method.as_str()) {
            (_, "GET") => Ok(Self::Read { body: true }),
            (_, "HEAD") => Ok(Self::Read { body: false }),
            (_, "OPTIONS") => Ok(Self::Options),
            (Resource::Function(_), "POST") => Ok(Self::Call),
            (Resource::Relation(_), "POST") => Ok(Self::Write(WriteAction::Insert)),
            (Resource::Relation(_), "PATCH") => Ok(Self::Write(WriteAction::Update)),
            (Resource::Relation(_), "PUT") => Ok(Self::Write(WriteAction::Put)),
            (Resource::Relation(_), "DELETE") => Ok(Self::Write(WriteAction::Delete)),
            (_, method) if is_function => Err(RestError::MethodOnFunction(method.to_owned())),
            (_, method) => Err(RestError::Method(method.to_owned())),
        }
    }
}

/// The change of a relation's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAction {
    /// POST
    Insert,
    /// PATCH
    Update,
    /// PUT
    Put,
    /// DELETE
    Delete,
}

const ACCEPT_PROFILE: HeaderName = HeaderName::from_static("accept-profile");
const CONTENT_PROFILE: HeaderName = HeaderName::from_static("content-profile");

/// The schema that a request selects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaProfile<'a> {
    /// Its name.
    pub schema: &'a str,
    /// The response names the schema, because the request does or because several are exposed.
    pub is_shown: bool,
}

impl<'a> SchemaProfile<'a> {
    /// Reads the header that applies to the method.
    pub fn of(headers: &HeaderMap, method: &Method, config: &'a RestConfig) -> Result<Self, RestError> {
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
        let name = if reads { ACCEPT_PROFILE } else { CONTENT_PROFILE };
        let several = config.schemas.len() > 1;
        let Some(wanted) = headers.get(name) else {
            let schema = config.schemas.first().map_or("public", String::as_str);
            return Ok(Self { schema, is_shown: several });
        };
        let wanted = String::from_utf8_lossy(wanted.as_bytes());
        match config.schemas.iter().find(|schema| **schema == *wanted) {
            Some(schema) => Ok(Self { schema, is_shown: true }),
            None => Err(RestError::Schema { name: wanted.into_owned(), exposed: config.schemas.clone() }),
        }
    }
}

/// Returns `Allow` for a relation.
pub(crate) fn allow_relation(relation: &Relation) -> String {
    let mut allow = String::from("OPTIONS,GET,HEAD");
    let mut add = |is_possible: bool, method: &str| {
        if is_possible {
            allow.push(',');
            allow.push_str(method);
        }
    };
    add(relation.insertable, "POST");
    add(relation.insertable && relation.updatable && !relation.primary_key.is_empty(), "PUT");
    add(relation.updatable, "PATCH");
    add(relation.deletable, "DELETE");
    allow
}

/// Returns `Allow` for a function.
pub(crate) fn allow_function(routine: &Routine) -> &'static str {
    match routine.volatility {
        Volatility::Volatile => "OPTIONS,POST",
        Volatility::Stable | Volatility::Immutable => "OPTIONS,GET,HEAD,POST",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_resource() {
        let config = RestConfig::default();
        let resource = |path: &str| Resource::of(path, &config);
        assert_eq!(resource("/"), Ok(Resource::Root));
        assert_eq!(resource("/items"), Ok(Resource::Relation("items".into())));
        assert_eq!(resource("/a%20b%2Fc"), Ok(Resource::Relation("a b/c".into())));
        assert_eq!(resource("/rpc"), Ok(Resource::Relation("rpc".into())));
        assert_eq!(resource("/rpc/f"), Ok(Resource::Function("f".into())));
        for path in ["/items/", "/rpc/f/x", "/rpc/", "/a/b", "/%ff"] {
            assert_eq!(resource(path), Err(RestError::Path), "{path}");
        }
        let disabled = RestConfig { openapi_mode: OpenApiMode::Disabled, ..RestConfig::default() };
        assert_eq!(Resource::of("/", &disabled), Err(RestError::RootDisabled));
    }

    #[test]
    fn unsupported_methods_have_an_error_for_relations_and_one_for_functions() {
        let (relation, function) = (Resource::Relation("a".into()), Resource::Function("f".into()));
        assert_eq!(RequestAction::of(&relation, &Method::TRACE), Err(RestError::Method("TRACE".into())));
        assert_eq!(RequestAction::of(&function, &Method::PUT), Err(RestError::MethodOnFunction("PUT".into())));
        assert_eq!(RequestAction::of(&Resource::Root, &Method::POST), Err(RestError::Method("POST".into())));
        assert_eq!(RequestAction::of(&function, &Method::POST), Ok(RequestAction::Call));
        assert_eq!(RequestAction::of(&relation, &Method::PUT), Ok(RequestAction::Write(WriteAction::Put)));
    }

    #[test]
    fn the_method_decides_which_profile_header_applies() {
        let config = RestConfig { schemas: vec!["a".into(), "b".into()], ..RestConfig::default() };
        let mut headers = HeaderMap::new();
        headers.insert("accept-profile", "b".parse().unwrap());
        assert_eq!(SchemaProfile::of(&headers, &Method::GET, &config).unwrap().schema, "b");
        assert_eq!(SchemaProfile::of(&headers, &Method::POST, &config).unwrap().schema, "a");
        headers.insert("content-profile", "c".parse().unwrap());
        let error = SchemaProfile::of(&headers, &Method::POST, &config).unwrap_err();
        assert_eq!(error.hint().unwrap(), "Only the following schemas are exposed: a, b");
        let one = RestConfig { schemas: vec!["a".into()], ..RestConfig::default() };
        assert!(!SchemaProfile::of(&HeaderMap::new(), &Method::GET, &one).unwrap().is_shown);
    }
}
