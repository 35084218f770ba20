import { Fingerprint } from "lucide-react";
import { useCallback, useEffect, useRef, useState } from "react";
import { LastUsed } from "../../components/last-used";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { signInFromAutofill } from "./passkey-autofill";

/**
 * The button for a passkey. While it is shown, the browser also offers passkeys in the form's email
 * field.
 */
export function PasskeySignIn() {
  const { client, lastMethod, rememberMethod } = useAuth();
  const [isPending, setIsPending] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const autofill = useRef<AbortController | null>(null);

  const offerInAutofill = useCallback(() => {
    const controller = new AbortController();
    autofill.current = controller;
    signInFromAutofill(client, controller.signal, setFailure).then((isSignedIn) => {
      if (isSignedIn) rememberMethod("passkey");
    }, setFailure);
  }, [client, rememberMethod]);

  useEffect(() => {
    offerInAutofill();
    return () => autofill.current?.abort();
  }, [offerInAutofill]);

  async function signIn() {
    setIsPending(true);
    setFailure(null);
    // A browser has one request at a time.
    autofill.current?.abort();
    const { error } = await client.signInWithPasskey();
    setIsPending(false);
    if (error) {
      setFailure(error);
      offerInAutofill();
    } else rememberMethod("passkey");
  }

  return (
    <div className="mt-3">
      <Button tone="secondary" className="relative w-full" isPending={isPending} onClick={signIn}>
        {!isPending && <Fingerprint aria-hidden className="size-[1.15rem]" strokeWidth={1.75} />}
        {isPending ? m.passkey_sign_in_pending() : m.passkey_sign_in()}
        {lastMethod === "passkey" && <LastUsed />}
      </Button>
      {failure !== null && (
        <Alert tone="danger" className="mt-3">
          {describeError(failure).message}
        </Alert>
      )}
    </div>
  );
}
