import { useState } from "react";
import { usePathname } from "wouter/use-browser-location";
import { loadErrorTexts } from "../load-error-texts";
import { useAuth } from "./auth-context";

/** A sign-out from a button. */
export interface SignOutAction {
  start: () => Promise<void>;
  isPending: boolean;
  /** The reason why the last one failed. It ends with the session, and with the page. */
  failure: string | null;
}

/** Returns the sign-out of this device for one button, whose page shows `SignOutAlert`. */
export function useSignOut(): SignOutAction {
  const { user, signOut } = useAuth();
  const path = usePathname();
  const [isPending, setIsPending] = useState(false);
  const [failed, setFailed] = useState<{ reason: string; path: string } | null>(null);
  if (failed !== null && (user === null || failed.path !== path)) setFailed(null);

  async function start() {
    setIsPending(true);
    setFailed(null);
    try {
      // Where the page is for users, its guard leads away once there is no session.
      await signOut();
    } catch (error) {
      const { describeError } = await loadErrorTexts();
      setFailed({ reason: describeError(error).message, path: window.location.pathname });
    } finally {
      setIsPending(false);
    }
  }

  return { start, isPending, failure: failed?.reason ?? null };
}
