//! The stored form of a security key's credential.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::webauthn::{NewCredential, StoredCredential, descriptor};

/// A credential as `auth.mfa_factors.web_authn_credential` has it. The form is that of the
/// reference, so that keys of imported accounts can be used.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SecurityKey {
    id: Base64Bytes,
    /// The public key in COSE form.
    public_key: Base64Bytes,
    #[serde(default)]
    attestation_type: String,
    #[serde(default)]
    transport: Option<Vec<String>>,
    flags: KeyFlags,
    authenticator: KeyModel,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KeyFlags {
    user_present: bool,
    user_verified: bool,
    backup_eligible: bool,
    backup_state: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KeyModel {
    #[serde(rename = "AAGUID")]
    aaguid: Base64Bytes,
    sign_count: u32,
    clone_warning: bool,
    attachment: String,
}

/// Bytes that JSON carries as base64 with padding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Base64Bytes(Vec<u8>);

impl Serialize for Base64Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        STANDARD.decode(text).map(Self).map_err(|_| serde::de::Error::custom("not base64"))
    }
}

impl SecurityKey {
    /// Returns the stored form of a credential that a registration proved.
    pub fn new(credential: &NewCredential) -> Self {
        Self {
            id: Base64Bytes(credential.id.clone()),
            public_key: Base64Bytes(credential.public_key.clone()),
            attestation_type: credential.attestation_format.clone(),
            transport: Some(credential.transports.clone()),
            flags: KeyFlags {
                user_present: true,
                user_verified: credential.is_user_verified,
                backup_eligible: credential.is_backup_eligible,
                backup_state: credential.is_backed_up,
            },
            authenticator: KeyModel {
                aaguid: Base64Bytes(credential.aaguid.to_vec()),
                sign_count: credential.sign_count,
                ..KeyModel::default()
            },
        }
    }

    /// Reads the column. `None`: it has another form.
    pub fn from_column(column: Value) -> Option<Self> {
        serde_json::from_value(column).ok()
    }

    /// Returns the value of the column.
    pub fn to_column(&self) -> Value {
        json!(self)
    }

    /// Returns the id that the authenticator gave the credential.
    pub fn credential_id(&self) -> &[u8] {
        &self.id.0
    }

    /// Returns the model of the authenticator, if it is disclosed.
    pub fn aaguid(&self) -> Option<Uuid> {
        Uuid::from_slice(&self.authenticator.aaguid.0).ok().filter(|aaguid| !aaguid.is_nil())
    }

    /// Returns what verifies an assertion.
    pub fn stored(&self) -> StoredCredential<'_> {
        StoredCredential {
            id: &self.id.0,
            public_key: &self.public_key.0,
            is_backup_eligible: self.flags.backup_eligible,
        }
    }

    /// Returns the key as a member of options.
    pub fn descriptor(&self) -> Value {
        descriptor(&self.id.0, self.transport.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_reference_is_read_and_written() {
        let column = json!({
            "id": "AQID", "publicKey": "BAU=", "attestationType": "none", "transport": ["usb"],
            "flags": {"userPresent": true, "userVerified": false, "backupEligible": true, "backupState": false},
            "authenticator": {"AAGUID": "utpVZqeqQB+9lkVhmlUSDQ==", "signCount": 7, "cloneWarning": false, "attachment": ""},
        });
        let key = SecurityKey::from_column(column.clone()).unwrap();
        assert_eq!(key.credential_id(), [1, 2, 3]);
        assert_eq!(key.aaguid().unwrap().to_string(), "bada5566-a7aa-401f-bd96-45619a55120d");
        assert!(key.stored().is_backup_eligible && key.stored().public_key == [4, 5]);
        assert_eq!(key.to_column(), column);
        // Written by another version, with members that are not known here
        let sparse = json!({
            "id": "AQID", "publicKey": "BAU=", "transport": null, "flags": {}, "authenticator": {"AAGUID": null},
            "attestation": {"object": "AAAA"},
        });
        let key = SecurityKey::from_column(sparse).unwrap();
        assert!(key.aaguid().is_none() && !key.stored().is_backup_eligible);
        assert_eq!(key.descriptor(), json!({"type": "public-key", "id": "AQID"}));
        assert!(SecurityKey::from_column(json!({"id": "***"})).is_none());
    }
}
