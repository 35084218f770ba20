import { type ReactNode, useEffect, useRef } from "react";
import { useAuth } from "../lib/auth/auth-context";
import { currentAddress, useRedirect } from "../lib/navigation";
import { safeNext, takeRememberedNext } from "../lib/next";
import { type AppAddress, visitorAddress } from "../lib/paths";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";
import { Button, ButtonLink } from "./ui/button";
import { Skeleton } from "./ui/skeleton";

/** Shows its page to signed-in users. Visitors sign in first and return to it. */
export function SignedInOnly({ skeleton, children }: { skeleton: ReactNode; children: ReactNode }) {
  const { user, loading, hasEnded, isUnreachable } = useAuth();
  const redirect = useRedirect();
  const isVisitor = !loading && user === null && !hasEnded && !isUnreachable;

  const wasSignedIn = useRef(false);
  useEffect(() => {
    if (!isVisitor) return;
    // After a sign-out on this page, to the landing page; after an arrival without a session, to the sign-in page.
    redirect(wasSignedIn.current ? "/" : signInAddress());
  }, [isVisitor, redirect]);

  const isSignedIn = user !== null;
  useEffect(() => {
    if (!isSignedIn) return;
    wasSignedIn.current = true;
    // Providers always return to /app; this is the address that the sign-in was for.
    const next = takeRememberedNext();
    if (next !== null && next !== currentAddress()) redirect(next);
  }, [isSignedIn, redirect]);

  if (user) return children;
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

export function FormSkeleton() {
  return (
    <div aria-busy="true" className="mx-auto w-full max-w-sm space-y-4 py-10 lg:py-16">
      <Skeleton className="h-10 w-3/5" />
      <Skeleton className="h-11 w-full" />
      <Skeleton className="h-11 w-full" />
      <Skeleton className="h-11 w-full" />
    </div>
  );
}

function signInAddress() {
  return visitorAddress("/sign-in", { next: safeNext(currentAddress()) });
}
