//! What a request is about: path, schema and method (contract 2, 11; steps 3 to 5).

use http::{HeaderMap, HeaderName, Method};
use percent_encoding::percent_decode_str;

use crate::config::{Config, OpenApiMode};
use crate::error::RestError;
use crate::plan::WriteAction;
use crate::schema::{Relation, Routine, Volatility};

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resource {
    /// The description of everything, or the function that stands for it.
    Root,
    /// A table or what can be read like one.
    Relation(String),
    /// A function.
    Function(String),
}

impl Resource {
    /// Reads a path without the service's prefix.
    pub fn of(path: &str, config: &Config) -> Result<Self, RestError> {
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

/// What is done with it.
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
    /// What a method means for a resource.
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

const ACCEPT_PROFILE: HeaderName = HeaderName::from_static("accept-profile");
const CONTENT_PROFILE: HeaderName = HeaderName::from_static("content-profile");

/// The schema that a request chose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaProfile<'a> {
    /// Its name.
    pub schema: &'a str,
    /// The answer names it: the client did, or there are several.
    pub told: bool,
}

impl<'a> SchemaProfile<'a> {
    /// Reads the header that counts for the method.
    pub fn of(headers: &HeaderMap, method: &Method, config: &'a Config) -> Result<Self, RestError> {
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
        let name = if reads { ACCEPT_PROFILE } else { CONTENT_PROFILE };
        let several = config.schemas.len() > 1;
        let Some(wanted) = headers.get(name) else {
            let schema = config.schemas.first().map_or("public", String::as_str);
            return Ok(Self { schema, told: several });
        };
        let wanted = String::from_utf8_lossy(wanted.as_bytes());
        match config.schemas.iter().find(|schema| **schema == *wanted) {
            Some(schema) => Ok(Self { schema, told: true }),
            None => Err(RestError::Schema { name: wanted.into_owned(), exposed: config.schemas.clone() }),
        }
    }
}

/// `Allow` of a relation.
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

/// `Allow` of a function.
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
    fn paths_lead_to_their_resources() {
        let config = Config::default();
        let resource = |path: &str| Resource::of(path, &config);
        assert_eq!(resource("/"), Ok(Resource::Root));
        assert_eq!(resource("/items"), Ok(Resource::Relation("items".into())));
        assert_eq!(resource("/a%20b%2Fc"), Ok(Resource::Relation("a b/c".into())));
        assert_eq!(resource("/rpc"), Ok(Resource::Relation("rpc".into())));
        assert_eq!(resource("/rpc/f"), Ok(Resource::Function("f".into())));
        for path in ["/items/", "/rpc/f/x", "/rpc/", "/a/b", "/%ff"] {
            assert_eq!(resource(path), Err(RestError::Path), "{path}");
        }
        let disabled = Config { openapi_mode: OpenApiMode::Disabled, ..Config::default() };
        assert_eq!(Resource::of("/", &disabled), Err(RestError::RootDisabled));
    }

    #[test]
    fn methods_are_refused_in_the_words_of_their_resource() {
        let (relation, function) = (Resource::Relation("a".into()), Resource::Function("f".into()));
        assert_eq!(RequestAction::of(&relation, &Method::TRACE), Err(RestError::Method("TRACE".into())));
        assert_eq!(RequestAction::of(&function, &Method::PUT), Err(RestError::MethodOnFunction("PUT".into())));
        assert_eq!(RequestAction::of(&Resource::Root, &Method::POST), Err(RestError::Method("POST".into())));
        assert_eq!(RequestAction::of(&function, &Method::POST), Ok(RequestAction::Call));
        assert_eq!(RequestAction::of(&relation, &Method::PUT), Ok(RequestAction::Write(WriteAction::Put)));
    }

    #[test]
    fn the_profile_of_the_method_counts() {
        let config = Config { schemas: vec!["a".into(), "b".into()], ..Config::default() };
        let mut headers = HeaderMap::new();
        headers.insert("accept-profile", "b".parse().unwrap());
        assert_eq!(SchemaProfile::of(&headers, &Method::GET, &config).unwrap().schema, "b");
        assert_eq!(SchemaProfile::of(&headers, &Method::POST, &config).unwrap().schema, "a");
        headers.insert("content-profile", "c".parse().unwrap());
        let refusal = SchemaProfile::of(&headers, &Method::POST, &config).unwrap_err();
        assert_eq!(refusal.hint().unwrap(), "Only the following schemas are exposed: a, b");
        let one = Config { schemas: vec!["a".into()], ..Config::default() };
        assert!(!SchemaProfile::of(&HeaderMap::new(), &Method::GET, &one).unwrap().told);
    }
}
