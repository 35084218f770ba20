//! The authentication methods of sessions.

/// An authentication method of a session: an entry of `amr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthenticationMethod {
    /// Password.
    Password,
    /// A code or a link, without a code exchange.
    Otp,
    /// An identity provider.
    OAuth,
    /// A sign-in link, after a code exchange.
    MagicLink,
    /// A recovery link, after a code exchange.
    Recovery,
    /// An invitation, after a code exchange.
    Invite,
    /// Confirmation of a new account, after a code exchange.
    EmailSignup,
    /// Confirmation of another address, after a code exchange.
    EmailChange,
    /// Without a contact or an identity.
    Anonymous,
    /// A second factor: an authenticator app.
    Totp,
    /// A second factor: a code in a text message.
    MfaPhone,
    /// A second factor: a security key.
    MfaWebauthn,
    /// A recovery code in the place of a second factor.
    MfaRecoveryCode,
    /// A passkey.
    Passkey,
    /// The wallet of a blockchain.
    Web3,
}

impl AuthenticationMethod {
    const ALL: [Self; 15] = [
        Self::Password,
        Self::Otp,
        Self::OAuth,
        Self::MagicLink,
        Self::Recovery,
        Self::Invite,
        Self::EmailSignup,
        Self::EmailChange,
        Self::Anonymous,
        Self::Totp,
        Self::MfaPhone,
        Self::MfaWebauthn,
        Self::MfaRecoveryCode,
        Self::Passkey,
        Self::Web3,
    ];

    /// The names of the methods that raise a session to `aal2`.
    pub const SECOND_FACTORS: [&str; 4] =
        [Self::Totp.as_str(), Self::MfaPhone.as_str(), Self::MfaWebauthn.as_str(), Self::MfaRecoveryCode.as_str()];

    /// Returns the name in the claim and the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Otp => "otp",
            Self::OAuth => "oauth",
            Self::MagicLink => "magiclink",
            Self::Recovery => "recovery",
            Self::Invite => "invite",
            Self::EmailSignup => "email/signup",
            Self::EmailChange => "email_change",
            Self::Anonymous => "anonymous",
            Self::Totp => "totp",
            Self::MfaPhone => "mfa/phone",
            Self::MfaWebauthn => "mfa/webauthn",
            Self::MfaRecoveryCode => "mfa/recovery_code",
            Self::Passkey => "passkey",
            Self::Web3 => "web3",
        }
    }

    /// Returns the method with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_round_trip() {
        for method in AuthenticationMethod::ALL {
            assert_eq!(AuthenticationMethod::parse(method.as_str()), Some(method));
        }
        assert_eq!(AuthenticationMethod::parse("telepathy"), None);
    }
}
