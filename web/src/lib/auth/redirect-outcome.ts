import { type Described, describeError } from "../errors";

/** Why a link or a provider did not bring the person in. */
export interface ArrivalProblem extends Described {
  kind: "refused" | "other-browser" | "note" | "change-half-done" | "change-done";
  /** Who tells it: the banner above every page, or the page that the link leads to in its own words. */
  toldBy: "banner" | "page";
  /** The server's own description, when it is one that the server gives. */
  detail: string | null;
}

const parameters = ["code", "error", "error_code", "error_description", "message", "sb", "sb_flow_id"];
const signs = ["access_token", "refresh_token", "error", "error_code", "error_description", "message", "sb"];

/** The sentence of the server that people meet most; the others say no more than their code. */
const sentence = "Email link is invalid or has expired";

/** Reads what the address says before the client takes its part of it away. */
export function openArrival() {
  const query = new URLSearchParams(window.location.search);
  const fragment = new URLSearchParams(window.location.hash.slice(1));
  const said = (name: string) => query.get(name) ?? fragment.get(name);
  const hasCode = query.has("code");
  const hasError = said("error") !== null || said("error_code") !== null || said("error_description") !== null;
  const comesFromServer = hasCode || hasError || fragment.has("sb") || query.has("sb") || fragment.has("access_token");
  // The server has one message, for the first of two links of a change.
  const hasMessage = comesFromServer && said("message") !== null;
  const { pathname } = window.location;
  const isEmailChange = pathname === "/confirm-email-change";

  return {
    /** Whether the server sent the person here, perhaps with a session. */
    comesFromServer,
    /** To be called when the client is done with the address: cleans it and says what is left to tell. */
    settle(error: unknown, hasSession: boolean): ArrivalProblem | null {
      if (comesFromServer) cleanAddress();
      if (error) {
        // Anyone can write an address, so nothing of it is shown: it only selects among known sentences.
        const described = describeError(hasError ? { code: said("error_code") ?? said("error"), message: "" } : error);
        return { kind: "refused", toldBy: "banner", ...described, detail: said("error_description") === sentence ? sentence : null };
      }
      if (hasMessage) {
        const [kind, toldBy] = isEmailChange ? (["change-half-done", "page"] as const) : (["note", "banner"] as const);
        return { kind, toldBy, message: "Now open the link in the other mail too.", detail: null };
      }
      if (hasCode && isEmailChange) {
        // The server hands out a code once the change is made, whichever browser then shows it.
        return { kind: "change-done", toldBy: "page", message: "", detail: null };
      }
      if (hasCode && !hasSession) {
        return {
          kind: "other-browser",
          toldBy: pathname === "/update-password" ? "page" : "banner",
          message: "You opened this link in another browser than the one you began in.",
          detail:
            "A link signs in only the browser that asked for it, and works once. If it was to confirm your address, that is done: sign in here with your password or a new code.",
        };
      }
      return null;
    },
  };
}

/** Takes everything from the address that is of no use on the next visit, tokens above all. */
function cleanAddress(): void {
  const url = new URL(window.location.href);
  for (const name of parameters) url.searchParams.delete(name);
  const fragment = new URLSearchParams(url.hash.slice(1));
  if (signs.some((name) => fragment.has(name))) url.hash = "";
  const clean = url.pathname + url.search + url.hash;
  window.history.replaceState(window.history.state, "", clean);
}
