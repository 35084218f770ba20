//! An authenticator of its own that registers and signs, and everything that may be wrong with it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    RSA_PKCS1_SHA256, RSA_PSS_SHA512, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ciborium::{Value, cbor};
use proptest::prelude::*;
use serde_json::json;

use super::origin::RelyingPartyOrigin;
use super::public_key::CoseAlgorithm;
use super::*;

const CHALLENGE: &[u8] = b"a challenge of thirty-two bytes.";

fn relying_party() -> RelyingParty {
    RelyingParty {
        id: "app.example".into(),
        name: "App".into(),
        origins: vec![RelyingPartyOrigin::parse("https://app.example")],
    }
}

enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair, CoseAlgorithm),
}

impl Key {
    fn p256() -> Self {
        Self::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    fn all() -> Vec<Self> {
        let rsa = || RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        vec![
            Self::p256(),
            Self::P384(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING).unwrap()),
            Self::Ed25519(Ed25519KeyPair::generate().unwrap()),
            Self::Rsa(rsa(), CoseAlgorithm::Rs256),
            Self::Rsa(rsa(), CoseAlgorithm::Ps512),
        ]
    }

    fn algorithm(&self) -> CoseAlgorithm {
        match self {
            Self::P256(_) => CoseAlgorithm::Es256,
            Self::P384(_) => CoseAlgorithm::Es384,
            Self::Ed25519(_) => CoseAlgorithm::EdDsa,
            Self::Rsa(_, algorithm) => *algorithm,
        }
    }

