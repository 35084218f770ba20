//! The settings of hooks.

use portico_base::Secret;

macro_rules! hook_points {
    ($($(#[$doc:meta])* $variant:ident $key:literal $name:literal),+ $(,)?) => {
        /// A point at which a function of the application takes part.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum HookPoint { $($(#[$doc])* $variant),+ }

        impl HookPoint {
            /// Every point.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name in the configuration.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key),+ }
            }

            /// Returns the name in the input of the hook.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl HookPoint {
            /// Returns true if a PostgreSQL function runs in the transaction of the operation, so
            /// that its effects share the fate of the operation. Others count attempts, for
            /// example, whose effects must stay when the operation is rejected.
            #[must_use]
            pub const fn belongs_to_transaction(self) -> bool {
                matches!(self, Self::CustomAccessToken | Self::SendEmail)
            }
        }
    };
}

hook_points! {
    /// Replaces the claims of an access token.
    CustomAccessToken "custom_access_token" "customize-access-token",
    /// Sends emails in place of the mail server.
    SendEmail "send_email" "send-email",
    /// Sends text messages in place of the gateway.
    SendSms "send_sms" "send-sms",
    /// Decides about an attempt at a second factor.
    MfaVerificationAttempt "mfa_verification_attempt" "mfa-verification",
    /// Decides about an attempt at a password.
    PasswordVerificationAttempt "password_verification_attempt" "password-verification",
    /// May reject a new account.
    BeforeUserCreated "before_user_created" "before-user-created",
    /// Takes note of a new account.
    AfterUserCreated "after_user_created" "after-user-created",
}

/// The settings of one hook.
#[derive(Debug, Clone)]
pub struct HookSettings {
    /// `https://...`, `http://...` on this machine, or
    /// `pg-functions://postgres/<schema>/<function>`.
    pub uri: String,
    /// `v1,whsec_<base64>`, several separated by `|`. Empty: requests are not signed.
    pub secrets: Secret,
}
