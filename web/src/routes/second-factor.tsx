import { useEffect } from "react";
import { SignedInOnly } from "../components/guards";
import { FormSkeleton } from "../components/page-skeletons";
import { ConfirmSignIn } from "../features/mfa/confirm-sign-in";
import { useAuth } from "../lib/auth/auth-context";
import { needsSecondFactor } from "../lib/auth/factors";
import { useRedirect } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";
import { useSearchParams, visitorSearch } from "../lib/use-search-params";
import * as m from "../paraglide/messages";

export default function SecondFactorPage() {
  const { session } = useAuth();
  const { next } = useSearchParams(visitorSearch);
  const redirect = useRedirect();
  const isNeeded = needsSecondFactor(session);
  const isDone = session !== null && !isNeeded;
  usePageTitle(m.second_factor_page());

  useEffect(() => {
    if (isDone) redirect(next ?? "/app");
  }, [isDone, next, redirect]);

  return (
    <SignedInOnly skeleton={<FormSkeleton />} isForSecondFactor>
      {session && isNeeded ? <ConfirmSignIn user={session.user} /> : <FormSkeleton />}
    </SignedInOnly>
  );
}
