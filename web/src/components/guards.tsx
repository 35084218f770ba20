import { type ReactNode, useEffect, useRef, useState } from "react";
import { useAuth } from "../lib/auth/auth-context";
import { needsSecondFactor } from "../lib/auth/factors";
import { readUnverifiedEmail } from "../lib/auth/unverified-email";
import { currentAddress, useRedirect } from "../lib/navigation";
import { safeNext, takeRememberedNext } from "../lib/next";
import { type AppAddress, visitorAddress } from "../lib/paths";
import { rememberPendingCode } from "../lib/pending-code";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";
import { FormSkeleton } from "./page-skeletons";
import { Button, ButtonLink } from "./ui/button";

/**
 * Shows its page to signed-in users. Visitors sign in first and return to it; users with a second
 * factor confirm their session with it first, unless the page is the one for that.
 */
export function SignedInOnly({
  skeleton,
  isForSecondFactor = false,
  children,
}: {
  skeleton: ReactNode;
  isForSecondFactor?: boolean;
  children: ReactNode;
}) {
  const { user, session, loading, hasEnded, isUnreachable, isRedirect } = useAuth();
  const redirect = useRedirect();
  const isVisitor = !loading && user === null && !hasEnded && !isUnreachable;

  // Read before the client is open, which removes it from the address.
  const [unverified] = useState(readUnverifiedEmail);
  const wasSignedIn = useRef(false);
  useEffect(() => {
    if (!isVisitor) return;
    // After a sign-out on this page, to the landing page; after an arrival without a session, to
    // the sign-in page.
    if (wasSignedIn.current) redirect("/");
    else if (unverified) {
      rememberPendingCode(unverified);
      redirect("/verify");
    }
    // A sign-in with a provider that failed or was cancelled keeps the address that it was for.
    else redirect(isRedirect ? visitorAddress("/sign-in", { next: takeRememberedNext() }) : signInAddress());
  }, [isVisitor, isRedirect, unverified, redirect]);

  const isSignedIn = user !== null;
  const isHalfSignedIn = needsSecondFactor(session);
  useEffect(() => {
    if (!isSignedIn) return;
    wasSignedIn.current = true;
    if (isForSecondFactor) return;
    // Providers always return to /app; this is the address that the sign-in was for.
    const next = takeRememberedNext();
    if (isHalfSignedIn) redirect(visitorAddress("/mfa", { next: next ?? returnAddress() }));
    else if (next !== null && next !== currentAddress()) redirect(next);
  }, [isSignedIn, isHalfSignedIn, isForSecondFactor, redirect]);

  useEffect(() => {
    // The element that had the focus is gone: a screen reader starts at the notice.
    if (hasEnded && wasSignedIn.current) document.getElementById("main")?.focus({ preventScroll: true });
  }, [hasEnded]);

  if (user) return isHalfSignedIn && !isForSecondFactor ? skeleton : children;
  if (hasEnded) return <SignedOutNotice />;
  if (isUnreachable) return <UnreachableNotice />;
  return skeleton;
}

/** Shows its page to visitors. Signed-in users go on to `next`. */
export function VisitorsOnly({ next, children }: { next: AppAddress | null; children: ReactNode }) {
  const { user, isUndecided } = useAuth();
  const redirect = useRedirect();
  const isSignedIn = user !== null;
  useEffect(() => {
    if (isSignedIn) redirect(next ?? "/app");
  }, [isSignedIn, next, redirect]);
  if (isUndecided || isSignedIn) return <FormSkeleton />;
  return children;
}

function SignedOutNotice() {
  usePageTitle(m.signed_out_page());
  return (
    <section className="m-auto max-w-md py-20 text-center">
      <h1 className="text-3xl">{m.signed_out_title()}</h1>
      <p className="mt-4 text-soft">{m.signed_out_text()}</p>
      <div className="mt-8 flex flex-wrap justify-center gap-3">
        <ButtonLink href={signInAddress()}>{m.signed_out_sign_in()}</ButtonLink>
        <ButtonLink tone="secondary" href="/">
          {m.go_to_start_page()}
        </ButtonLink>
      </div>
    </section>
  );
}

function UnreachableNotice() {
  usePageTitle(m.unreachable_page());
  return (
    <section role="status" className="m-auto max-w-md py-20 text-center">
      <h1 className="text-3xl">{m.unreachable_title()}</h1>
      <p className="mt-4 text-soft">{m.unreachable_text()}</p>
      <Button className="mt-8" onClick={() => window.location.reload()}>
        {m.unreachable_retry()}
      </Button>
    </section>
  );
}

function signInAddress() {
  return visitorAddress("/sign-in", { next: returnAddress() });
}

/** Returns this page's address, or the one that it leads to itself. */
function returnAddress(): AppAddress | null {
  return safeNext(currentAddress()) ?? safeNext(new URLSearchParams(window.location.search).get("next"));
}
