//! A WebAuthn authenticator in software, together with the browser before it. Tests change what
//! they report.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ciborium::{Value as Cbor, cbor};
use portico_auth::AuthSettings;
use portico_auth::settings::RelyingPartySettings;
use portico_base::hash::sha256;
use serde_json::{Value, json};

/// The origin of the pages that use it.
pub const ORIGIN: &str = "https://app.example";
/// The relying party of the pages.
const RP_ID: &str = "app.example";

/// The person was present.
pub const PRESENT: u8 = 1;
/// The person was verified.
pub const VERIFIED: u8 = 1 << 2;
/// The credential may be copied, and is.
pub const BACKED_UP: u8 = 1 << 3 | 1 << 4;

/// Enables passkeys for [`ORIGIN`].
pub fn with_passkeys(settings: &mut AuthSettings) {
    settings.passkeys.enabled = true;
    settings.relying_party = Some(RelyingPartySettings {
        id: RP_ID.into(),
        display_name: "Acme".into(),
        origins: vec![ORIGIN.into()],
        any_port_of_localhost: false,
    });
}

/// An authenticator with one credential.
pub struct Authenticator {
    key: EcdsaKeyPair,
    pub credential_id: Vec<u8>,
    /// The user handle that it was given at the registration.
    pub user_handle: Option<String>,
    pub origin: String,
    pub rp_id: String,
    pub flags: u8,
    pub sign_count: u32,
    pub aaguid: [u8; 16],
    /// Replaces the challenge of the options.
    pub challenge: Option<String>,
    /// Replaces the type in the client data.
    pub ceremony: Option<&'static str>,
}

impl Authenticator {
    pub fn new() -> Self {
        Self {
            key: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap(),
            credential_id: portico_base::random::bytes::<32>().to_vec(),
            user_handle: None,
            origin: ORIGIN.into(),
            rp_id: RP_ID.into(),
            flags: PRESENT | VERIFIED,
            sign_count: 1,
            aaguid: [0; 16],
            challenge: None,
            ceremony: None,
        }
    }

    /// Answers registration options: `navigator.credentials.create`.
    pub fn create(&mut self, options: &Value) -> Value {
        self.user_handle = options["user"]["id"].as_str().map(str::to_owned);
        let client_data = self.client_data("webauthn.create", options);
        let object = cbor!({
            "fmt" => "none",
            "attStmt" => Cbor::Map(Vec::new()),
            "authData" => Cbor::Bytes(self.authenticator_data(true)),
        });
        let mut bytes = Vec::new();
        ciborium::into_writer(&object.unwrap(), &mut bytes).unwrap();
        self.credential(json!({
            "clientDataJSON": encoded(&client_data),
            "attestationObject": encoded(&bytes),
            "transports": ["internal", "hybrid"],
        }))
    }

    /// Answers assertion options: `navigator.credentials.get`.
    pub fn get(&self, options: &Value) -> Value {
        let client_data = self.client_data("webauthn.get", options);
        let data = self.authenticator_data(false);
        let message = [&data[..], &sha256(&client_data)].concat();
        let signature = self.key.sign(&SystemRandom::new(), &message).unwrap();
        let mut response = json!({
            "clientDataJSON": encoded(&client_data),
            "authenticatorData": encoded(&data),
            "signature": encoded(signature.as_ref()),
        });
        if let Some(handle) = &self.user_handle {
            response["userHandle"] = json!(handle);
        }
        self.credential(response)
    }

    fn credential(&self, response: Value) -> Value {
        let id = encoded(&self.credential_id);
        json!({
            "id": id,
            "rawId": id,
            "type": "public-key",
            "response": response,
            "clientExtensionResults": {},
            "authenticatorAttachment": "platform",
        })
    }

    fn client_data(&self, ceremony: &str, options: &Value) -> Vec<u8> {
        let challenge = self.challenge.as_deref().unwrap_or_else(|| options["challenge"].as_str().unwrap());
        json!({
            "type": self.ceremony.unwrap_or(ceremony),
            "challenge": challenge,
            "origin": self.origin,
            "crossOrigin": false,
        })
        .to_string()
        .into()
    }

    fn authenticator_data(&self, with_credential: bool) -> Vec<u8> {
        let mut data = sha256(self.rp_id.as_bytes()).to_vec();
        data.push(self.flags | if with_credential { 1 << 6 } else { 0 });
        data.extend(self.sign_count.to_be_bytes());
        if with_credential {
            data.extend(self.aaguid);
            data.extend(u16::try_from(self.credential_id.len()).unwrap().to_be_bytes());
            data.extend(&self.credential_id);
            let point = self.key.public_key().as_ref();
            let bytes = |bytes: &[u8]| Cbor::Bytes(bytes.to_vec());
            let key = cbor!({ 1 => 2, 3 => -7, -1 => 1, -2 => bytes(&point[1..33]), -3 => bytes(&point[33..]) });
            ciborium::into_writer(&key.unwrap(), &mut data).unwrap();
        }
        data
    }
}

/// Returns bytes as base64url.
pub fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