    fn cose(&self) -> Value {
        let bytes = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
        let number = self.algorithm().number();
        match self {
            Self::P256(pair) | Self::P384(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
                let curve = if number == -7 { 1 } else { 2 };
                cbor!({ 1 => 2, 3 => number, -1 => curve, -2 => bytes(x), -3 => bytes(y) }).unwrap()
            }
            Self::Ed25519(pair) => {
                cbor!({ 1 => 1, 3 => number, -1 => 6, -2 => bytes(pair.public_key().as_ref()) }).unwrap()
            }
            Self::Rsa(pair, _) => {
                // RSAPublicKey in DER: two lengths and a leading zero before a modulus of 256
                // bytes, and the exponent 65537 at the end
                let der = pair.public_key().as_ref();
                let (n, e) = (&der[9..265], &der[der.len() - 3..]);
                cbor!({ 1 => 3, 3 => number, -1 => bytes(n), -2 => bytes(e) }).unwrap()
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::P256(pair) | Self::P384(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Rsa(pair, algorithm) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let padding: &dyn aws_lc_rs::signature::RsaEncoding =
                    if *algorithm == CoseAlgorithm::Rs256 { &RSA_PKCS1_SHA256 } else { &RSA_PSS_SHA512 };
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }
}

/// An authenticator, and the browser before it. Tests change what it says.
struct Authenticator {
    key: Key,
    credential_id: Vec<u8>,
    rp_id: &'static str,
    origin: &'static str,
    challenge: Vec<u8>,
    flags: u8,
    sign_count: u32,
    ceremony: Option<&'static str>,
    format: &'static str,
    statement: Option<Value>,
    trailing: &'static [u8],
}

impl Authenticator {
    fn new(key: Key) -> Self {
        Self {
            key,
            credential_id: vec![5; 32],
            rp_id: "app.example",
            origin: "https://app.example",
            challenge: CHALLENGE.to_vec(),
            flags: 0b0000_0101,
            sign_count: 1,
            ceremony: None,
            format: "none",
            statement: None,
            trailing: b"",
        }
    }

    fn client_data(&self, ceremony: &str) -> Vec<u8> {
        let ceremony = self.ceremony.unwrap_or(ceremony);
        let challenge = URL_SAFE_NO_PAD.encode(&self.challenge);
        json!({ "type": ceremony, "challenge": challenge, "origin": self.origin, "crossOrigin": false })
            .to_string()
            .into()
    }

    fn data(&self, with_credential: bool) -> Vec<u8> {
        let mut data = sha256(self.rp_id.as_bytes()).to_vec();
        data.push(self.flags | if with_credential { 1 << 6 } else { 0 });
        data.extend(self.sign_count.to_be_bytes());
        if with_credential {
            data.extend([7; 16]);
            data.extend(u16::try_from(self.credential_id.len()).unwrap().to_be_bytes());
            data.extend(&self.credential_id);
            ciborium::into_writer(&self.key.cose(), &mut data).unwrap();
        }
        data.extend(self.trailing);
        data
    }

    fn registration_json(&self) -> serde_json::Value {
        let client_data = self.client_data("webauthn.create");
        let data = self.data(true);
        let statement = self.statement.clone().unwrap_or_else(|| match self.format {
            "packed" => {
                let signature = self.key.sign(&[&data[..], &sha256(&client_data)].concat());
                cbor!({ "alg" => self.key.algorithm().number(), "sig" => Value::Bytes(signature) }).unwrap()
            }
            _ => Value::Map(Vec::new()),
        });
        let object = cbor!({ "fmt" => self.format, "attStmt" => statement, "authData" => Value::Bytes(data) }).unwrap();
        let mut bytes = Vec::new();
        ciborium::into_writer(&object, &mut bytes).unwrap();
        let id = URL_SAFE_NO_PAD.encode(&self.credential_id);
        json!({
            "id": id, "rawId": id, "type": "public-key",
            "response": {
                "clientDataJSON": URL_SAFE_NO_PAD.encode(client_data),
                "attestationObject": URL_SAFE_NO_PAD.encode(bytes),
                "transports": ["usb", "internal", "unheard-of", "usb"],
            },
            "clientExtensionResults": {}, "authenticatorAttachment": "platform",
        })
    }

    fn register(&self) -> Result<NewCredential, CeremonyError> {
        let response = serde_json::from_value(self.registration_json()).unwrap();
        relying_party().verify_registration(CHALLENGE, &response)
    }

    fn assertion_json(&self) -> serde_json::Value {
        let client_data = self.client_data("webauthn.get");
        let data = self.data(false);
        let signature = self.key.sign(&[&data[..], &sha256(&client_data)].concat());
        let id = URL_SAFE_NO_PAD.encode(&self.credential_id);
        json!({
            "id": id, "rawId": id, "type": "public-key",
            "response": {
                "clientDataJSON": URL_SAFE_NO_PAD.encode(client_data),
                "authenticatorData": URL_SAFE_NO_PAD.encode(data),
                "signature": URL_SAFE_NO_PAD.encode(signature),
                "userHandle": URL_SAFE_NO_PAD.encode("a person"),
            },
        })
    }

    fn sign_in(&self, credential: &NewCredential) -> Result<Assertion, CeremonyError> {
        let response: AssertionResponse = serde_json::from_value(self.assertion_json()).unwrap();
        assert_eq!(response.user_handle(), Some(&b"a person"[..]));
        relying_party().verify_assertion(CHALLENGE, &response, &stored(credential))
    }
}

fn stored(credential: &NewCredential) -> StoredCredential<'_> {
    StoredCredential {
        id: &credential.id,
        public_key: &credential.public_key,
        is_backup_eligible: credential.is_backup_eligible,
    }
}

#[test]
fn keys_of_every_form_register_and_sign_in() {
    for key in Key::all() {
        let authenticator = Authenticator::new(key);
        let credential = authenticator.register().unwrap();
        assert_eq!(credential.id, vec![5; 32]);
        assert_eq!(credential.aaguid, [7; 16]);
        assert_eq!(credential.sign_count, 1);
        assert_eq!(credential.transports, ["internal", "usb"]);
        assert!(credential.is_user_verified && !credential.is_backed_up);
        let algorithm = PublicKey::parse(&credential.public_key).unwrap().algorithm();
        assert_eq!(algorithm, authenticator.key.algorithm());
        let assertion = authenticator.sign_in(&credential).unwrap();
        assert_eq!(assertion, Assertion { sign_count: 1, is_backed_up: false, is_user_verified: true });
    }
}

#[test]
fn self_attestation_is_verified() {
    for key in Key::all() {
        let authenticator = Authenticator { format: "packed", ..Authenticator::new(key) };
        assert_eq!(authenticator.register().unwrap().attestation_format, "packed");
    }
    let statement = |number: i64| cbor!({ "alg" => number, "sig" => Value::Bytes(vec![1; 70]) }).unwrap();
    for (format, statement) in [
        ("packed", statement(-7)),
        ("packed", statement(-257)),
        ("packed", Value::Map(Vec::new())),
        ("none", statement(-7)),
        ("android-key", statement(-7)),
        ("fido-u2f", statement(-7)),
        (
            "packed",
            cbor!({ "alg" => -7, "sig" => Value::Bytes(vec![1]), "x5c" => [Value::Bytes(vec![2; 40])] }).unwrap(),
        ),
    ] {
        let authenticator = Authenticator { format, statement: Some(statement), ..Authenticator::new(Key::p256()) };
        assert_eq!(authenticator.register(), Err(CeremonyError::Attestation), "{format}");
    }
    // Nothing is derived from a statement that is not verified
    let unverified = [
        ("tpm", cbor!({ "ver" => "2.0", "sig" => Value::Bytes(vec![0]) }).unwrap()),
        ("apple", cbor!({ "x5c" => Value::Array(vec![]) }).unwrap()),
        ("android-safetynet", cbor!({ "ver" => "0", "response" => Value::Bytes(vec![0]) }).unwrap()),
        ("compound", Value::Array(vec![])),
    ];
    for (format, statement) in unverified {
        let authenticator = Authenticator { format, statement: Some(statement), ..Authenticator::new(Key::p256()) };
        assert_eq!(authenticator.register().unwrap().attestation_format, "none", "{format}");
    }
    let unknown = Authenticator { format: "unknown", ..Authenticator::new(Key::p256()) };
    assert_eq!(unknown.register(), Err(CeremonyError::AttestationObject));
}

#[test]
fn each_wrong_circumstance_is_rejected_in_both_ceremonies() {
    type Change = fn(&mut Authenticator);
    let changes: [(Change, CeremonyError); 8] = [
        (|it| it.challenge = b"another".to_vec(), CeremonyError::Challenge),
        (|it| it.origin = "https://evil.example", CeremonyError::Origin),
        (|it| it.origin = "http://app.example", CeremonyError::Origin),
        (|it| it.rp_id = "evil.example", CeremonyError::RelyingParty),
        (|it| it.flags = 0b0000_0100, CeremonyError::UserPresence),
        (|it| it.flags = 0b0001_0001, CeremonyError::AuthenticatorData),
        (|it| it.trailing = b"\0", CeremonyError::AuthenticatorData),
        (|it| it.ceremony = Some("payment.get"), CeremonyError::Ceremony),
    ];
    let credential = Authenticator::new(Key::p256()).register().unwrap();
    for (change, error) in changes {
        let mut authenticator = Authenticator::new(Key::p256());
        change(&mut authenticator);
        assert_eq!(authenticator.register(), Err(error));
        assert_eq!(authenticator.sign_in(&credential), Err(error));
    }
}

#[test]
fn another_key_or_credential_does_not_sign_in() {
    let credential = Authenticator::new(Key::p256()).register().unwrap();
    assert_eq!(Authenticator::new(Key::p256()).sign_in(&credential), Err(CeremonyError::Signature));
    let other = Authenticator { credential_id: vec![6; 32], ..Authenticator::new(Key::p256()) };
    assert_eq!(other.sign_in(&credential), Err(CeremonyError::CredentialId));
}

#[test]
fn the_eligibility_for_backups_cannot_change() {
    let mut authenticator = Authenticator { flags: 0b0001_1101, ..Authenticator::new(Key::p256()) };
    let credential = authenticator.register().unwrap();
    assert!(credential.is_backup_eligible && credential.is_backed_up);
    assert!(authenticator.sign_in(&credential).unwrap().is_backed_up);
    authenticator.flags = 0b0000_0101;
    assert_eq!(authenticator.sign_in(&credential), Err(CeremonyError::BackupEligibility));
}

#[test]
fn the_absence_of_user_verification_is_reported() {
    let authenticator = Authenticator { flags: 0b0000_0001, ..Authenticator::new(Key::p256()) };
    let credential = authenticator.register().unwrap();
    assert!(!credential.is_user_verified);
    assert!(!authenticator.sign_in(&credential).unwrap().is_user_verified);
}

#[test]
fn malformed_responses_are_rejected() {
    let authenticator = Authenticator::new(Key::p256());
    let with = |pointer: &str, value: serde_json::Value| {
        let mut response = authenticator.registration_json();
        *response.pointer_mut(pointer).unwrap() = value;
        serde_json::from_value::<RegistrationResponse>(response)
    };
    assert!(with("/type", json!("password")).is_err());
    assert!(with("/id", json!("***")).is_err());
    assert!(with("/response/clientDataJSON", json!("A".repeat(MAX_MEMBER + 1))).is_err());
    let padded = format!("{}=", URL_SAFE_NO_PAD.encode(vec![5; 32]));
    assert!(relying_party().verify_registration(CHALLENGE, &with("/rawId", json!(padded)).unwrap()).is_ok());
    let other_id = with("/id", json!("AAAA")).unwrap();
    assert_eq!(relying_party().verify_registration(CHALLENGE, &other_id), Err(CeremonyError::CredentialId));
    let no_json = with("/response/clientDataJSON", json!("AAAA")).unwrap();
    assert_eq!(relying_party().verify_registration(CHALLENGE, &no_json), Err(CeremonyError::ClientData));
    let no_object = with("/response/attestationObject", json!("AAAA")).unwrap();
    assert_eq!(relying_party().verify_registration(CHALLENGE, &no_object), Err(CeremonyError::AttestationObject));
}

#[test]
fn keys_of_other_forms_are_rejected() {
    let bytes = |value: Value| {
        let mut bytes = Vec::new();
        ciborium::into_writer(&value, &mut bytes).unwrap();
        bytes
    };
    let coordinate = || Value::Bytes(vec![1; 32]);
    for value in [
        // ES256 on another curve, with a short coordinate, without one, as an RSA key, twice an
        // algorithm, unknown algorithm
        cbor!({ 1 => 2, 3 => -7, -1 => 2, -2 => coordinate(), -3 => coordinate() }).unwrap(),
        cbor!({ 1 => 2, 3 => -7, -1 => 1, -2 => coordinate(), -3 => Value::Bytes(vec![1; 31]) }).unwrap(),
        cbor!({ 1 => 2, 3 => -7, -1 => 1, -2 => coordinate() }).unwrap(),
        cbor!({ 1 => 3, 3 => -7, -1 => coordinate(), -2 => coordinate() }).unwrap(),
        cbor!({ 1 => 2, 3 => -7, 3 => -8, -1 => 1, -2 => coordinate(), -3 => coordinate() }).unwrap(),
        cbor!({ 1 => 2, 3 => -47, -1 => 8, -2 => coordinate(), -3 => coordinate() }).unwrap(),
        cbor!([1, 2]).unwrap(),
    ] {
        assert_eq!(PublicKey::parse(&bytes(value)), Err(CeremonyError::PublicKey));
    }
    let good = bytes(Key::p256().cose());
    assert!(PublicKey::parse(&good).is_ok());
    assert_eq!(PublicKey::parse(&[&good[..], &[0]].concat()), Err(CeremonyError::PublicKey));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = AuthenticatorData::parse(&bytes);
        let _ = Attestation::parse(&bytes);
        let _ = PublicKey::parse(&bytes);
        let with_credential = [&[0; 32][..], &[0x41], &[0; 4], &bytes].concat();
        let _ = AuthenticatorData::parse(&with_credential);
    }
}
