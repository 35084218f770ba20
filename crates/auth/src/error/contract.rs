//! The errors of the wire contract: one table of names, codes, statuses and texts.
//!
//! A row is `Name { fields } => Code, "text";`. The status is the usual one of the code, or is
//! stated as `Code as STATUS`. The text may contain the fields. A row that lacks a part does not
//! compile.

use http::StatusCode;

use super::ErrorCode;

/// Returns the usual status of a code, or the one that a row states.
macro_rules! status {
    ($code:ident) => {
        ErrorCode::$code.usual_status()
    };
    ($code:ident $status:ident) => {
        StatusCode::$status
    };
}

macro_rules! contract_errors {
    ($($name:ident $({ $($field:ident: $type:ty),+ })? => $code:ident $(as $status:ident)?, $text:literal;)+) => {
        /// An error with the code, the status and the text of the wire contract. `Display` is the
        /// text.
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[allow(missing_docs)]
        pub enum ContractError {
            $(#[error($text)] $name $({ $($field: $type),+ })?,)+
        }

        impl ContractError {
            /// Returns the machine-readable code.
            pub const fn code(&self) -> ErrorCode {
                match self { $(Self::$name { .. } => ErrorCode::$code,)+ }
            }

            /// Returns the HTTP status.
            pub fn status(&self) -> StatusCode {
                match self { $(Self::$name { .. } => status!($code $($status)?),)+ }
            }
        }
    };
}

contract_errors! {
    // Requests
    UnreadableBody { detail: String } => BadJson, "Could not parse request body as JSON: {detail}";
    BodyTooLarge => RequestEntityTooLarge, "Request body too large (max 1048576 bytes)";
    RequestTimedOut => RequestTimeout, "Processing this request timed out, please retry after a moment.";
    AudienceTooLong => ValidationFailed, "The audience is too long";
    ChallengeIncomplete => ValidationFailed, "PKCE flow requires code_challenge_method and code_challenge";
    ChallengeLength => ValidationFailed, "code challenge has to be between 43 and 128 characters";
    ChallengeCharacters => ValidationFailed,
        "code challenge can only contain alphanumeric characters, hyphens, periods, underscores and tildes";
    ChallengeMethodUnknown => ValidationFailed, "Invalid code_challenge_method";

    // Callers
    BearerMissing => NoAuthorization, "This endpoint requires a valid Bearer token";
    InvalidJwt { detail: String } => BadJwt, "invalid JWT: unable to parse or verify signature, {detail}";
    SubjectMissing => BadJwt, "invalid claim: missing sub claim";
    SubjectNotUuid => BadJwt as BAD_REQUEST, "invalid claim: sub claim must be a UUID";
    SessionClaimNotUuid => BadJwt, "invalid claim: session_id claim must be a UUID";
    SubjectGone => UserNotFound as FORBIDDEN, "User from sub claim in JWT does not exist";
    SessionOfTokenGone => SessionNotFound, "Session from session_id claim in JWT does not exist";
    AudienceMismatch => ValidationFailed, "Token audience doesn't match request audience";
    AudienceMismatchOfUnlink => UnexpectedAudience, "Token audience doesn't match request audience";
    AnonymousNotAllowed => NoAuthorization as FORBIDDEN, "Anonymous user not allowed to perform these actions";
    AdministratorRequired => NotAdmin, "User not allowed";
    SessionOfAdministratorEnded => SessionExpired as FORBIDDEN, "Session is no longer valid";
    AppMetadataNeedsAdministrator => NotAdmin, "Updating app_metadata requires admin privileges";
    Banned => UserBanned, "User is banned";
    InsufficientAssurance => InsufficientAal,
        "AAL2 session is required to update email or password when MFA is enabled.";
    ManagedBySso => UserSsoManaged, "Updating email, phone, password of a SSO account only possible via SSO";

    // Contacts
    EmailRequired => ValidationFailed, "An email address is required";
    EmailTooLong => ValidationFailed, "An email address is too long";
    EmailMalformed => ValidationFailed, "Unable to validate email address: invalid format";
    EmailInvalid { address: String } => EmailAddressInvalid, "Email address \"{address}\" is invalid";
    EmailNotAuthorized { address: String } => EmailAddressNotAuthorized,
        "Email address \"{address}\" cannot be used as it is not authorized";
    EmailTaken => EmailExists, "A user with this email address has already been registered";
    EmailTakenAtLink => EmailExists as BAD_REQUEST, "A user with this email address has already been registered";
    PhoneMalformed => ValidationFailed, "Invalid phone number format (E.164 required)";
    PhoneTaken => PhoneExists, "A user with this phone number has already been registered";
    InvalidChannel => ValidationFailed,
        "Invalid channel, supported values are 'sms' or 'whatsapp'. 'whatsapp' is only supported if Twilio or Twilio Verify is used as the provider.";
    ChannelNeedsPhone => ValidationFailed, "Channel should only be specified with Phone OTP";
    MetadataTooLarge { max_bytes: usize } => ValidationFailed as UNPROCESSABLE_ENTITY,
        "User metadata is too large (max {max_bytes} bytes)";

    // Administration
    UserIdNotUuid => ValidationFailed as NOT_FOUND, "user_id must be an UUID";
    CreationNeedsContact => ValidationFailed, "Cannot create a user without either an email or phone";
    PhoneTakenByAnother => PhoneExists, "Phone number already registered by another user";
    PasswordAndHash => ValidationFailed, "Only a password or a password hash should be provided";
    PasswordExceedsBcrypt => ValidationFailed, "bcrypt: password length exceeds 72 bytes";
    NewIdNotUuid => ValidationFailed, "ID must conform to the uuid v4 format";
    NewIdNil => ValidationFailed, "ID cannot be a nil uuid";
    BanDurationMalformed { detail: String } => ValidationFailed, "invalid format for ban duration: {detail}";
    RoleTooLong => ValidationFailed, "The role is too long";
    BadPagination { detail: String } => ValidationFailed, "Bad Pagination Parameters: {detail}";
    BadSort { detail: String } => ValidationFailed, "Bad Sort Parameters: {detail}";
    InvalidQueryScope { scope: String } => ValidationFailed, "Invalid query scope: {scope}";
    ProviderTypeUnknown => ValidationFailed, "provider_type must be either 'oauth2' or 'oidc'";
    ProviderTypeFilterUnknown => ValidationFailed, "type must be either 'oauth2' or 'oidc'";
    ProviderFieldRequired { name: &'static str } => ValidationFailed, "{name} is required";
    ProviderIdentifierPrefix => ValidationFailed,
        "identifier must start with 'custom:' prefix, e.g. 'custom:<x>'";
    ProviderIssuerRequired => ValidationFailed, "issuer is required for OIDC providers";
    ProviderUrlRequired { name: &'static str } => ValidationFailed, "{name} is required for OAuth2 providers";
    ProviderParameterReserved { name: String } => ValidationFailed,
        "Cannot override reserved OAuth parameter: {name}";
    ProviderParameterNotText { name: String } => ValidationFailed,
        "Authorization parameter \"{name}\" must be a string";
    ProviderMappingProtected { field: String } => ValidationFailed, "Cannot map to protected system field: {field}";
    ProviderClaimEmpty => ValidationFailed, "custom_claims_allowlist entries must be non-empty strings";
    ProviderUrlRejected { reason: &'static str } => ValidationFailed, "{reason}";
    DiscoveryFailed { url: String, reason: String } => ValidationFailed,
        "OIDC discovery from \"{url}\" failed: {reason}";
    DiscoveryIncomplete { fields: String } => ValidationFailed,
        "OIDC discovery document is missing required fields: {fields}";
    TooManyCustomProviders => OverCustomProviderQuota, "Maximum number of custom OAuth/OIDC providers reached";
    CustomProviderExists => Conflict as BAD_REQUEST,
        "A custom OAuth provider with this identifier already exists";
    CustomProviderGone => CustomProviderNotFound, "Custom OAuth provider not found";
    LinkTypeUnknown { name: String } => ValidationFailed, "Invalid email action link type requested: {name}";
    LinkUserUnknown => UserNotFound, "User with this email not found";
    LinkNeedsSecureEmailChange => ValidationFailed,
        "Enable secure email change to generate link for current email";

    // Sign-up
    SignUpsDisabled => SignupDisabled, "Signups not allowed for this instance";
    EmailSignUpsDisabled => EmailProviderDisabled, "Email signups are disabled";
    PhoneSignUpsDisabled => PhoneProviderDisabled, "Phone signups are disabled";
    AnonymousSignInsDisabled => AnonymousProviderDisabled, "Anonymous sign-ins are disabled";
    SignUpNeedsPassword => ValidationFailed, "Signup requires a valid password";
    SignUpNeedsOneContact => ValidationFailed, "Only an email address or phone number should be provided on signup.";
    PhoneSignUpWithPkce => ValidationFailed, "PKCE not supported for phone signups";
    UserExists => UserAlreadyExists, "User already registered";
    ConcurrentSignUps => Conflict, "Too many sign-ups for one address at the same time";

    // Sign-in
    InvalidLogin => InvalidCredentials, "Invalid login credentials";
    UnsupportedGrantType => InvalidCredentials, "unsupported_grant_type";
    LoginNeedsOneContact => ValidationFailed, "Only an email address or phone number should be provided on login.";
    LoginNeedsContact => ValidationFailed, "missing email or phone";
    EmailLoginsDisabled => EmailProviderDisabled, "Email logins are disabled";
    PhoneLoginsDisabled => PhoneProviderDisabled, "Phone logins are disabled";
    EmailPasswordLoginsDisabled => EmailProviderDisabled as UNPROCESSABLE_ENTITY, "Email logins are disabled";
    PhonePasswordLoginsDisabled => PhoneProviderDisabled as UNPROCESSABLE_ENTITY, "Phone logins are disabled";
    BannedAtLogin => UserBanned as BAD_REQUEST, "User is banned";
    UnconfirmedEmail => EmailNotConfirmed, "Email not confirmed";
    UnconfirmedPhone => PhoneNotConfirmed, "Phone not confirmed";
    ExchangeIncomplete => ValidationFailed,
        "invalid request: both auth code and code verifier should be non-empty";
    FlowNotFound => FlowStateNotFound, "invalid flow state, no valid flow state found";
    FlowExpired => FlowStateExpired, "invalid flow state, flow state has expired";
    CodeVerifierMismatch => BadCodeVerifier, "code challenge does not match previously saved code verifier";

    // Codes and links
    OtpNeedsOneContact => ValidationFailed, "Only an email address or phone number should be provided";
    OtpNeedsContact => ValidationFailed, "One of email or phone must be set";
    OtpSignUpsDisabled => OtpDisabled, "Signups not allowed for otp";
    MagicLinkNeedsEmail => ValidationFailed as UNPROCESSABLE_ENTITY, "Password recovery requires an email";
    MagicLinkEmailLoginsDisabled => EmailProviderDisabled as UNPROCESSABLE_ENTITY, "Email logins are disabled";
    MagicLinksDisabled => EmailProviderDisabled as UNPROCESSABLE_ENTITY, "Login with magic link is disabled";
    PhoneOtpDisabled => PhoneProviderDisabled, "Unsupported phone provider";
    RecoveryNeedsEmail => ValidationFailed, "Password recovery requires an email";
    ResendTypeUnknown => ValidationFailed, "Missing one of these types: signup, email_change, sms, phone_change";
    ResendTypeNeedsEmail => ValidationFailed, "Type provided requires an email address";
    ResendTypeNeedsPhone => ValidationFailed, "Type provided requires a phone number";
    ResendNeedsOneContact => ValidationFailed, "Only an email address or phone number should be provided.";
    ResendNeedsContact => ValidationFailed, "Missing email address or phone number";
    VerifyTypeMissing => ValidationFailed, "Verify requires a verification type";
    VerifyTypeInvalid => ValidationFailed, "Invalid email verification type";
    VerifyNeedsOneToken => ValidationFailed, "Verify requires either a token or a token hash";
    VerifyLinkNeedsToken => ValidationFailed, "Verify requires a token or a token hash";
    VerifyHashStandsAlone => ValidationFailed, "Only the token_hash and type should be provided";
    VerifyNeedsOneContact => ValidationFailed,
        "Only an email address or phone number should be provided on verify";
    VerifyEmailMalformed => ValidationFailed as UNPROCESSABLE_ENTITY, "Invalid email format";
    CodeExpired => OtpExpired, "Token has expired or is invalid";
    LinkExpired => OtpExpired, "Email link is invalid or has expired";
    FlowOfLinkNotFound => FlowStateNotFound as BAD_REQUEST,
        "No associated flow state found. The sign-in must be finished in the browser in which it began, and in time.";

    // Passwords
    PasswordTooLong => ValidationFailed, "Password cannot be longer than 72 characters";
    PasswordUnchanged => SamePassword, "New password should be different from the old password.";
    PasswordChangedMeanwhile => Conflict, "The password was changed by another request";
    AnonymousPasswordNeedsContact => ValidationFailed as UNPROCESSABLE_ENTITY,
        "Updating password of an anonymous user without an email or phone is not allowed";
    CurrentPasswordMissing => CurrentPasswordRequired, "Current password required when setting new password.";
    CurrentPasswordWrong => CurrentPasswordInvalid, "Current password required when setting new password.";
    NonceRequired => ReauthenticationNeeded, "Password update requires reauthentication";
    NonceInvalid => ReauthenticationNotValid, "Nonce has expired or is invalid";
    ReauthenticationNeedsContact => ValidationFailed,
        "Reauthentication requires the user to have an email or a phone number";
    ReauthenticationNeedsConfirmedEmail => EmailNotConfirmed as UNPROCESSABLE_ENTITY,
        "Please verify your email first.";
    ReauthenticationNeedsConfirmedPhone => PhoneNotConfirmed as UNPROCESSABLE_ENTITY,
        "Please verify your phone first.";

    // Sessions
    RefreshTokenMalformed => ValidationFailed, "Refresh token is not valid";
    RefreshTokenUnknown => RefreshTokenNotFound, "Invalid Refresh Token: Refresh Token Not Found";
    RefreshTokenUsed => RefreshTokenAlreadyUsed, "Invalid Refresh Token: Already Used";
    RefreshTokenForeign => ValidationFailed, "Invalid Refresh Token: Not Issued By This Server";
    RefreshBanned => UserBanned as BAD_REQUEST, "Invalid Refresh Token: User Banned";
    RefreshSessionGone => SessionNotFound as BAD_REQUEST, "Invalid Refresh Token: No Valid Session Found";
    RefreshConflict => Conflict,
        "Too many concurrent token refresh requests on the same session or refresh token";
    SessionEnded => SessionExpired, "Invalid Refresh Token: Session Expired";
    SessionInactive => SessionExpired, "Invalid Refresh Token: Session Expired (Inactivity)";
    SessionLowAal => SessionExpired,
        "Invalid Refresh Token: Session Expired (Low AAL: User Needs MFA Verification)";
    SessionReplaced => SessionExpired, "Invalid Refresh Token: Session Expired (Revoked by Newer Login)";
    SessionUnknown => SessionNotFound as NOT_FOUND, "Session does not exist";
    LogoutScopeUnsupported { scope: String } => ValidationFailed, "Unsupported logout scope \"{scope}\"";

    // Identities
    ManualLinkingOff => ManualLinkingDisabled, "Manual linking is disabled";
    UserUnknown => UserNotFound, "User not found";
    LinkingTargetUnknown => UserNotFound, "Linking target user not found";
    LinkingSubjectUnknown => UserNotFound, "User identified by token not found";
    IdentityLinked => IdentityAlreadyExists, "Identity is already linked";
    IdentityLinkedElsewhere => IdentityAlreadyExists, "Identity is already linked to another user";
    IdentityIdNotUuid => ValidationFailed as NOT_FOUND, "identity_id must be an UUID";
    IdentityUnknown => IdentityNotFound, "Identity doesn't exist";
    LastIdentity => SingleIdentityNotDeletable, "User must have at least 1 identity after unlinking";
    IdentityEmailConflict => EmailConflictIdentityNotDeletable,
        "Unable to unlink identity due to email conflict";
    InvitationUnknown => InviteNotFound, "Invite not found";
    InvitationOfAnotherEmail => ValidationFailed as BAD_REQUEST,
        "Invited email does not match emails from external provider";

    // Identity providers
    ProviderUnsupported { reason: String } => ValidationFailed, "Unsupported provider: {reason}";
    ProviderOfFlowUnsupported { provider: String } => OauthProviderNotSupported, "Unsupported provider: {provider}";
    ProviderEmailUnverified { provider: String } => ProviderEmailNeedsVerification,
        "Unverified email with {provider}. Verify the email with {provider} in order to sign in";
    ProviderEmailAwaitsConfirmation { provider: String } => ProviderEmailNeedsVerification,
        "Unverified email with {provider}. A confirmation email has been sent to your {provider} email";
    LinkedEmailAwaitsConfirmation { provider: String } => EmailNotConfirmed as UNPROCESSABLE_ENTITY,
        "Unverified email with {provider}. A confirmation email has been sent to your {provider} email";
    StateMissing => BadOauthCallback, "OAuth state parameter missing";
    StateInvalid => BadOauthState, "OAuth state parameter is invalid";
    StateUnknown => BadOauthState, "OAuth state not found or expired";
    StateExpired => BadOauthState, "OAuth state has expired";
    StateUsed => FlowStateAlreadyUsed, "State has already been used";
    LinkOfAnotherBrowser => BadOauthState, "An identity must be linked by the browser that asked for it";
    SignInOfAnotherBrowser => BadOauthState, "The sign-in must be finished in the browser in which it began";
    CallbackOfAnotherIssuer => BadOauthCallback, "OAuth callback from another issuer";
    CallbackCodeMissing => BadOauthCallback, "OAuth callback with missing authorization code missing";
    ClientStateUnknown => OauthClientStateNotFound, "OAuth state not found";
    ClientStateOfAnotherProvider => OauthInvalidState, "OAuth state is for another provider";
    ClientStateExpired => OauthClientStateExpired, "OAuth state expired";
    IssuerNotEnabled { issuer: String } => ProviderDisabled, "Provider (issuer \"{issuer}\") is not enabled";
    IssuerMismatch => ValidationFailed, "Provided issuer does not match ID token issuer";
    IssuerUnreadable { provider: &'static str } => ValidationFailed,
        "Unable to detect issuer in ID token for {provider} provider";
    IssuerNotApple => ValidationFailed, "Detected ID token issuer is not an Apple ID token issuer";
    IssuerNotAzure => ValidationFailed, "Detected ID token issuer is not an Azure ID token issuer";
    IdTokenUnusable => ValidationFailed as BAD_REQUEST, "The id_token does not describe a person";
    OidcProviderNotAllowed { name: String } => ValidationFailed, "Custom OIDC provider \"{name}\" not allowed";
    CustomProvidersOff => ValidationFailed, "Custom OAuth providers are disabled";
    CustomProviderUnknown { name: String } => ValidationFailed, "Custom provider \"{name}\" not found";
    CustomProviderDisabled { name: String } => ProviderDisabled, "Custom provider \"{name}\" is disabled";
    CustomProviderNotOidc { name: String } => ValidationFailed, "Provider \"{name}\" is not an OIDC provider";

    // Limits
    CaptchaRejected { reason: String } => CaptchaFailed, "captcha protection: request disallowed ({reason})";
    TooManyRequests => OverRequestRateLimit, "Request rate limit reached";
    TooManySignIns => OverRequestRateLimit, "Too many sign-ins at the moment, please retry after a moment.";
    TooManyEmails => OverEmailSendRateLimit, "email rate limit exceeded";
    TooManyTexts => OverSmsSendRateLimit, "SMS rate limit exceeded";
    EmailTooSoon { seconds: u64 } => OverEmailSendRateLimit,
        "For security purposes, you can only request this after {seconds} seconds.";
    TextTooSoon { seconds: u64 } => OverSmsSendRateLimit,
        "For security purposes, you can only request this after {seconds} seconds.";

    // Text messages
    TextNotSent { purpose: &'static str, detail: String } => SmsSendFailed,
        "Error sending {purpose} OTP to provider: {detail}";
    TextCodeNotChecked { detail: String } => SmsSendFailed, "Error checking OTP with provider: {detail}";

    // Hooks
    HookContentTypeMissing => HookPayloadInvalidContentType, "Invalid Content-Type: Missing Content-Type header";
    HookContentTypeUnknown { received: String } => HookPayloadInvalidContentType,
        "Invalid JSON response. Received content-type: {received}";
    HookOutputTooLarge => HookPayloadOverSizeLimit, "Payload size exceeded size limit of 204800 bytes";
    HookUnreachable => HookTimeoutAfterRetry, "Failed to reach hook after maximum retries";
    HookTimedOut => HookTimeout, "Failed to reach hook within maximum time of 5.000000 seconds";
    HookUnavailable => UnexpectedFailure, "Service currently unavailable due to hook";
    HookRejectedPayload => UnexpectedFailure, "Invalid payload sent to hook";
    HookUnauthorized => UnexpectedFailure, "Hook requires authorization token";
    HookStatus { status: u16 } => UnexpectedFailure, "Unexpected status code returned from hook: {status}";
    HookOutputNotJson => UnexpectedFailure, "Error unmarshaling JSON output.";
    HookFunctionFailed { uri: String } => UnexpectedFailure, "Error running hook URI: {uri}";
    HookClaimsMissing => UnexpectedFailure, "output claims field is missing";
    HookClaimsInvalid { violations: String } => UnexpectedFailure,
        "output claims do not conform to the expected schema: \n{violations}";
    HookFailedAfterSignUp => UnexpectedFailure, "Error invoking hook";
    HookOutdated => Conflict, "The account was changed while a hook was called, please retry";
    FactorRejectedByHook { message: String } => MfaVerificationRejected, "{message}";
    FactorTextHookFailed => UnexpectedFailure, "error invoking hook";
    PasswordRejectedByHook { message: String } => InvalidCredentials, "{message}";

    // Passkeys
    PasskeysOff => PasskeyDisabled, "Passkeys are disabled";
    PasskeyOfSsoUser => ValidationFailed as UNPROCESSABLE_ENTITY, "SSO users cannot register passkeys";
    PasskeysNeedAal2 => InsufficientAal as FORBIDDEN,
        "AAL2 session is required to manage passkeys when MFA is enabled";
    PasskeyLimitReached => TooManyPasskeys, "Maximum number of passkeys reached";
    CeremonyChallengeIdMissing => ValidationFailed, "challenge_id is required";
    CeremonyChallengeIdNotUuid => ValidationFailed, "challenge_id must be a valid UUID";
    CeremonyCredentialMissing => ValidationFailed, "credential is required";
    CeremonyChallengeUnknown => WebauthnChallengeNotFound, "Challenge not found or already used";
    CeremonyChallengeExpired => WebauthnChallengeExpired, "Challenge has expired";
    CredentialUnreadable => WebauthnVerificationFailed, "Invalid credential response";
    CredentialRejected => WebauthnVerificationFailed, "Credential verification failed";
    CredentialRegistered => WebauthnCredentialExists, "This credential is already registered";
    PasskeyUnknown => ValidationFailed as NOT_FOUND, "Passkey not found";
    PasskeyNameMissing => ValidationFailed, "friendly_name is required";
    PasskeyNameTooLong => ValidationFailed, "friendly_name must be 120 characters or less";
    UnconfirmedEmailAtPasskey => EmailNotConfirmed as FORBIDDEN, "Email not confirmed";
    UnconfirmedPhoneAtPasskey => PhoneNotConfirmed as FORBIDDEN, "Phone not confirmed";

    // Features that are not available
    SamlOff => SamlProviderDisabled, "SAML 2.0 is disabled";
    ScimOff => FeatureDisabled, "SCIM server is disabled";
    OauthServerOff => FeatureDisabled, "OAuth server is disabled";
    CustomProvidersAdminOff => FeatureDisabled, "Custom OAuth providers are disabled";
    Web3Off => Web3ProviderDisabled, "Web3 provider is disabled";
    Web3ChainOff { chain: &'static str } => Web3ProviderDisabled, "{chain} Web3 provider is disabled";
    Web3ChainUnknown => Web3UnsupportedChain, "Unsupported chain";
    Web3Malformed { detail: String } => ValidationFailed, "{detail}";

    // Second factors
    FactorsNeedSession => UnexpectedFailure, "A valid session and a registered user are required for second factors";
    TotpEnrollOff => MfaTotpEnrollNotEnabled, "MFA enroll is disabled for TOTP";
    PhoneEnrollOff => MfaPhoneEnrollNotEnabled, "MFA enroll is disabled for Phone";
    WebauthnEnrollOff => MfaWebauthnEnrollNotEnabled, "MFA enroll is disabled for WebAuthn";
    FactorTypeUnknown => ValidationFailed, "factor_type needs to be totp, phone, or webauthn";
    FactorIdNotUuid => ValidationFailed as NOT_FOUND, "factor_id must be an UUID";
    FactorUnknown => MfaFactorNotFound, "Factor not found";
    TotpVerifyOff => MfaTotpVerifyNotEnabled, "MFA verification is disabled for TOTP";
    PhoneVerifyOff => MfaPhoneVerifyNotEnabled, "MFA verification is disabled for Phone";
    WebauthnVerifyOff => MfaWebauthnVerifyNotEnabled, "MFA verification is disabled for WebAuthn";
    FactorPhoneMissing => ValidationFailed, "Phone number required to enroll Phone factor";
    FactorPhoneVerified => MfaVerifiedFactorExists,
        "A verified phone factor already exists, unenroll the existing factor to continue";
    FactorNameTaken { name: String } => MfaFactorNameConflict,
        "A factor with the friendly name \"{name}\" for this user already exists";
    FactorNameTooLong => ValidationFailed, "friendly_name must be 255 characters or less";
    FactorIssuerTooLong => ValidationFailed, "issuer is too long for a QR code";
    TooManyFactors => TooManyEnrolledMfaFactors, "Maximum number of verified factors reached, unenroll to continue";
    EnrollNeedsAal2 => InsufficientAal as FORBIDDEN, "AAL2 required to enroll a new factor";
    UnenrollNeedsAal2 => InsufficientAal as UNPROCESSABLE_ENTITY, "AAL2 required to unenroll verified factor";
    FactorCodeEmpty => ValidationFailed, "Code needs to be non-empty";
    FactorChallengeUnknown => MfaFactorNotFound as UNPROCESSABLE_ENTITY,
        "MFA factor with the provided challenge ID not found";
    FactorChallengeOfAnotherAddress => MfaIpAddressMismatch, "Challenge and verify IP addresses mismatch.";
    FactorChallengeExpired { id: String } => MfaChallengeExpired,
        "MFA challenge {id} has expired, verify against another challenge or create a new challenge.";
    TotpCodeWrong => MfaVerificationFailed, "Invalid TOTP code entered";
    KeyProofMissing => ValidationFailed, "WebAuthn config required";
    KeyResponseTypeUnknown => ValidationFailed, "WebAuthn type must be create or request";
    KeyResponseMissing => ValidationFailed, "credential_response required";
    KeyResponseUnreadable => ValidationFailed, "Invalid credential_response";
    KeyResponseRejected => MfaVerificationFailed, "Failed to validate WebAuthn MFA response";
    PhoneFactorCodeWrong => MfaVerificationFailed, "Invalid MFA Phone code entered";
    RecoveryCodeWrong => MfaVerificationFailed, "Invalid recovery code entered";
    RecoveryCodesNeedFactor => MfaFactorNotFound as UNPROCESSABLE_ENTITY,
        "Recovery codes need a verified second factor";
    RecoveryCodesNeedAal2 => InsufficientAal as FORBIDDEN, "AAL2 required to create recovery codes";

    // Failures that are not the caller's fault
    Unexpected => UnexpectedFailure, "Unexpected failure, please check server logs for more information";
    DatabaseFailed => UnexpectedFailure, "Database error";
    DatabaseUnreachable => UnexpectedFailure as SERVICE_UNAVAILABLE,
        "The database cannot be reached at the moment, please retry after a moment.";
    SavingUserFailed => UnexpectedFailure, "Database error saving new user";
    UpdatingUserFailed => UnexpectedFailure, "Database error updating user";
    CreatingUserFailed => UnexpectedFailure, "Database error creating new user";
    CreatingUserRejected => UnexpectedFailure, "Error creating user";
    AdministratorUpdateFailed => UnexpectedFailure, "Error updating user";
    DeletingUserFailed => UnexpectedFailure, "Database error deleting user";
    CreatingAnonymousUserFailed => UnexpectedFailure, "Database error creating anonymous user";
    ConfirmationEmailFailed => UnexpectedFailure, "Error sending confirmation email";
    RecoveryEmailFailed => UnexpectedFailure, "Error sending recovery email";
    MagicLinkEmailFailed => UnexpectedFailure, "Error sending magic link email";
    EmailChangeEmailFailed => UnexpectedFailure, "Error sending email change email";
    ReauthenticationEmailFailed => UnexpectedFailure, "Error sending reauthentication email";
    InviteEmailFailed => UnexpectedFailure, "Error sending invite email";
    RelyingPartyMissing => UnexpectedFailure, "Failed to initialize WebAuthn";
    TextProviderMissing => UnexpectedFailure, "Unable to get SMS provider";
    FactorTextProviderMissing => UnexpectedFailure, "Failed to get SMS provider";
    FactorTextFailed => UnexpectedFailure, "error sending message";
    CaptchaUnavailable => UnexpectedFailure, "captcha verification process failed";
    BreachCheckFailed => UnexpectedFailure, "Unable to perform password strength check with HaveIBeenPwned.org.";
    ProviderUnreachable => UnexpectedFailure, "The identity provider cannot be reached";
    ProviderAddressInvalid => UnexpectedFailure, "Unsupported provider: its address is not a URL";
    ProviderEmailMissing => UnexpectedFailure, "Error getting user email from external provider";
    ProviderProfileFailed => UnexpectedFailure, "Error getting user profile from external provider";
    CodeExchangeFailed { code_start: String } => UnexpectedFailure,
        "Unable to exchange external code: {code_start}";
    AmbiguousAccount { linking_domain: String } => UnexpectedFailure,
        "Multiple accounts with the same email address in the same linking domain detected: {linking_domain}";
}

macro_rules! oauth_errors {
    ($($name:ident $({ $($field:ident: $type:ty),+ })? => $error:literal, $text:literal;)+) => {
        /// An error in the form of OAuth (RFC 6749, 5.2): status 400 with `error` and
        /// `error_description`. `Display` is the description.
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[allow(missing_docs)]
        pub enum OAuthError {
            $(#[error($text)] $name $({ $($field: $type),+ })?,)+
        }

        impl OAuthError {
            /// Returns the value of `error`.
            pub const fn error(&self) -> &'static str {
                match self { $(Self::$name { .. } => $error,)+ }
            }
        }
    };
}

oauth_errors! {
    IdTokenRequired => "invalid request", "id_token required";
    ProviderOrIssuerRequired => "invalid request", "provider or client_id and issuer required";
    LinkingNeedsBearer => "invalid request", "Linking requires a valid user access token in Authorization";
    BadIdToken => "invalid request", "Bad ID token";
    IdTokenWithoutSubject => "invalid request", "Missing sub claim in id_token";
    UnacceptableAudience { audience: String } => "invalid request", "Unacceptable audience in id_token: [{audience}]";
    NonceMissing => "invalid request", "Passed nonce and nonce in id_token should either both exist or not.";
    NonceMismatch => "invalid nonce", "Nonces mismatch";
    WalletSignatureMismatch => "invalid_grant", "Signature does not match address in message";
    WalletUriNotHttps { chain: &'static str } => "invalid_grant",
        "Signed {chain} message is using URI which does not use HTTPS";
    WalletUriNotAllowed { chain: &'static str } => "invalid_grant",
        "Signed {chain} message is using URI which is not allowed on this server, message was signed for another app";
    WalletDomainNotAllowed { chain: &'static str } => "invalid_grant",
        "Signed {chain} message is using a Domain that does not match the one in URI which is not allowed on this server";
    WalletMessageInFuture { chain: &'static str } => "invalid_grant",
        "Signed {chain} message becomes valid in the future";
    WalletMessageExpired { chain: &'static str } => "invalid_grant", "Signed {chain} message is expired";
    WalletMessageTooOld { chain: &'static str } => "invalid_grant", "{chain} message was issued too long ago";
    WalletMessageTooNew { chain: &'static str } => "invalid_grant",
        "{chain} message was issued too far in the future";
    InternalError => "server_error", "Internal Server Error";
    OAuthSessionNeedsClient => "invalid_client", "Client authentication required for OAuth session";
}
