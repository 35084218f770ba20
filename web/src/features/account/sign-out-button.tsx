import { useState } from "react";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { useAuth } from "../../lib/auth/auth-context";

/** Signs out on this device. A failure has a row of its own, below the header of the page. */
export function SignOutButton() {
  const { signOut, signOutHere } = useAuth();
  const [isPending, setIsPending] = useState(false);
  const [error, setError] = useState<string | null>(null);

  async function start() {
    setIsPending(true);
    setError(null);
    try {
      // The page's guard leads away once there is no session.
      await signOut();
    } catch (failure) {
      setError(describeError(failure).message);
      setIsPending(false);
    }
  }

  return (
    <>
      <Button tone="secondary" isPending={isPending} onClick={start}>
        {isPending ? m.sign_out_pending() : m.sign_out()}
      </Button>
      {error !== null && (
        <Alert
          tone="danger"
          className="basis-full"
          actions={
            <button type="button" className="font-medium underline" onClick={() => void signOutHere()}>
              {m.sign_out_anyway()}
            </button>
          }
        >
          {m.sign_out_failed({ reason: error })}
        </Alert>
      )}
    </>
  );
}
