//! The claims that a hook returns for an access token.

use serde_json::Value;

use crate::model::JsonObject;

/// The type of a claim.
#[derive(Debug, Clone, Copy)]
enum ClaimType {
    Text,
    Integer,
    Boolean,
    Object,
    TextOrList,
    /// Texts or objects.
    Methods,
}

const REQUIRED: [(&str, ClaimType); 10] = [
    ("aud", ClaimType::TextOrList),
    ("exp", ClaimType::Integer),
    ("iat", ClaimType::Integer),
    ("sub", ClaimType::Text),
    ("email", ClaimType::Text),
    ("phone", ClaimType::Text),
    ("role", ClaimType::Text),
    ("aal", ClaimType::Text),
    ("session_id", ClaimType::Text),
    ("is_anonymous", ClaimType::Boolean),
];
const OPTIONAL: [(&str, ClaimType); 7] = [
    ("jti", ClaimType::Text),
    ("iss", ClaimType::Text),
    ("nbf", ClaimType::Integer),
    ("app_metadata", ClaimType::Object),
    ("user_metadata", ClaimType::Object),
    ("amr", ClaimType::Methods),
    ("client_id", ClaimType::Text),
];

impl ClaimType {
    fn admits(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Integer => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
            Self::Boolean => value.is_boolean(),
            Self::Object => value.is_object(),
            Self::TextOrList => value.is_string() || value.is_array(),
            Self::Methods => {
                value.as_array().is_some_and(|methods| methods.iter().all(|m| m.is_string() || m.is_object()))
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Object => "object",
            Self::TextOrList => "string/array",
            Self::Methods => "array",
        }
    }
}

/// Returns the name of a value's type in JSON Schema.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Checks that the claims have what clients and policies need.
///
/// # Errors
/// One line for each violation.
pub(super) fn check(claims: &JsonObject) -> Result<(), String> {
    let missing = REQUIRED.iter().filter(|(name, _)| !claims.contains_key(*name));
    let missing = missing.map(|(name, _)| format!("- (root): {name} is required"));
    let wrong = REQUIRED.iter().chain(&OPTIONAL).filter_map(|(name, claim_type)| {
        let value = claims.get(*name).filter(|value| !claim_type.admits(value))?;
        Some(format!("- {name}: Invalid type. Expected: {}, given: {}", claim_type.name(), type_of(value)))
    });
    let violations: Vec<String> = missing.chain(wrong).collect();
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claims() -> JsonObject {
        let claims = json!({"aud": "authenticated", "exp": 2, "iat": 1, "sub": "x", "email": "", "phone": "",
            "role": "authenticated", "aal": "aal1", "session_id": "y", "is_anonymous": false});
        serde_json::from_value(claims).unwrap()
    }

    #[test]
    fn further_claims_and_lists_of_audiences_are_accepted() {
        let mut claims = claims();
        claims.insert("tenant".into(), json!({"name": "acme"}));
        claims.insert("aud".into(), json!(["a", "b"]));
        claims.insert("amr".into(), json!(["password", {"method": "totp"}]));
        assert_eq!(check(&claims), Ok(()));
    }

    #[test]
    fn each_violation_is_named() {
        let mut claims = claims();
        claims.shift_remove("sub");
        claims.insert("exp".into(), json!("soon"));
        claims.insert("app_metadata".into(), json!([]));
        let expected = "- (root): sub is required\n- exp: Invalid type. Expected: integer, given: string\n\
                        - app_metadata: Invalid type. Expected: object, given: array";
        assert_eq!(check(&claims).unwrap_err(), expected);
    }
}
