import type { Provider } from "@supabase/supabase-js";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Button } from "../../components/ui/button";
import { Skeleton } from "../../components/ui/skeleton";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import { useAuth } from "../../lib/auth/auth-context";
import { GoogleButton } from "../../components/google-button";
import { LastUsed } from "../../components/last-used";
import { assumedMethods, methodsQuery, providerName, type SignInMethods } from "../../lib/auth/sign-in-methods";

/** The ways in that the server offers; all of them while it has not answered or can not. */
export function useSignInMethods(): { methods: SignInMethods; isPending: boolean } {
  const { data, isPending } = useQuery(methodsQuery(useConfig()));
  return { methods: data ?? assumedMethods, isPending };
}

/** Whether there is a button above the form. Nobody knows yet: there may be. */
export function hasProviders(methods: SignInMethods): boolean {
  return methods.google || methods.others.length > 0;
}

/** The providers' buttons, Google first. */
export function ProviderButtons({ next }: { next: string | null }) {
  const { signInWithProvider, lastMethod } = useAuth();
  const { methods, isPending } = useSignInMethods();
  const [error, setError] = useState<string | null>(null);
  if (isPending) return <Skeleton className="h-11 w-full" />;
  if (!hasProviders(methods)) return null;
  return (
    <div className="space-y-3">
      {methods.google && <GoogleButton next={next} />}
      {methods.others.map((provider) => (
        <Button
          key={provider}
          tone="secondary"
          className="relative w-full"
          onClick={() =>
            // The server named it, so it is one of the client's providers or the server's own.
            void signInWithProvider(provider as Provider, next).catch((failure: unknown) =>
              setError(describeError(failure).message),
            )
          }
        >
          Continue with {providerName(provider)}
          {lastMethod === provider && <LastUsed />}
        </Button>
      ))}
      {error !== null && (
        <p role="alert" className="text-sm text-danger">
          {error}
        </p>
      )}
    </div>
  );
}

export function Or() {
  return (
    <div className="my-6 flex items-center gap-4 text-sm text-soft">
      <span className="h-px flex-1 bg-line" />
      or
      <span className="h-px flex-1 bg-line" />
    </div>
  );
}
