import type { Provider } from "@supabase/supabase-js";
import { useState } from "react";
import { GoogleButton } from "../../components/google-button";
import { LastUsed } from "../../components/last-used";
import { Button } from "../../components/ui/button";
import { Skeleton } from "../../components/ui/skeleton";
import { useAuth } from "../../lib/auth/auth-context";
import { providerName, useSignInMethods } from "../../lib/auth/sign-in-methods";
import { describeError } from "../../lib/errors";
import type { AppAddress } from "../../lib/paths";
import * as m from "../../paraglide/messages";

/** The buttons of the providers, Google first. */
export function ProviderButtons({ next }: { next: AppAddress | null }) {
  const { signInWithProvider, lastMethod } = useAuth();
  const { methods, isPending } = useSignInMethods();
  const [error, setError] = useState<string | null>(null);
  if (isPending) return <Skeleton className="h-11 w-full" />;
  if (!methods.google && methods.otherProviders.length === 0) return null;
  return (
    <div className="space-y-3">
      {methods.google && <GoogleButton next={next} />}
      {methods.otherProviders.map((provider) => (
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
          {m.continue_with({ provider: providerName(provider) })}
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
