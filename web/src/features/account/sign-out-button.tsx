import { useState } from "react";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { describeError } from "../../lib/errors";
import { useAuth } from "../../lib/auth/auth-context";

export function SignOutButton() {
  const { signOut } = useAuth();
  const [isPending, setIsPending] = useState(false);
  const [error, setError] = useState<string | null>(null);

  async function leave() {
    setIsPending(true);
    setError(null);
    try {
      // The page's guard leads away once nobody is signed in.
      await signOut();
    } catch (failure) {
      setError(describeError(failure).message);
      setIsPending(false);
    }
  }

  return (
    <div className="flex flex-col items-start gap-3 sm:items-end">
      <Button tone="secondary" isPending={isPending} onClick={leave}>
        {isPending ? "Signing out" : "Sign out"}
      </Button>
      {error !== null && <Alert tone="danger">You are still signed in. {error}</Alert>}
    </div>
  );
}
