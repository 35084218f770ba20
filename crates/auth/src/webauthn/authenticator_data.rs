//! Authenticator data: the part of a response that the authenticator itself signs (WebAuthn level
//! 3, section 6.1).

use super::error::CeremonyError;
use super::public_key::{PublicKey, read_value};

/// Longer credential ids are rejected, as the standard demands.
const MAX_CREDENTIAL_ID: usize = 1023;

/// Decoded authenticator data.
#[derive(Debug, Clone)]
pub(super) struct AuthenticatorData {
    /// The SHA-256 hash of the relying party's id.
    pub rp_id_hash: [u8; 32],
    /// The person was present.
    pub is_user_present: bool,
    /// The person was verified, by a PIN or a fingerprint.
    pub is_user_verified: bool,
    /// The credential may be copied to other devices.
    pub is_backup_eligible: bool,
    /// The credential is copied to other devices.
    pub is_backed_up: bool,
    /// The authenticator's counter of signatures; 0 where it has none.
    pub sign_count: u32,
    /// The new credential of a registration.
    pub credential: Option<AttestedCredential>,
}

/// The credential that a registration made.
#[derive(Debug, Clone)]
pub(super) struct AttestedCredential {
    /// The model of the authenticator.
    pub aaguid: [u8; 16],
    /// The id that the authenticator gave it.
    pub id: Vec<u8>,
    /// The public key as the authenticator wrote it.
    pub public_key_bytes: Vec<u8>,
    /// The public key.
    pub public_key: PublicKey,
}

impl AuthenticatorData {
    /// Decodes authenticator data.
    ///
    /// # Errors
    /// [`CeremonyError::AuthenticatorData`] when it is malformed, also when bytes are left over.
    pub fn parse(bytes: &[u8]) -> Result<Self, CeremonyError> {
        const MALFORMED: CeremonyError = CeremonyError::AuthenticatorData;
        let mut rest = bytes;
        let rp_id_hash = *take(&mut rest).ok_or(MALFORMED)?;
        let [flags] = *take(&mut rest).ok_or(MALFORMED)?;
        let sign_count = u32::from_be_bytes(*take(&mut rest).ok_or(MALFORMED)?);
        let has = |bit: u8| flags & (1 << bit) != 0;
        let credential = if has(6) { Some(AttestedCredential::parse(&mut rest)?) } else { None };
        if has(7) {
            let extensions = read_value(&mut rest).ok_or(MALFORMED)?;
            if !extensions.is_map() {
                return Err(MALFORMED);
            }
        }
        let (is_backup_eligible, is_backed_up) = (has(3), has(4));
        if !rest.is_empty() || is_backed_up && !is_backup_eligible {
            return Err(MALFORMED);
        }
        Ok(Self {
            rp_id_hash,
            is_user_present: has(0),
            is_user_verified: has(2),
            is_backup_eligible,
            is_backed_up,
            sign_count,
            credential,
        })
    }
}

impl AttestedCredential {
    fn parse(rest: &mut &[u8]) -> Result<Self, CeremonyError> {
        const MALFORMED: CeremonyError = CeremonyError::AuthenticatorData;
        let aaguid = *take(rest).ok_or(MALFORMED)?;
        let length = usize::from(u16::from_be_bytes(*take(rest).ok_or(MALFORMED)?));
        if length == 0 || length > MAX_CREDENTIAL_ID {
            return Err(MALFORMED);
        }
        let (id, after) = rest.split_at_checked(length).ok_or(MALFORMED)?;
        *rest = after;
        let before = *rest;
        let value = read_value(rest).ok_or(MALFORMED)?;
        let public_key_bytes = before[..before.len() - rest.len()].to_vec();
        Ok(Self { aaguid, id: id.to_vec(), public_key_bytes, public_key: PublicKey::from_value(&value)? })
    }
}

/// Takes the first bytes.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(first)
}
