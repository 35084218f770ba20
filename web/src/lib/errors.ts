import { retryAfterSeconds } from "./http";

/** A failure in the words of the person who met it. */
export interface Described {
  message: string;
  /** The field of a form that it belongs to, when there is one. */
  field?: "email" | "phone" | "password" | "code";
  /** Single reasons, for a list. */
  reasons?: string[];
}

const unreachable = "We can’t reach the server. Check your connection and try again.";

const texts: Record<string, Described> = {
  invalid_credentials: { message: "That e-mail and password don’t match an account." },
  email_not_confirmed: { message: "This address isn’t confirmed yet. Enter the code we sent you first." },
  email_exists: { message: "There is already an account with this address.", field: "email" },
  user_already_exists: { message: "There is already an account with this address. Sign in instead.", field: "email" },
  email_address_invalid: { message: "Mail can’t be delivered to this address. Is it spelled right?", field: "email" },
  email_address_not_authorized: { message: "This address isn’t allowed to receive mail here.", field: "email" },
  phone_exists: { message: "There is already an account with this number.", field: "phone" },
  sms_send_failed: { message: "The text message could not be sent. Is the number right?", field: "phone" },
  phone_provider_disabled: { message: "Signing in by phone is switched off here." },
  user_sso_managed: { message: "Your organisation manages this account, so it can’t be changed here." },
  insufficient_aal: { message: "Sign in with your second factor first, then try again." },
  signup_disabled: { message: "New accounts can’t be made here at the moment." },
  email_provider_disabled: { message: "Signing in by e-mail is switched off here." },
  provider_disabled: { message: "This way to sign in is switched off here." },
  oauth_provider_not_supported: { message: "This way to sign in is switched off here." },
  user_banned: { message: "This account is locked. Write to us if you think that is a mistake." },
  user_not_found: { message: "This account no longer exists." },
  otp_expired: { message: "This code or link is wrong or no longer valid. Ask for a new one.", field: "code" },
  access_denied: { message: "The sign-in was cancelled or refused." },
  otp_disabled: { message: "There is no account with this address yet." },
  same_password: { message: "That is your current password. Choose a different one.", field: "password" },
  current_password_required: { message: "Enter your current password too." },
  current_password_invalid: { message: "Your current password isn’t right." },
  reauthentication_needed: { message: "For your safety, confirm this change with a code from your inbox." },
  reauthentication_not_valid: { message: "That code is wrong or no longer valid.", field: "code" },
  session_not_found: { message: "You have been signed out. Please sign in again." },
  session_expired: { message: "Your session has ended. Please sign in again." },
  refresh_token_not_found: { message: "Your session has ended. Please sign in again." },
  refresh_token_already_used: { message: "Your session has ended. Please sign in again." },
  flow_state_not_found: { message: "This sign-in was begun somewhere else or took too long. Please start again." },
  flow_state_expired: { message: "This sign-in took too long. Please start again." },
  flow_state_already_used: { message: "This sign-in was already completed. Please start again." },
  bad_code_verifier: { message: "This sign-in was begun in another browser. Please start again here." },
  bad_oauth_state: { message: "This sign-in took too long or was changed on its way. Please start again." },
  bad_oauth_callback: { message: "The provider’s answer was incomplete. Please start again." },
  provider_email_needs_verification: { message: "The provider hasn’t verified this address. Confirm it by mail first." },
  identity_already_exists: { message: "That sign-in already belongs to another account." },
  single_identity_not_deletable: { message: "This is your only way in, so it can’t be removed." },
  email_conflict_identity_not_deletable: { message: "Another account uses this address, so this sign-in can’t be removed." },
  manual_linking_disabled: { message: "Linking further sign-ins is switched off here." },
  captcha_failed: { message: "We couldn’t tell that you are human. Please try again." },
  request_timeout: { message: "That took too long. Please try again." },
};

const passwordReasons: Record<string, string> = {
  length: "It is too short.",
  characters: "It needs a mix of letters, digits and symbols.",
  pwned: "It appeared in a data breach, so others can guess it.",
};

/**
 * Says what went wrong, by the error's code. A code we do not know shows the server's own message, which is better
 * than a shrug.
 */
export function describeError(error: unknown): Described {
  const { code, message, name, reasons } = shapeOf(error);
  if (code === "weak_password") {
    const list = reasons.map((reason) => passwordReasons[reason] ?? reason);
    return { message: "Choose a stronger password.", field: "password", reasons: list.length > 0 ? list : [message] };
  }
  if (code?.startsWith("over_") || code === "too_many_requests") return { message: tooMany(code) };
  const known = code !== null && Object.hasOwn(texts, code) ? texts[code] : undefined;
  if (known) return known;
  if (name === "AuthRetryableFetchError" || (name === "TypeError" && /fetch|network/i.test(message))) {
    return { message: unreachable };
  }
  if (name === "AuthSessionMissingError") return { message: "You have been signed out. Please sign in again." };
  return { message: message === "" || message === "{}" ? "Something went wrong. Please try again." : message };
}

function tooMany(code: string): string {
  const sent = code === "over_email_send_rate_limit" ? "mail" : code === "over_sms_send_rate_limit" ? "text message" : null;
  const what = sent === null ? "That was too many tries in a row." : `We just sent you a ${sent}.`;
  const seconds = retryAfterSeconds();
  if (seconds === null) return `${what} Please wait a little and try again.`;
  const wait = seconds < 90 ? `${seconds} seconds` : `${Math.ceil(seconds / 60)} minutes`;
  return `${what} Please try again in ${wait}.`;
}

function shapeOf(error: unknown) {
  const shape = { code: null as string | null, message: "", name: "", reasons: [] as string[] };
  if (typeof error !== "object" || error === null) return { ...shape, message: String(error) };
  if ("code" in error && typeof error.code === "string") shape.code = error.code;
  if ("message" in error && typeof error.message === "string") shape.message = error.message;
  if ("name" in error && typeof error.name === "string") shape.name = error.name;
  if ("reasons" in error && Array.isArray(error.reasons)) shape.reasons = error.reasons.filter((reason) => typeof reason === "string");
  return shape;
}
