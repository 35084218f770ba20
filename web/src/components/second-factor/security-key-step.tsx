import { KeyRound } from "lucide-react";
import { useState } from "react";
import { useAuth } from "../../lib/auth/auth-context";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { Alert } from "../ui/alert";
import { Button } from "../ui/button";

/** Confirms the session with a security key, or with what this device has in its place. */
export function SecurityKeyStep({ factorId, onConfirmed }: { factorId: string; onConfirmed: () => void }) {
  const { client } = useAuth();
  const [isPending, setIsPending] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);

  async function confirm() {
    setIsPending(true);
    setFailure(null);
    const { error } = await client.mfa.webauthn.authenticate({ factorId });
    setIsPending(false);
    if (error) setFailure(error);
    else onConfirmed();
  }

  return (
    <>
      {failure !== null && (
        <Alert tone="danger" className="mb-6">
          {describeError(failure).message}
        </Alert>
      )}
      <p className="mb-6 text-soft">{m.second_factor_key_lead()}</p>
      <Button className="w-full" isPending={isPending} onClick={confirm}>
        {!isPending && <KeyRound aria-hidden className="size-[1.15rem]" />}
        {isPending ? m.second_factor_key_pending() : m.second_factor_key_submit()}
      </Button>
    </>
  );
}
