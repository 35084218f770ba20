//! Signatures of wallets: EIP-191 over secp256k1 for Ethereum, Ed25519 for Solana.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use k256::ecdsa::{RecoveryId, Signature, VerifyingKey};
use sha3::{Digest, Keccak256};

use super::message::{Chain, SignInMessage};

/// A signature as the request writes it, of the right length for its chain.
#[derive(Debug, Clone)]
pub(super) enum WalletSignature {
    /// `r`, `s` and the recovery id. `None`: the text is not hexadecimal, which counts as a wrong
    /// signature.
    Ethereum(Option<Box<[u8; 65]>>),
    /// An Ed25519 signature.
    Solana(Box<[u8; 64]>),
}

/// A signature that is none by its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("signature must be 65 bytes long, encoded as a 130 character-long hexadecimal string")]
    EthereumLength,
    #[error("signature must be 64 bytes encoded as base64 with or without padding")]
    SolanaLength,
    #[error("signature does not contain valid base64 characters")]
    SolanaAlphabet,
}

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

impl WalletSignature {
    /// Parses a signature.
    ///
    /// # Errors
    /// [`SignatureError`] for another length or alphabet.
    pub fn parse(chain: Chain, text: &str) -> Result<Self, SignatureError> {
        match chain {
            Chain::Ethereum => {
                let digits = text.strip_prefix("0x");
                if digits.unwrap_or(text).len() != 130 {
                    return Err(SignatureError::EthereumLength);
                }
                let bytes = digits.and_then(|digits| hex::decode(digits).ok());
                Ok(Self::Ethereum(bytes.and_then(|bytes| bytes.try_into().ok())))
            }
            Chain::Solana => {
                if !matches!(text.len(), 86 | 88) {
                    return Err(SignatureError::SolanaLength);
                }
                let is_url_safe = text.contains(['-', '_']);
                let bytes = if is_url_safe { URL_SAFE.decode(text) } else { STANDARD.decode(text) };
                let bytes = bytes.map_err(|_| SignatureError::SolanaAlphabet)?;
                let bytes: Box<[u8; 64]> = bytes.try_into().map_err(|_| SignatureError::SolanaLength)?;
                Ok(Self::Solana(bytes))
            }
        }
    }

    /// Returns true if the wallet with the message's address signed the text.
    ///
    /// Contract wallets of Ethereum (EIP-1271) are not supported: they are verified by calling a
    /// contract on the chain.
    pub fn is_by_author(&self, message: &SignInMessage, text: &str) -> bool {
        match self {
            Self::Ethereum(Some(bytes)) => {
                recover_address(bytes, text).is_some_and(|address| address.eq_ignore_ascii_case(&message.address))
            }
            Self::Ethereum(None) => false,
            Self::Solana(bytes) => {
                let Some(key) = solana_key(&message.address) else {
                    return false;
                };
                let public_key = UnparsedPublicKey::new(&ED25519, key);
                public_key.verify(text.as_bytes(), &**bytes).is_ok()
                    || ledger_envelope(&message.domain, &key, text)
                        .is_some_and(|envelope| public_key.verify(&envelope, &**bytes).is_ok())
            }
        }
    }
}

/// Returns the address whose key made an EIP-191 signature (`personal_sign`).
fn recover_address(bytes: &[u8; 65], text: &str) -> Option<String> {
    let (signature, v) = bytes.split_at(64);
    let recovery_id = match v[0] {
        v @ (0 | 1) => v,
        v @ (27 | 28) => v - 27,
        _ => return None,
    };
    let recovery_id = RecoveryId::from_byte(recovery_id)?;
    let signature = Signature::from_slice(signature).ok()?;
    let prefix = format!("\x19Ethereum Signed Message:\n{}", text.len());
    let hash = Keccak256::new().chain_update(prefix).chain_update(text);
    let key = VerifyingKey::recover_from_digest(hash, &signature, recovery_id).ok()?;
    let point = key.to_encoded_point(false);
    let hash = Keccak256::digest(&point.as_bytes()[1..]);
    Some(format!("0x{}", hex::encode(&hash[12..])))
}

/// Returns the public key that a Solana address is.
fn solana_key(address: &str) -> Option<[u8; 32]> {
    bs58::decode(address).into_vec().ok()?.try_into().ok()
}

