import type { Session } from "@supabase/supabase-js";
import { identify, track } from "../../analytics";
import { type Auth, sessionIdOf } from "./client";

const reportedKey = "portico.reported-session";

/** How long a tab waits for the one that signed in to report it, before it does so itself. */
const patienceMs = 2000;

/**
 * Reports each sign-in once. The client says "signed in" again when a page is reloaded, when a tab comes back to the
 * front, and in every other tab; all those concern a session that is already known.
 */
export function signInReports(auth: Auth) {
  let known = auth.sessionAtStart;

  function isReported(id: string): boolean {
    return id === known || auth.storage.getItem(reportedKey) === id;
  }

  function report(session: Session, id: string): void {
    if (isReported(id)) return;
    known = id;
    auth.storage.setItem(reportedKey, id);
    const method = signInMethod(session);
    if (isNewAccount(session) && method !== "email") track("sign_up", { method });
    track("sign_in", { method });
  }

  return {
    /** A signed-in event arrived. */
    onSignedIn(session: Session): void {
      identify(session.user.id);
      const id = sessionIdOf(session.access_token);
      if (auth.takeOwnSignIn()) report(session, id);
      else if (!isReported(id)) window.setTimeout(() => report(session, id), patienceMs);
    },
  };
}

/** The person's provider, or e-mail when the account names none. */
export function signInMethod(session: Session): string {
  const provider: unknown = session.user.app_metadata.provider;
  return typeof provider === "string" && provider !== "" ? provider : "email";
}

function isNewAccount({ user }: Session): boolean {
  const age = Date.parse(user.last_sign_in_at ?? "") - Date.parse(user.created_at);
  return age >= 0 && age < 10_000;
}
