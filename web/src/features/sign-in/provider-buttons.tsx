import type { Provider } from "@supabase/supabase-js";
import { useState } from "react";
import { GoogleButton } from "../../components/google-button";
import { LastUsed } from "../../components/last-used";
import { Button } from "../../components/ui/button";
import { Skeleton } from "../../components/ui/skeleton";
import { useAuth } from "../../lib/auth/auth-context";
import { providerName } from "../../lib/auth/provider-name";
import { useSignInMethods } from "../../lib/auth/sign-in-methods";
import { describeError } from "../../lib/errors";
import type { AppAddress } from "../../lib/paths";
import * as m from "../../paraglide/messages";
import { ProviderLogo } from "./provider-logo";

/**
 * From this number of other providers on, their buttons stand side by side and show only the name.
 */
const gridFrom = 3;

/** The buttons of the providers, Google first. */
export function ProviderButtons({ next }: { next: AppAddress | null }) {
  const { signInWithProvider, lastMethod } = useAuth();
  const { methods, isPending } = useSignInMethods();
  const [error, setError] = useState<string | null>(null);
  const isGrid = methods.otherProviders.length >= gridFrom;
  if (isPending) return <Skeleton className="h-11 w-full" />;
  if (!methods.google && methods.otherProviders.length === 0) return null;
  return (
    <div className="space-y-3">
      {methods.google && <GoogleButton next={next} />}
      <div className={isGrid ? "grid gap-3 sm:grid-cols-2 sm:*:last:odd:col-span-2" : "space-y-3"}>
      {methods.otherProviders.map((provider) => (
        <Button
          key={provider}
          tone="secondary"
          className="relative w-full"
          aria-label={m.continue_with({ provider: providerName(provider) })}
          onClick={() =>
            // The server named it, so it is one of the client's providers or the server's own.
            void signInWithProvider(provider as Provider, next).catch((failure: unknown) =>
              setError(describeError(failure).message),
            )
          }
        >
          <ProviderLogo provider={provider} name={providerName(provider)} />
          {isGrid ? providerName(provider) : m.continue_with({ provider: providerName(provider) })}
          {lastMethod === provider && <LastUsed />}
        </Button>
      ))}
      </div>
      {error !== null && (
        <p role="alert" className="text-sm text-danger">
          {error}
        </p>
      )}
    </div>
  );
}
