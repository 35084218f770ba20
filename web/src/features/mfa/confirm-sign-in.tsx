import type { User } from "@supabase/supabase-js";
import { FormPage } from "../../components/form-page";
import { SecondFactor } from "../../components/second-factor/second-factor";
import { SignOutAlert } from "../../components/sign-out-alert";
import { verifiedFactors } from "../../lib/auth/factors";
import { useSignOut } from "../../lib/auth/use-sign-out";
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
  const { start, isPending, failure } = useSignOut();
  const contact = user.email !== undefined && user.email !== "" ? user.email : `+${user.phone ?? ""}`;

  return (
    <div className="mt-6 border-t border-line pt-5 text-sm text-soft">
      {failure !== null && <SignOutAlert reason={failure} className="mb-4" />}
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
