import { useState } from "react";
import { useAuth } from "../lib/auth/auth-context";
import { loadErrorTexts } from "../lib/load-error-texts";
import type { AppAddress } from "../lib/paths";
import * as m from "../paraglide/messages";
import { LastUsed } from "./last-used";
import { Alert } from "./ui/alert";
import { Button } from "./ui/button";

/** The button "Continue with Google", by Google's branding rules. */
export function GoogleButton({ next = null, className }: { next?: AppAddress | null; className?: string }) {
  const { signInWithGoogle, lastMethod } = useAuth();
  const [isPending, setIsPending] = useState(false);
  const [error, setError] = useState<string | null>(null);

  async function start() {
    setIsPending(true);
    setError(null);
    try {
      await signInWithGoogle(next);
    } catch (failure) {
      const { describeError } = await loadErrorTexts();
      setError(describeError(failure).message);
      setIsPending(false);
    }
  }

  return (
    <div className={className}>
      <Button tone="secondary" isPending={isPending} onClick={start} className="relative w-full">
        {!isPending && <GoogleMark />}
        {m.continue_with({ provider: "Google" })}
        {lastMethod === "google" && <LastUsed />}
      </Button>
      {error !== null && (
        <Alert tone="danger" className="mt-3">
          {error}
        </Alert>
      )}
    </div>
  );
}

function GoogleMark() {
  return (
    <svg aria-hidden width="18" height="18" viewBox="0 0 18 18">
      <path fill="#4285F4" d="M17.64 9.2c0-.64-.06-1.25-.16-1.84H9v3.48h4.84a4.14 4.14 0 0 1-1.8 2.72v2.26h2.92c1.7-1.57 2.68-3.88 2.68-6.62Z" />
      <path fill="#34A853" d="M9 18c2.43 0 4.47-.8 5.96-2.18l-2.92-2.26c-.8.54-1.84.86-3.04.86-2.34 0-4.33-1.58-5.04-3.71H.96v2.33A9 9 0 0 0 9 18Z" />
      <path fill="#FBBC05" d="M3.96 10.71a5.4 5.4 0 0 1 0-3.42V4.96H.96a9 9 0 0 0 0 8.08l3-2.33Z" />
      <path fill="#EA4335" d="M9 3.58c1.32 0 2.5.45 3.44 1.35l2.58-2.59A9 9 0 0 0 .96 4.96l3 2.33C4.67 5.16 6.66 3.58 9 3.58Z" />
    </svg>
  );
}
