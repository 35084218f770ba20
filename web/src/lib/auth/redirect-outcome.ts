import * as m from "../../paraglide/messages";
import { type DescribedError, loadErrorTexts } from "../load-error-texts";
import { pendingProviderKey, tabStorage } from "../storage";

/** The outcome of a link or a provider, when it did not sign the user in. */
export interface RedirectOutcome extends DescribedError {
  kind: "refused" | "other-browser" | "note" | "change-half-done" | "change-done";
  /** Shown in the banner above every page, or by the page of the link in its own words. */
  shownIn: "banner" | "page";
  /** The server's own description, when it is one that the server is known to give. */
  detail: string | null;
}

const queryParameters = ["code", "error", "error_code", "error_description", "error_id", "message", "sb", "sb_flow_id"];
const fragmentParameters = ["access_token", "refresh_token", "error", "error_code", "error_description", "error_id", "message", "sb"];

/** The server's most frequent description. The others say no more than their code. */
const knownDescription = "Email link is invalid or has expired";

/** Reads the parameters of a redirect from the address, before the client removes its own. */
export function readRedirect() {
  const query = new URLSearchParams(window.location.search);
  const fragment = new URLSearchParams(window.location.hash.slice(1));
  const parameter = (name: string) => query.get(name) ?? fragment.get(name);
  const hasCode = query.has("code");
  const hasError = ["error", "error_code", "error_description"].some((name) => parameter(name) !== null);
  const isRedirect = hasCode || hasError || fragment.has("sb") || query.has("sb") || fragment.has("access_token");
  // The server has one message, for the first of two links of an email change.
  const hasMessage = isRedirect && parameter("message") !== null;
  const isUnverifiedEmail =
    fragment.get("error_code") === "provider_email_needs_verification" &&
    fragment.has("email") &&
    tabStorage.getItem(pendingProviderKey) !== null;
  const { pathname } = window.location;
  const isEmailChange = pathname === "/confirm-email-change";

  async function outcome(error: unknown, hasSession: boolean): Promise<RedirectOutcome | null> {
    // The page of the code takes the address and shows itself (`unverified-email.ts`).
    if (isUnverifiedEmail) return null;
    if (error) {
      const { describeError, describeCancelledSignIn } = await loadErrorTexts();
      const provider = tabStorage.getItem(pendingProviderKey);
      tabStorage.removeItem(pendingProviderKey);
      if (provider !== null && (parameter("error_code") ?? parameter("error")) === "access_denied") {
        return { kind: "refused", shownIn: "banner", ...describeCancelledSignIn(provider), detail: null };
      }
      // Anyone can write an address, so nothing of it is shown but the id of a request: it only
      // selects one of our own sentences.
      const failure = { code: parameter("error_code") ?? parameter("error"), message: "", requestId: requestIdOf(parameter("error_id")) };
      const described = describeError(hasError ? failure : error);
      const description = parameter("error_description");
      return { kind: "refused", shownIn: "banner", ...described, detail: description === knownDescription ? description : null };
    }
    if (hasMessage) {
      const [kind, shownIn] = isEmailChange ? (["change-half-done", "page"] as const) : (["note", "banner"] as const);
      return { kind, shownIn, message: m.redirect_half_confirmed(), detail: null };
    }
    if (hasCode && isEmailChange) {
      // The server gives the code once the change is made, whichever browser then shows it.
      return { kind: "change-done", shownIn: "page", message: "", detail: null };
    }
    if (hasCode && !hasSession) {
      return {
        kind: "other-browser",
        shownIn: pathname === "/update-password" ? "page" : "banner",
        message: m.redirect_other_browser(),
        detail: m.redirect_other_browser_detail(),
      };
    }
    return null;
  }

  return {
    /** True when the server redirected the user here, perhaps with a session. */
    isRedirect,
    /**
     * Removes the parameters from the address once the client has read it, and returns what is left
     * to show.
     */
    settle(error: unknown, hasSession: boolean): Promise<RedirectOutcome | null> {
      if (isRedirect) cleanAddress();
      return outcome(error, hasSession);
    },
  };
}

/** Returns the text if it can be the id of a request, which leaves no room for words. */
function requestIdOf(text: string | null): string | null {
  return text !== null && /^[0-9a-f-]{1,36}$/.test(text) ? text : null;
}

/** Removes everything from the address that is of no use on the next visit, above all tokens. */
function cleanAddress(): void {
  const url = new URL(window.location.href);
  for (const name of queryParameters) url.searchParams.delete(name);
  const fragment = new URLSearchParams(url.hash.slice(1));
  if (fragmentParameters.some((name) => fragment.has(name))) url.hash = "";
  window.history.replaceState(window.history.state, "", url.pathname + url.search + url.hash);
}
