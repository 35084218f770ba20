//! A new factor before it is stored: the request, and the parts that depend on its type.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The body of the request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EnrollBody {
    pub(super) factor_type: String,
    pub(super) friendly_name: String,
    pub(super) issuer: String,
    pub(super) phone: String,
}

/// The parts of a new factor that depend on its type.
#[derive(Default)]
pub(super) struct FactorDraft {
    /// The stored form of the secret of an authenticator app.
    pub(super) secret: Option<String>,
    /// The number of a phone.
    pub(super) phone: Option<String>,
    /// The fields that it adds to the response.
    pub(super) response: Map<String, Value>,
}
