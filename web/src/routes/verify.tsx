import { useEffect, useState } from "react";
import { FormSkeleton } from "../components/page-skeletons";
import { RequestCodeForm } from "../features/sign-in/request-code-form";
import { VerifyCodeForm, verifyTitle } from "../features/sign-in/verify-code-form";
import { useAuth } from "../lib/auth/auth-context";
import { useRedirect } from "../lib/navigation";
import { forgetPendingCode, readPendingCode } from "../lib/pending-code";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function VerifyPage() {
  const { user, isUndecided } = useAuth();
  const redirect = useRedirect();
  const [pending, setPending] = useState(readPendingCode);
  // A recovery code signs the user in too, but its purpose is a new password.
  const target = pending?.kind === "recovery" ? "/update-password" : (pending?.next ?? "/app");
  const isSignedIn = user !== null;
  usePageTitle(pending === null ? m.verify_page() : verifyTitle(pending));

  useEffect(() => {
    if (!isSignedIn) return;
    forgetPendingCode();
    redirect(target);
  }, [isSignedIn, target, redirect]);

  if (isUndecided || isSignedIn) return <FormSkeleton />;
  if (pending === null) return <RequestCodeForm onPending={setPending} />;
  return <VerifyCodeForm pending={pending} onResent={setPending} />;
}
