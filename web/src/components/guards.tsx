import { type ReactNode, useEffect, useRef } from "react";
import { Button } from "./ui/button";
import { Skeleton } from "./ui/skeleton";
import { AppLink, go } from "../lib/navigation";
import { takeRememberedNext, withNext } from "../lib/next";
import { usePageTitle } from "../lib/use-page-title";
import { useAuth } from "../lib/auth/auth-context";

/** Shows its page to people who are signed in; others sign in first and come back to it. */
export function SignedInOnly({ skeleton, children }: { skeleton: ReactNode; children: ReactNode }) {
  const { user, loading, hasEnded, isUnreachable } = useAuth();
  const isVisitor = !loading && user === null && !hasEnded && !isUnreachable;

  const wasSignedIn = useRef(false);
  useEffect(() => {
    if (!isVisitor) return;
    // Whoever just signed out here is done; whoever comes without a session wants to get in.
    go(wasSignedIn.current ? "/" : withNext("/sign-in", here()), { replace: true });
  }, [isVisitor]);

  const isSignedIn = user !== null;
  useEffect(() => {
    if (!isSignedIn) return;
    wasSignedIn.current = true;
    // Providers always come back to /app; this is where the person was on their way to.
    const next = takeRememberedNext();
    if (next !== null && next !== here()) go(next, { replace: true });
  }, [isSignedIn]);

  if (user) return children;
  if (hasEnded) return <SignedOutNotice />;
  if (isUnreachable) return <UnreachableNotice />;
  return skeleton;
}

/** Shows its page to visitors; people who are signed in go on to where they were on their way to. */
export function VisitorsOnly({ next, children }: { next: string | null; children: ReactNode }) {
  const { user, isUndecided } = useAuth();
  const isSignedIn = user !== null;
  useEffect(() => {
    if (isSignedIn) go(next ?? "/app", { replace: true });
  }, [isSignedIn, next]);
  if (isUndecided || isSignedIn) return <FormSkeleton />;
  return children;
}

function SignedOutNotice() {
  usePageTitle("Signed out");
  return (
    <section className="m-auto max-w-md py-20 text-center">
      <h1 className="text-3xl">You have been signed out</h1>
      <p className="mt-4 text-soft">
        Your session has ended, or you signed out in another tab. Nothing is lost: sign in and you are back where you
        were.
      </p>
      <div className="mt-8 flex flex-wrap justify-center gap-3">
        <Button asChild>
          <AppLink href={withNext("/sign-in", here())}>Sign in again</AppLink>
        </Button>
        <Button tone="secondary" asChild>
          <AppLink href="/">Go to the start page</AppLink>
        </Button>
      </div>
    </section>
  );
}

function UnreachableNotice() {
  usePageTitle("No connection");
  return (
    <section role="status" className="m-auto max-w-md py-20 text-center">
      <h1 className="text-3xl">We can’t reach the server</h1>
      <p className="mt-4 text-soft">You are still signed in on this device. As soon as there is a connection, this page works again.</p>
      <Button className="mt-8" onClick={() => window.location.reload()}>
        Try again
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

function here(): string {
  return window.location.pathname + window.location.search + window.location.hash;
}
