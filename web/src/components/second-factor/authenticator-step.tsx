import { useAuth } from "../../lib/auth/auth-context";
import * as m from "../../paraglide/messages";
import { CodeForm } from "../form/code-form";

/** Confirms the session with a code of an authenticator app. */
export function AuthenticatorStep({ factorId, onConfirmed }: { factorId: string; onConfirmed: () => void }) {
  const { client } = useAuth();

  async function confirm(code: string) {
    const { error } = await client.mfa.challengeAndVerify({ factorId, code });
    if (error) throw error;
    onConfirmed();
  }

  return (
    <>
      <p className="mb-6 text-soft">{m.second_factor_authenticator_lead()}</p>
      <CodeForm length={6} submit={m.second_factor_submit()} pending={m.second_factor_pending()} onSubmit={confirm} />
    </>
  );
}