/// Returns the envelope that Ledger devices sign instead of the bare message: Solana's off-chain
/// message format, version 0.
fn ledger_envelope(domain: &str, key: &[u8; 32], text: &str) -> Option<Vec<u8>> {
    const MARKER: &[u8] = b"\xffsolana offchain";
    const VERSION: u8 = 0;
    /// Printable ASCII only.
    const FORMAT: u8 = 0;
    const SIGNERS: u8 = 1;
    let length = u16::try_from(text.len()).ok()?.to_le_bytes();
    let mut padded_domain = [0; 32];
    padded_domain.get_mut(..domain.len())?.copy_from_slice(domain.as_bytes());
    Some([MARKER, &[VERSION], &padded_domain, &[FORMAT, SIGNERS], key, &length, text.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
    use base64::engine::general_purpose::{STANDARD as PADDED, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    use k256::ecdsa::SigningKey;
    use proptest::prelude::*;

    use super::*;

    fn message(chain: Chain, address: &str) -> (SignInMessage, String) {
        let text = format!(
            "app.example wants you to sign in with your {} account:\n{address}\n\nURI: https://app.example/\n\
             Version: 1\nIssued At: 2026-01-01T00:00:00Z",
            chain.name()
        );
        (SignInMessage::parse(chain, &text).unwrap(), text)
    }

    /// Signs as `personal_sign` does.
    fn sign_ethereum(key: &SigningKey, text: &str, first_v: u8) -> String {
        let prefix = format!("\x19Ethereum Signed Message:\n{}", text.len());
        let hash = Keccak256::new().chain_update(prefix).chain_update(text);
        let (signature, recovery_id) = key.sign_digest_recoverable(hash).unwrap();
        format!("0x{}{:02x}", hex::encode(signature.to_bytes()), recovery_id.to_byte() + first_v)
    }

    fn address_of(key: &SigningKey) -> String {
        let hash = Keccak256::digest(&key.verifying_key().to_encoded_point(false).as_bytes()[1..]);
        format!("0x{}", hex::encode(&hash[12..]))
    }

    #[test]
    fn a_published_signature_recovers_its_address() {
        // The example of web3.js for `eth.accounts.sign`
        let signature = "b91467e570a6466aa9e9876cbcd013baba02900b8979d43fe208a4a4f339f5fd\
                         6007e74cd82e037b800186422fc2da167c747ef045e5d18a5f5d4300f8e1a0291c";
        let bytes: [u8; 65] = hex::decode(signature).unwrap().try_into().unwrap();
        let address = recover_address(&bytes, "Some data").unwrap();
        assert_eq!(address, "0x2c7536e3605d9c16a7a3d7b1898e529396a65c23");
    }

    #[test]
    fn an_ethereum_wallet_signs_with_either_recovery_id() {
        let key = SigningKey::from_slice(&[7; 32]).unwrap();
        for address in [address_of(&key), address_of(&key).to_uppercase().replacen("0X", "0x", 1)] {
            let (message, text) = message(Chain::Ethereum, &address);
            for first_v in [0, 27] {
                let signature = WalletSignature::parse(Chain::Ethereum, &sign_ethereum(&key, &text, first_v)).unwrap();
                assert!(signature.is_by_author(&message, &text));
                assert!(!signature.is_by_author(&message, &format!("{text} ")));
            }
            let odd = WalletSignature::parse(Chain::Ethereum, &sign_ethereum(&key, &text, 29)).unwrap();
            assert!(!odd.is_by_author(&message, &text));
        }
    }

    #[test]
    fn an_ethereum_signature_needs_its_prefix() {
        let key = SigningKey::from_slice(&[7; 32]).unwrap();
        let (message, text) = message(Chain::Ethereum, &address_of(&key));
        let signature = sign_ethereum(&key, &text, 27);
        let without = WalletSignature::parse(Chain::Ethereum, &signature[2..]).unwrap();
        assert!(!without.is_by_author(&message, &text));
        let short = WalletSignature::parse(Chain::Ethereum, &signature[..100]);
        assert_eq!(short.unwrap_err(), SignatureError::EthereumLength);
        let text_of_length = WalletSignature::parse(Chain::Ethereum, &format!("0x{}", "z".repeat(130))).unwrap();
        assert!(!text_of_length.is_by_author(&message, &text));
    }

    #[test]
    fn a_solana_wallet_signs_the_text_or_the_ledger_envelope() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
        let key: [u8; 32] = pair.public_key().as_ref().try_into().unwrap();
        let (message, text) = message(Chain::Solana, &bs58::encode(key).into_string());
        let envelope = ledger_envelope("app.example", &key, &text).unwrap();
        for signed in [text.as_bytes(), &envelope] {
            let bytes = pair.sign(signed);
            for encoded in [
                PADDED.encode(bytes.as_ref()),
                STANDARD_NO_PAD.encode(bytes.as_ref()),
                URL_SAFE_NO_PAD.encode(bytes.as_ref()),
            ] {
                let signature = WalletSignature::parse(Chain::Solana, &encoded).unwrap();
                assert!(signature.is_by_author(&message, &text));
                assert!(!signature.is_by_author(&message, &format!("{text} ")));
            }
        }
        assert_eq!(WalletSignature::parse(Chain::Solana, "abc").unwrap_err(), SignatureError::SolanaLength);
        let wrong = WalletSignature::parse(Chain::Solana, &"!".repeat(88));
        assert_eq!(wrong.unwrap_err(), SignatureError::SolanaAlphabet);
    }

    #[test]
    fn an_address_that_is_no_key_has_no_signature() {
        let (message, text) = message(Chain::Solana, &"1".repeat(44));
        let signature = WalletSignature::parse(Chain::Solana, &PADDED.encode([0; 64])).unwrap();
        assert!(!signature.is_by_author(&message, &text));
    }

    proptest! {
        #[test]
        fn no_signature_panics(bytes in proptest::collection::vec(any::<u8>(), 65), text: String, domain: String) {
            let _ = recover_address(&bytes.clone().try_into().unwrap(), &text);
            let _ = ledger_envelope(&domain, &[0; 32], &text);
            let _ = WalletSignature::parse(Chain::Ethereum, &text);
            let _ = WalletSignature::parse(Chain::Solana, &text);
        }
    }
}
