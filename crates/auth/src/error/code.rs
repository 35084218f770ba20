//! The catalogue of error codes, including those of features that are not available yet.

use http::StatusCode;

macro_rules! codes {
    ($($variant:ident $text:literal $status:ident),+ $(,)?) => {
        /// The machine-readable codes of the wire contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs)]
        pub enum ErrorCode { $($variant),+ }

        impl ErrorCode {
            /// All codes, for tests and documentation.
            pub const ALL: &'static [ErrorCode] = &[$(Self::$variant),+];

            /// Returns the code as clients compare it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Returns the status that usually comes with the code.
            pub const fn usual_status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }
        }
    };
}

codes! {
    Unknown "unknown" BAD_REQUEST,
    UnexpectedFailure "unexpected_failure" INTERNAL_SERVER_ERROR,
    ValidationFailed "validation_failed" BAD_REQUEST,
    BadJson "bad_json" BAD_REQUEST,
    RequestEntityTooLarge "request_entity_too_large" PAYLOAD_TOO_LARGE,
    RequestTimeout "request_timeout" GATEWAY_TIMEOUT,
    Conflict "conflict" CONFLICT,
    OverRequestRateLimit "over_request_rate_limit" TOO_MANY_REQUESTS,
    OverEmailSendRateLimit "over_email_send_rate_limit" TOO_MANY_REQUESTS,
    OverSmsSendRateLimit "over_sms_send_rate_limit" TOO_MANY_REQUESTS,
    CaptchaFailed "captcha_failed" BAD_REQUEST,
    NoAuthorization "no_authorization" UNAUTHORIZED,
    BadJwt "bad_jwt" FORBIDDEN,
    NotAdmin "not_admin" FORBIDDEN,
    UserNotFound "user_not_found" NOT_FOUND,
    UserBanned "user_banned" FORBIDDEN,
    SessionNotFound "session_not_found" FORBIDDEN,
    SessionExpired "session_expired" BAD_REQUEST,
    RefreshTokenNotFound "refresh_token_not_found" BAD_REQUEST,
    RefreshTokenAlreadyUsed "refresh_token_already_used" BAD_REQUEST,
    InvalidCredentials "invalid_credentials" BAD_REQUEST,
    EmailNotConfirmed "email_not_confirmed" BAD_REQUEST,
    PhoneNotConfirmed "phone_not_confirmed" BAD_REQUEST,
    EmailExists "email_exists" UNPROCESSABLE_ENTITY,
    PhoneExists "phone_exists" UNPROCESSABLE_ENTITY,
    UserAlreadyExists "user_already_exists" UNPROCESSABLE_ENTITY,
    SignupDisabled "signup_disabled" UNPROCESSABLE_ENTITY,
    AnonymousProviderDisabled "anonymous_provider_disabled" UNPROCESSABLE_ENTITY,
    EmailProviderDisabled "email_provider_disabled" BAD_REQUEST,
    PhoneProviderDisabled "phone_provider_disabled" BAD_REQUEST,
    ProviderDisabled "provider_disabled" BAD_REQUEST,
    ProviderEmailNeedsVerification "provider_email_needs_verification" UNPROCESSABLE_ENTITY,
    OtpExpired "otp_expired" FORBIDDEN,
    OtpDisabled "otp_disabled" UNPROCESSABLE_ENTITY,
    WeakPassword "weak_password" UNPROCESSABLE_ENTITY,
    SamePassword "same_password" UNPROCESSABLE_ENTITY,
    ReauthenticationNeeded "reauthentication_needed" BAD_REQUEST,
    ReauthenticationNotValid "reauthentication_not_valid" UNPROCESSABLE_ENTITY,
    CurrentPasswordRequired "current_password_required" BAD_REQUEST,
    CurrentPasswordInvalid "current_password_invalid" BAD_REQUEST,
    InsufficientAal "insufficient_aal" UNAUTHORIZED,
    UserSsoManaged "user_sso_managed" UNPROCESSABLE_ENTITY,
    EmailAddressNotAuthorized "email_address_not_authorized" BAD_REQUEST,
    EmailAddressInvalid "email_address_invalid" BAD_REQUEST,
    EmailAddressNotProvided "email_address_not_provided" BAD_REQUEST,
    SmsSendFailed "sms_send_failed" UNPROCESSABLE_ENTITY,
    FlowStateNotFound "flow_state_not_found" NOT_FOUND,
    FlowStateExpired "flow_state_expired" UNPROCESSABLE_ENTITY,
    FlowStateAlreadyUsed "flow_state_already_used" BAD_REQUEST,
    BadCodeVerifier "bad_code_verifier" BAD_REQUEST,
    BadOauthState "bad_oauth_state" BAD_REQUEST,
    BadOauthCallback "bad_oauth_callback" BAD_REQUEST,
    OauthProviderNotSupported "oauth_provider_not_supported" BAD_REQUEST,
    OauthClientStateNotFound "oauth_client_state_not_found" UNPROCESSABLE_ENTITY,
    OauthClientStateExpired "oauth_client_state_expired" UNPROCESSABLE_ENTITY,
    OauthInvalidState "oauth_invalid_state" BAD_REQUEST,
    InviteNotFound "invite_not_found" NOT_FOUND,
    ManualLinkingDisabled "manual_linking_disabled" NOT_FOUND,
    IdentityAlreadyExists "identity_already_exists" UNPROCESSABLE_ENTITY,
    IdentityNotFound "identity_not_found" UNPROCESSABLE_ENTITY,
    SingleIdentityNotDeletable "single_identity_not_deletable" UNPROCESSABLE_ENTITY,
    EmailConflictIdentityNotDeletable "email_conflict_identity_not_deletable" UNPROCESSABLE_ENTITY,
    UnexpectedAudience "unexpected_audience" FORBIDDEN,
    FeatureDisabled "feature_disabled" NOT_FOUND,
    HookTimeout "hook_timeout" UNPROCESSABLE_ENTITY,
    HookTimeoutAfterRetry "hook_timeout_after_retry" UNPROCESSABLE_ENTITY,
    HookPayloadOverSizeLimit "hook_payload_over_size_limit" UNPROCESSABLE_ENTITY,
    HookPayloadInvalidContentType "hook_payload_invalid_content_type" BAD_REQUEST,
    SamlProviderDisabled "saml_provider_disabled" NOT_FOUND,
    SamlIdpNotFound "saml_idp_not_found" NOT_FOUND,
    SamlRelayStateNotFound "saml_relay_state_not_found" NOT_FOUND,
    SamlRelayStateExpired "saml_relay_state_expired" UNPROCESSABLE_ENTITY,
    SamlIdpAlreadyExists "saml_idp_already_exists" UNPROCESSABLE_ENTITY,
    SamlMetadataFetchFailed "saml_metadata_fetch_failed" BAD_REQUEST,
    SamlEntityIdMismatch "saml_entity_id_mismatch" BAD_REQUEST,
    SamlAssertionNoUserId "saml_assertion_no_user_id" BAD_REQUEST,
    SamlAssertionNoEmail "saml_assertion_no_email" BAD_REQUEST,
    SsoProviderNotFound "sso_provider_not_found" NOT_FOUND,
    SsoProviderDisabled "sso_provider_disabled" NOT_FOUND,
    SsoDomainAlreadyExists "sso_domain_already_exists" BAD_REQUEST,
    TooManyEnrolledMfaFactors "too_many_enrolled_mfa_factors" UNPROCESSABLE_ENTITY,
    MfaFactorNameConflict "mfa_factor_name_conflict" UNPROCESSABLE_ENTITY,
    MfaFactorNotFound "mfa_factor_not_found" NOT_FOUND,
    MfaIpAddressMismatch "mfa_ip_address_mismatch" UNPROCESSABLE_ENTITY,
    MfaChallengeExpired "mfa_challenge_expired" UNPROCESSABLE_ENTITY,
    MfaVerificationFailed "mfa_verification_failed" UNPROCESSABLE_ENTITY,
    MfaVerificationRejected "mfa_verification_rejected" FORBIDDEN,
    MfaVerifiedFactorExists "mfa_verified_factor_exists" UNPROCESSABLE_ENTITY,
    MfaPhoneEnrollNotEnabled "mfa_phone_enroll_not_enabled" UNPROCESSABLE_ENTITY,
    MfaPhoneVerifyNotEnabled "mfa_phone_verify_not_enabled" UNPROCESSABLE_ENTITY,
    MfaTotpEnrollNotEnabled "mfa_totp_enroll_not_enabled" UNPROCESSABLE_ENTITY,
    MfaTotpVerifyNotEnabled "mfa_totp_verify_not_enabled" UNPROCESSABLE_ENTITY,
    MfaWebauthnEnrollNotEnabled "mfa_webauthn_enroll_not_enabled" UNPROCESSABLE_ENTITY,
    MfaWebauthnVerifyNotEnabled "mfa_webauthn_verify_not_enabled" UNPROCESSABLE_ENTITY,
    PasskeyDisabled "passkey_disabled" NOT_FOUND,
    TooManyPasskeys "too_many_passkeys" UNPROCESSABLE_ENTITY,
    WebauthnCredentialExists "webauthn_credential_exists" UNPROCESSABLE_ENTITY,
    WebauthnChallengeNotFound "webauthn_challenge_not_found" BAD_REQUEST,
    WebauthnChallengeExpired "webauthn_challenge_expired" BAD_REQUEST,
    WebauthnVerificationFailed "webauthn_verification_failed" BAD_REQUEST,
    WebauthnCredentialNotFound "webauthn_credential_not_found" NOT_FOUND,
    Web3ProviderDisabled "web3_provider_disabled" UNPROCESSABLE_ENTITY,
    Web3UnsupportedChain "web3_unsupported_chain" BAD_REQUEST,
    OauthDynamicClientRegistrationDisabled "oauth_dynamic_client_registration_disabled" FORBIDDEN,
    OauthClientNotFound "oauth_client_not_found" NOT_FOUND,
    OauthAuthorizationNotFound "oauth_authorization_not_found" NOT_FOUND,
    OauthConsentNotFound "oauth_consent_not_found" NOT_FOUND,
    CustomProviderNotFound "custom_provider_not_found" NOT_FOUND,
    OverCustomProviderQuota "over_custom_provider_quota" BAD_REQUEST,
}
