import { useEffect, useState } from "react";
import { useAuth } from "../../lib/auth/auth-context";
import { useRedirect } from "../../lib/navigation";
import { forgetPendingCode, type PendingCode, readPendingCode } from "../../lib/pending-code";

/** The code that the page `/verify` asks for. */
interface PendingCodeStep {
  /** `null`: none was sent from this tab. */
  pending: PendingCode | null;
  setPending: (pending: PendingCode) => void;
  /** It is not known yet whether the user is signed in, or the page is about to be left. */
  isLoading: boolean;
}

/** Returns the pending code. Leads on to its page once the user is signed in. */
export function usePendingCode(): PendingCodeStep {
  const { user, isUndecided } = useAuth();
  const redirect = useRedirect();
  const [pending, setPending] = useState(readPendingCode);
  // A recovery code signs the user in too, but its purpose is a new password.
  const target = pending?.kind === "recovery" ? "/update-password" : (pending?.next ?? "/app");
  const isSignedIn = user !== null;

  useEffect(() => {
    if (!isSignedIn) return;
    forgetPendingCode();
    redirect(target);
  }, [isSignedIn, target, redirect]);

  return { pending, setPending, isLoading: isUndecided || isSignedIn };
}
