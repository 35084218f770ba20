import * as m from "../paraglide/messages";
import { providerName } from "./auth/provider-name";
import { retryAfterSeconds } from "./http";

/** A failure in words for the user. */
export interface DescribedError {
  message: string;
  /** The form field that the failure belongs to, when there is one. */
  field?: "email" | "phone" | "password" | "currentPassword" | "code" | "name";
  /** Separate reasons, shown as a list. */
  reasons?: string[];
}

/**
 * The sentences for the codes of the server. A function each, so that the locale is that of the
 * moment.
 */
const sentences: Record<string, { message: () => string; field?: DescribedError["field"] }> = {
  invalid_credentials: { message: m.error_invalid_credentials },
  email_not_confirmed: { message: m.error_email_not_confirmed },
  email_exists: { message: m.error_email_exists, field: "email" },
  user_already_exists: { message: m.error_user_already_exists, field: "email" },
  email_address_invalid: { message: m.error_email_address_invalid, field: "email" },
  email_address_not_authorized: { message: m.error_email_address_not_authorized, field: "email" },
  phone_exists: { message: m.error_phone_exists, field: "phone" },
  sms_send_failed: { message: m.error_sms_send_failed, field: "phone" },
  phone_provider_disabled: { message: m.error_phone_provider_disabled },
  user_sso_managed: { message: m.error_user_sso_managed },
  insufficient_aal: { message: m.error_insufficient_aal },
  signup_disabled: { message: m.error_signup_disabled },
  email_provider_disabled: { message: m.error_email_provider_disabled },
  provider_disabled: { message: m.error_provider_disabled },
  oauth_provider_not_supported: { message: m.error_oauth_provider_not_supported },
  user_banned: { message: m.error_user_banned },
  user_not_found: { message: m.error_user_not_found },
  otp_expired: { message: m.error_otp_expired, field: "code" },
  access_denied: { message: m.error_access_denied },
  otp_disabled: { message: m.error_otp_disabled },
  same_password: { message: m.error_same_password, field: "password" },
  current_password_required: { message: m.error_current_password_required, field: "currentPassword" },
  current_password_invalid: { message: m.error_current_password_invalid, field: "currentPassword" },
  reauthentication_needed: { message: m.error_reauthentication_needed },
  reauthentication_not_valid: { message: m.error_reauthentication_not_valid, field: "code" },
  session_not_found: { message: m.error_session_not_found },
  session_expired: { message: m.error_session_expired },
  refresh_token_not_found: { message: m.error_refresh_token_not_found },
  refresh_token_already_used: { message: m.error_refresh_token_already_used },
  flow_state_not_found: { message: m.error_flow_state_not_found },
  flow_state_expired: { message: m.error_flow_state_expired },
  flow_state_already_used: { message: m.error_flow_state_already_used },
  bad_code_verifier: { message: m.error_bad_code_verifier },
  bad_oauth_state: { message: m.error_bad_oauth_state },
  bad_oauth_callback: { message: m.error_bad_oauth_callback },
  provider_email_needs_verification: { message: m.error_provider_email_needs_verification },
  identity_already_exists: { message: m.error_identity_already_exists },
  single_identity_not_deletable: { message: m.error_single_identity_not_deletable },
  email_conflict_identity_not_deletable: { message: m.error_email_conflict_identity_not_deletable },
  manual_linking_disabled: { message: m.error_manual_linking_disabled },
  captcha_failed: { message: m.error_captcha_failed },
  request_timeout: { message: m.error_request_timeout },
  mfa_verification_failed: { message: m.error_mfa_code_wrong, field: "code" },
  recovery_code_wrong: { message: m.error_recovery_code_wrong, field: "code" },
  mfa_challenge_expired: { message: m.error_mfa_challenge_expired, field: "code" },
  mfa_ip_address_mismatch: { message: m.error_mfa_network_changed },
  mfa_verification_rejected: { message: m.error_mfa_rejected },
  mfa_factor_not_found: { message: m.error_mfa_not_found },
  mfa_factor_name_conflict: { message: m.error_mfa_name_taken, field: "name" },
  mfa_verified_factor_exists: { message: m.error_mfa_phone_taken, field: "phone" },
  too_many_enrolled_mfa_factors: { message: m.error_mfa_too_many },
  mfa_totp_enroll_not_enabled: { message: m.error_mfa_off },
  mfa_totp_verify_not_enabled: { message: m.error_mfa_off },
  mfa_phone_enroll_not_enabled: { message: m.error_mfa_off },
  mfa_phone_verify_not_enabled: { message: m.error_mfa_off },
  mfa_webauthn_enroll_not_enabled: { message: m.error_mfa_off },
  mfa_webauthn_verify_not_enabled: { message: m.error_mfa_off },
  passkey_disabled: { message: m.error_mfa_off },
  too_many_passkeys: { message: m.error_passkeys_too_many },
  webauthn_credential_exists: { message: m.error_passkey_exists },
  webauthn_challenge_not_found: { message: m.error_passkey_failed },
  webauthn_challenge_expired: { message: m.error_passkey_failed },
  webauthn_verification_failed: { message: m.error_passkey_failed },
  // Those of the browser, by the client.
  ERROR_CEREMONY_ABORTED: { message: m.error_passkey_cancelled },
  ERROR_AUTHENTICATOR_PREVIOUSLY_REGISTERED: { message: m.error_passkey_exists },
  ERROR_INVALID_DOMAIN: { message: m.error_passkey_address },
  ERROR_INVALID_RP_ID: { message: m.error_passkey_address },
  validation_failed: { message: m.error_validation },
  bad_json: { message: m.error_validation },
};

