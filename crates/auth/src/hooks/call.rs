//! One call of a hook.

use std::net::IpAddr;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::model::JsonObject;
use crate::settings::HookPoint;

/// One call of a hook.
#[derive(Clone)]
pub(crate) struct HookCall {
    pub(super) point: HookPoint,
    /// The members of the input, without `metadata`.
    members: JsonObject,
    /// The part of the input that must be the same when the transaction runs again.
    pub(super) question: Value,
    ip: Option<IpAddr>,
    /// A failure is logged and does not fail the operation.
    pub(super) is_optional: bool,
}

/// The input may contain codes.
impl std::fmt::Debug for HookCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookCall").field("point", &self.point).finish_non_exhaustive()
    }
}

impl HookCall {
    /// Makes a call for the client at `ip`, whose whole input must be the same when the transaction
    /// runs again.
    pub(super) fn new(ip: Option<IpAddr>, point: HookPoint, members: JsonObject) -> Self {
        let question = Value::Object(members.clone());
        Self { point, members, question, ip, is_optional: false }
    }

    /// Returns the call with another part of the input as its question.
    pub(super) fn asking(self, question: Value) -> Self {
        Self { question, ..self }
    }

    /// Returns the call as one whose failure does not fail the operation.
    pub(super) fn optional(self) -> Self {
        Self { is_optional: true, ..self }
    }

    /// Returns the input of the hook at a time.
    pub(super) fn input(&self, now: OffsetDateTime) -> String {
        let mut metadata = JsonObject::from_iter([
            ("uuid".to_owned(), portico_base::random::uuid().to_string().into()),
            ("time".to_owned(), now.format(&Rfc3339).unwrap_or_default().into()),
            ("name".to_owned(), self.point.name().into()),
        ]);
        if let Some(ip) = self.ip {
            metadata.insert("ip_address".into(), ip.to_string().into());
        }
        let mut input = JsonObject::from_iter([("metadata".to_owned(), metadata.into())]);
        input.extend(self.members.clone());
        Value::Object(input).to_string()
    }
}
