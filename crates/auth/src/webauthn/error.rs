//! The reasons for which a ceremony fails.

/// A response that does not prove what it should. Clients get one text for all of them; the log has
/// this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CeremonyError {
    #[error("the client data is malformed")]
    ClientData,
    #[error("the client data is of another ceremony")]
    Ceremony,
    #[error("the challenge is another one")]
    Challenge,
    #[error("the origin is not one of this relying party")]
    Origin,
    #[error("the authenticator data is malformed")]
    AuthenticatorData,
    #[error("the credential is for another relying party")]
    RelyingParty,
    #[error("the person was not present")]
    UserPresence,
    #[error("the person was not verified")]
    UserVerification,
    #[error("there is no such credential")]
    UnknownCredential,
    #[error("the public key is malformed or of an algorithm that is not offered")]
    PublicKey,
    #[error("the registration has no credential")]
    NoCredential,
    #[error("the ids of the credential differ")]
    CredentialId,
    #[error("the attestation object is malformed")]
    AttestationObject,
    #[error("the attestation's signature is wrong")]
    Attestation,
    #[error("the signature is wrong")]
    Signature,
    #[error("the credential's eligibility for backups has changed")]
    BackupEligibility,
}
