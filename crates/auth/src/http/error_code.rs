//! The catalogue of error codes (auth-core 1.6), also those that other parts of the service will need.

macro_rules! codes {
    ($($variant:ident $text:literal $status:literal),+ $(,)?) => {
        /// The machine-readable codes of the wire contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum ErrorCode { $($variant),+ }

        impl ErrorCode {
            /// Every code, for tests and documentation.
            pub const ALL: &'static [ErrorCode] = &[$(Self::$variant),+];

            /// The code as clients compare it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The status that usually comes with the code.
            pub const fn usual_status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }
        }
    };
}

codes! {
    Unknown "unknown" 400,
    UnexpectedFailure "unexpected_failure" 500,
    ValidationFailed "validation_failed" 400,
    BadJson "bad_json" 400,
    RequestEntityTooLarge "request_entity_too_large" 413,
    RequestTimeout "request_timeout" 504,
    Conflict "conflict" 409,
    OverRequestRateLimit "over_request_rate_limit" 429,
    OverEmailSendRateLimit "over_email_send_rate_limit" 429,
    OverSmsSendRateLimit "over_sms_send_rate_limit" 429,
    CaptchaFailed "captcha_failed" 400,
    NoAuthorization "no_authorization" 401,
    BadJwt "bad_jwt" 403,
    NotAdmin "not_admin" 403,
    UserNotFound "user_not_found" 404,
    UserBanned "user_banned" 403,
    SessionNotFound "session_not_found" 403,
    SessionExpired "session_expired" 400,
    RefreshTokenNotFound "refresh_token_not_found" 400,
    RefreshTokenAlreadyUsed "refresh_token_already_used" 400,
    InvalidCredentials "invalid_credentials" 400,
    EmailNotConfirmed "email_not_confirmed" 400,
    PhoneNotConfirmed "phone_not_confirmed" 400,
    EmailExists "email_exists" 422,
    PhoneExists "phone_exists" 422,
    UserAlreadyExists "user_already_exists" 422,
    SignupDisabled "signup_disabled" 422,
    AnonymousProviderDisabled "anonymous_provider_disabled" 422,
    EmailProviderDisabled "email_provider_disabled" 400,
    PhoneProviderDisabled "phone_provider_disabled" 400,
    ProviderDisabled "provider_disabled" 400,
    ProviderEmailNeedsVerification "provider_email_needs_verification" 422,
    OtpExpired "otp_expired" 403,
    OtpDisabled "otp_disabled" 422,
    WeakPassword "weak_password" 422,
    SamePassword "same_password" 422,
    ReauthenticationNeeded "reauthentication_needed" 400,
    ReauthenticationNotValid "reauthentication_not_valid" 422,
    CurrentPasswordRequired "current_password_required" 400,
    CurrentPasswordInvalid "current_password_invalid" 400,
    InsufficientAal "insufficient_aal" 401,
    UserSsoManaged "user_sso_managed" 422,
    EmailAddressNotAuthorized "email_address_not_authorized" 400,
    EmailAddressInvalid "email_address_invalid" 400,
    EmailAddressNotProvided "email_address_not_provided" 400,
    SmsSendFailed "sms_send_failed" 422,
    FlowStateNotFound "flow_state_not_found" 404,
    FlowStateExpired "flow_state_expired" 422,
    FlowStateAlreadyUsed "flow_state_already_used" 400,
    BadCodeVerifier "bad_code_verifier" 400,
    BadOauthState "bad_oauth_state" 400,
    BadOauthCallback "bad_oauth_callback" 400,
    OauthProviderNotSupported "oauth_provider_not_supported" 400,
    OauthClientStateNotFound "oauth_client_state_not_found" 422,
    OauthClientStateExpired "oauth_client_state_expired" 422,
    OauthInvalidState "oauth_invalid_state" 400,
    InviteNotFound "invite_not_found" 404,
    ManualLinkingDisabled "manual_linking_disabled" 404,
    IdentityAlreadyExists "identity_already_exists" 422,
    IdentityNotFound "identity_not_found" 422,
    SingleIdentityNotDeletable "single_identity_not_deletable" 422,
    EmailConflictIdentityNotDeletable "email_conflict_identity_not_deletable" 422,
    UnexpectedAudience "unexpected_audience" 403,
    FeatureDisabled "feature_disabled" 404,
    HookTimeout "hook_timeout" 422,
    HookTimeoutAfterRetry "hook_timeout_after_retry" 422,
    HookPayloadOverSizeLimit "hook_payload_over_size_limit" 422,
    HookPayloadInvalidContentType "hook_payload_invalid_content_type" 400,
    SamlProviderDisabled "saml_provider_disabled" 404,
    SamlIdpNotFound "saml_idp_not_found" 404,
    SamlRelayStateNotFound "saml_relay_state_not_found" 404,
    SamlRelayStateExpired "saml_relay_state_expired" 422,
    SamlIdpAlreadyExists "saml_idp_already_exists" 422,
    SamlMetadataFetchFailed "saml_metadata_fetch_failed" 400,
    SamlEntityIdMismatch "saml_entity_id_mismatch" 400,
    SamlAssertionNoUserId "saml_assertion_no_user_id" 400,
    SamlAssertionNoEmail "saml_assertion_no_email" 400,
    SsoProviderNotFound "sso_provider_not_found" 404,
    SsoProviderDisabled "sso_provider_disabled" 404,
    SsoDomainAlreadyExists "sso_domain_already_exists" 400,
    TooManyEnrolledMfaFactors "too_many_enrolled_mfa_factors" 422,
    MfaFactorNameConflict "mfa_factor_name_conflict" 422,
    MfaFactorNotFound "mfa_factor_not_found" 404,
    MfaIpAddressMismatch "mfa_ip_address_mismatch" 422,
    MfaChallengeExpired "mfa_challenge_expired" 422,
    MfaVerificationFailed "mfa_verification_failed" 422,
    MfaVerificationRejected "mfa_verification_rejected" 403,
    MfaVerifiedFactorExists "mfa_verified_factor_exists" 422,
    MfaPhoneEnrollNotEnabled "mfa_phone_enroll_not_enabled" 422,
    MfaPhoneVerifyNotEnabled "mfa_phone_verify_not_enabled" 422,
    MfaTotpEnrollNotEnabled "mfa_totp_enroll_not_enabled" 422,
    MfaTotpVerifyNotEnabled "mfa_totp_verify_not_enabled" 422,
    MfaWebauthnEnrollNotEnabled "mfa_webauthn_enroll_not_enabled" 422,
    MfaWebauthnVerifyNotEnabled "mfa_webauthn_verify_not_enabled" 422,
    PasskeyDisabled "passkey_disabled" 404,
    TooManyPasskeys "too_many_passkeys" 422,
    WebauthnCredentialExists "webauthn_credential_exists" 422,
    WebauthnChallengeNotFound "webauthn_challenge_not_found" 400,
    WebauthnChallengeExpired "webauthn_challenge_expired" 400,
    WebauthnVerificationFailed "webauthn_verification_failed" 400,
    WebauthnCredentialNotFound "webauthn_credential_not_found" 404,
    Web3ProviderDisabled "web3_provider_disabled" 422,
    Web3UnsupportedChain "web3_unsupported_chain" 400,
    OauthDynamicClientRegistrationDisabled "oauth_dynamic_client_registration_disabled" 403,
    OauthClientNotFound "oauth_client_not_found" 404,
    OauthAuthorizationNotFound "oauth_authorization_not_found" 404,
    OauthConsentNotFound "oauth_consent_not_found" 404,
    CustomProviderNotFound "custom_provider_not_found" 404,
    OverCustomProviderQuota "over_custom_provider_quota" 400,
}
