import type { Session } from "@supabase/supabase-js";
import { identify, track } from "../../analytics";
import { type AuthConnection, sessionIdOf } from "./client";

const reportedKey = "portico.reported-session";

/**
 * The time that a tab leaves to the tab that signed in to report it, before it reports the sign-in
 * itself.
 */
const otherTabMs = 2000;

/**
 * Reports each sign-in once. The client emits "signed in" again when a page is reloaded, when a tab
 * comes to the front, and in every other tab; those events are about a session that is already
 * known.
 */
export function createSignInReporter(auth: AuthConnection) {
  let knownId = auth.sessionAtStart;

  function isReported(id: string): boolean {
    return id === knownId || auth.storage.getItem(reportedKey) === id;
  }

  function report(session: Session, id: string): void {
    if (isReported(id)) return;
    knownId = id;
    auth.storage.setItem(reportedKey, id);
    const method = signInMethod(session);
    if (isNewAccount(session) && method !== "email") track("sign_up", { method });
    track("sign_in", { method });
  }

  return {
    /** Handles a signed-in event of the client. */
    onSignedIn(session: Session): void {
      identify(session.user.id);
      const id = sessionIdOf(session.access_token);
      if (auth.takeOwnSignIn()) report(session, id);
      else if (!isReported(id)) window.setTimeout(() => report(session, id), otherTabMs);
    },
  };
}

/** Returns the user's provider; `email` when the account names none. */
export function signInMethod(session: Session): string {
  const provider: unknown = session.user.app_metadata.provider;
  return typeof provider === "string" && provider !== "" ? provider : "email";
}

function isNewAccount({ user }: Session): boolean {
  const age = Date.parse(user.last_sign_in_at ?? "") - Date.parse(user.created_at);
  return age >= 0 && age < 10_000;
}
