//! Facts about a response for the access log, from services that know more than its status: each is
//! an extension of the response.

/// The pattern of the path that responded (`/object/{bucket}/{name}`), never the path itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedRoute(pub &'static str);

/// The code of the error that the response has, where its status says little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedErrorCode(pub &'static str);
