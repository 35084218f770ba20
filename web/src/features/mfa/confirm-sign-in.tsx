import type { User } from "@supabase/supabase-js";
import { useState } from "react";
import { FormPage } from "../../components/form-page";
import { SecondFactor } from "../../components/second-factor/second-factor";
import { Alert } from "../../components/ui/alert";
import { useAuth } from "../../lib/auth/auth-context";
import { verifiedFactors } from "../../lib/auth/factors";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";

/** The second step of a sign-in. The page leads on once the session is confirmed. */
export function ConfirmSignIn({ user }: { user: User }) {
  return (
    <FormPage title={m.second_factor_title()} beginsWithLead>
      <SecondFactor factors={verifiedFactors(user)} onConfirmed={() => undefined} />
      <SignOut user={user} />
    </FormPage>
  );
}

function SignOut({ user }: { user: User }) {
  const { signOut } = useAuth();
  const [isPending, setIsPending] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const contact = user.email !== undefined && user.email !== "" ? user.email : `+${user.phone ?? ""}`;

  async function start() {
    setIsPending(true);
    setFailure(null);
    try {
      // The guard of the page leads away once there is no session.
      await signOut();
    } catch (error) {
      setFailure(error);
      setIsPending(false);
    }
  }

  return (
    <div className="mt-6 border-t border-line pt-5 text-sm text-soft">
      {failure !== null && (
        <Alert tone="danger" className="mb-4">
          {m.sign_out_failed({ reason: describeError(failure).message })}
        </Alert>
      )}
      <p className="[overflow-wrap:anywhere]">
        {m.second_factor_signed_in_as({ contact })}{" "}
        <button
          type="button"
          disabled={isPending}
          onClick={start}
          className="font-medium text-ink underline underline-offset-4 disabled:opacity-60"
        >
          {isPending ? m.sign_out_pending() : m.sign_out()}
        </button>
      </p>
    </div>
  );
}
