import type { User } from "@supabase/supabase-js";
import { useEffect } from "react";
import { useAuth } from "../../lib/auth/auth-context";
import { needsSecondFactor } from "../../lib/auth/factors";
import { useRedirect } from "../../lib/navigation";
import { useSearchParams, visitorSearch } from "../../lib/use-search-params";

/**
 * Returns the user whose sign-in waits for its second step, else `null`. Leads on to the page that
 * was asked for once the session is confirmed.
 */
export function useSecondStep(): User | null {
  const { session } = useAuth();
  const { next } = useSearchParams(visitorSearch);
  const redirect = useRedirect();
  const isNeeded = needsSecondFactor(session);
  const isDone = session !== null && !isNeeded;

  useEffect(() => {
    if (isDone) redirect(next ?? "/app");
  }, [isDone, next, redirect]);

  return isNeeded ? (session?.user ?? null) : null;
}
