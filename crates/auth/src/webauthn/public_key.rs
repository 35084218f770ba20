//! Public keys of authenticators in COSE form (RFC 9052 and 9053), and the signatures they verify.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use ciborium::Value;

use super::error::CeremonyError;

/// A signature algorithm by its COSE number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CoseAlgorithm {
    Es256,
    Es384,
    Es512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    EdDsa,
}

/// The kinds of keys, with what a key of each holds.
enum KeyForm {
    /// A curve by its COSE number, the length of a coordinate in bytes, and the verification.
    Elliptic(i64, usize, &'static dyn VerificationAlgorithm),
    Rsa(&'static RsaParameters),
    Edwards,
}

impl CoseAlgorithm {
    /// The algorithms that options offer, in the order of preference.
    pub const OFFERED: [Self; 10] = [
        Self::Es256,
        Self::Es384,
        Self::Es512,
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::EdDsa,
    ];

    /// Returns the COSE number.
    pub fn number(self) -> i64 {
        match self {
            Self::Es256 => -7,
            Self::Es384 => -35,
            Self::Es512 => -36,
            Self::Rs256 => -257,
            Self::Rs384 => -258,
            Self::Rs512 => -259,
            Self::Ps256 => -37,
            Self::Ps384 => -38,
            Self::Ps512 => -39,
            Self::EdDsa => -8,
        }
    }

    /// Returns the algorithm with a COSE number, if it is offered.
    pub fn of_number(number: i64) -> Option<Self> {
        Self::OFFERED.into_iter().find(|algorithm| algorithm.number() == number)
    }

    fn key_form(self) -> KeyForm {
        match self {
            Self::Es256 => KeyForm::Elliptic(1, 32, &ECDSA_P256_SHA256_ASN1),
            Self::Es384 => KeyForm::Elliptic(2, 48, &ECDSA_P384_SHA384_ASN1),
            Self::Es512 => KeyForm::Elliptic(3, 66, &ECDSA_P521_SHA512_ASN1),
            Self::Rs256 => KeyForm::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => KeyForm::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => KeyForm::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => KeyForm::Rsa(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => KeyForm::Rsa(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => KeyForm::Rsa(&RSA_PSS_2048_8192_SHA512),
            Self::EdDsa => KeyForm::Edwards,
        }
    }
}

/// A public key of one of the offered algorithms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicKey {
    algorithm: CoseAlgorithm,
    material: KeyMaterial,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum KeyMaterial {
    /// An uncompressed point, or an Ed25519 key.
    Bytes(Vec<u8>),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

impl PublicKey {
    /// Reads a COSE key.
    ///
    /// # Errors
    /// [`CeremonyError::PublicKey`] for a malformed key and for an algorithm that is not offered.
    pub fn parse(bytes: &[u8]) -> Result<Self, CeremonyError> {
        let mut rest = bytes;
        let value = read_value(&mut rest).ok_or(CeremonyError::PublicKey)?;
        if !rest.is_empty() {
            return Err(CeremonyError::PublicKey);
        }
        Self::from_value(&value)
    }

    /// Reads a COSE key that is decoded already.
    ///
    /// # Errors
    /// Those of [`parse`](Self::parse).
    pub fn from_value(value: &Value) -> Result<Self, CeremonyError> {
        Self::read(value).ok_or(CeremonyError::PublicKey)
    }

    fn read(value: &Value) -> Option<Self> {
        const KEY_TYPE: i64 = 1;
        const ALGORITHM: i64 = 3;
        let fields = value.as_map()?;
        let field = |label: i64| {
            let mut values = fields.iter().filter(|(key, _)| key.as_integer() == Some(label.into()));
            // A label that is there twice could be read differently elsewhere
            values.next().filter(|_| values.next().is_none()).map(|(_, value)| value)
        };
        let number = |label| field(label)?.as_integer()?.try_into().ok();
        let bytes = |label| field(label)?.as_bytes().cloned();
        let algorithm = CoseAlgorithm::of_number(number(ALGORITHM)?)?;
        let material = match (number(KEY_TYPE)?, algorithm.key_form()) {
            (2, KeyForm::Elliptic(curve, length, _)) => {
                let (x, y) = (bytes(-2)?, bytes(-3)?);
                if number(-1)? != curve || x.len() != length || y.len() != length {
                    return None;
                }
                KeyMaterial::Bytes([&[4], &x[..], &y[..]].concat())
            }
            (3, KeyForm::Rsa(_)) => KeyMaterial::Rsa { modulus: bytes(-1)?, exponent: bytes(-2)? },
            (1, KeyForm::Edwards) => {
                const ED25519_CURVE: i64 = 6;
                let key = bytes(-2)?;
                if number(-1)? != ED25519_CURVE || key.len() != 32 {
                    return None;
                }
                KeyMaterial::Bytes(key)
            }
            _ => return None,
        };
        Some(Self { algorithm, material })
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> CoseAlgorithm {
        self.algorithm
    }

    /// Returns the uncompressed point of a key on P-256.
    pub fn uncompressed_point(&self) -> Option<&[u8]> {
        match (&self.material, self.algorithm) {
            (KeyMaterial::Bytes(bytes), CoseAlgorithm::Es256) => Some(bytes),
            _ => None,
        }
    }

    /// Returns true if a signature over `message` is this key's.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match (&self.material, self.algorithm.key_form()) {
            (KeyMaterial::Bytes(bytes), KeyForm::Elliptic(_, _, verification)) => {
                UnparsedPublicKey::new(verification, bytes).verify(message, signature).is_ok()
            }
            (KeyMaterial::Bytes(bytes), KeyForm::Edwards) => {
                UnparsedPublicKey::new(&ED25519, bytes).verify(message, signature).is_ok()
            }
            (KeyMaterial::Rsa { modulus, exponent }, KeyForm::Rsa(parameters)) => {
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(parameters, message, signature).is_ok()
            }
            _ => false,
        }
    }
}

/// Reads one CBOR value, and leaves what is behind it in `rest`. `None`: it is malformed.
pub(super) fn read_value(rest: &mut &[u8]) -> Option<Value> {
    const MAX_DEPTH: usize = 8;
    ciborium::de::from_reader_with_recursion_limit(rest, MAX_DEPTH).ok()
}