/** The codes of failures of the server itself, as redirects name them. */
const serverFailures = ["unexpected_failure", "server_error", "temporarily_unavailable"];

const passwordReasons: Record<string, () => string> = {
  length: m.error_weak_password_length,
  characters: m.error_weak_password_characters,
  pwned: m.error_weak_password_pwned,
};

/**
 * Describes a failure by the code of the error. An unknown code of a rejected request shows the
 * server's own message. The messages of all other errors are for developers and are not shown.
 */
export function describeError(error: unknown): DescribedError {
  const { code, message, name, status, requestId, reasons } = errorParts(error);
  if (code === "weak_password") {
    const list = reasons.map((reason) => passwordReasons[reason]?.() ?? reason);
    return { message: m.error_weak_password(), field: "password", reasons: list.length > 0 ? list : [message] };
  }
  if (code?.startsWith("over_") || code === "too_many_requests") return { message: describeRateLimit(code) };
  const known = code !== null && Object.hasOwn(sentences, code) ? sentences[code] : undefined;
  if (known) return { ...known, message: known.message() };
  // The client reports these statuses as errors of the network, although the server did respond.
  if (
    (code !== null && serverFailures.includes(code)) ||
    (status >= 500 && ["AuthApiError", "AuthRetryableFetchError", "ApiError"].includes(name))
  ) {
    const id = requestId ?? requestIdIn(message);
    return { message: id === null ? m.error_server() : m.error_server_request({ id }) };
  }
  if (name === "AuthRetryableFetchError" || (name === "TypeError" && /fetch|network/i.test(message))) {
    return { message: m.error_unreachable() };
  }
  // The browser says no more, so that a site does not learn why.
  if (name === "NotAllowedError" || name === "AbortError") return { message: m.error_passkey_cancelled() };
  if (name === "AuthSessionMissingError") return { message: m.error_session_missing() };
  // A form may report a sentence of its own, which is no `Error`.
  const isForUser = name.startsWith("Auth") || name === "ApiError" || !(error instanceof Error);
  return { message: isForUser && message !== "" && message !== "{}" ? message : m.error_unknown() };
}

/** Returns the server's or the client's code of an error. */
export const errorCode = (error: unknown): string | null => errorParts(error).code;

/** Describes a sign-in that the user cancelled on the page of a provider. */
export function describeCancelledSignIn(provider: string): DescribedError {
  return { message: m.error_sign_in_cancelled({ provider: providerName(provider) }) };
}

/** Returns the request's id in the message that `observedFetch` gives to a failed request. */
function requestIdIn(message: string): string | null {
  return /^Request (\S{1,128}) failed$/.exec(message)?.[1] ?? null;
}

const rateLimitReasons: Record<string, () => string> = {
  over_email_send_rate_limit: m.error_too_many_emails,
  over_sms_send_rate_limit: m.error_too_many_texts,
};

function describeRateLimit(code: string): string {
  const reason = (rateLimitReasons[code] ?? m.error_too_many_tries)();
  const seconds = retryAfterSeconds();
  if (seconds === null) return m.error_retry_later({ reason });
  if (seconds < 90) return m.error_retry_in_seconds({ reason, seconds });
  return m.error_retry_in_minutes({ reason, minutes: Math.ceil(seconds / 60) });
}

function errorParts(error: unknown) {
  const parts = { code: null as string | null, message: "", name: "", status: 0, requestId: null as string | null, reasons: [] as string[] };
  if (typeof error !== "object" || error === null) return parts;
  if ("code" in error && typeof error.code === "string") parts.code = error.code;
  if ("message" in error && typeof error.message === "string") parts.message = error.message;
  if ("name" in error && typeof error.name === "string") parts.name = error.name;
  if ("status" in error && typeof error.status === "number") parts.status = error.status;
  if ("requestId" in error && typeof error.requestId === "string") parts.requestId = error.requestId;
  if ("reasons" in error && Array.isArray(error.reasons)) parts.reasons = error.reasons.filter((reason) => typeof reason === "string");
  return parts;
}
