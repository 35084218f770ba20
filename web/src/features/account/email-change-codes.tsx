import { Check } from "lucide-react";
import { useState } from "react";
import { CodeForm } from "../../components/form/code-form";
import { useAuth } from "../../lib/auth/auth-context";
import { openSeparateClient } from "../../lib/auth/separate-client";
import { useConfig } from "../../lib/config-context";
import * as m from "../../paraglide/messages";

/**
 * Confirms a change of the email address with the codes of its emails, one after the other.
 * `addresses` are those that have still to confirm it.
 */
export function EmailChangeCodes({ addresses, onConfirmed }: { addresses: string[]; onConfirmed: () => void }) {
  const { client } = useAuth();
  const config = useConfig();
  const [accepted, setAccepted] = useState<string[]>([]);
  const [chosen, setChosen] = useState<string | null>(null);
  const open = addresses.filter((address) => !accepted.includes(address));
  const email = open.find((address) => address === chosen) ?? open[0];
  const other = open.find((address) => address !== email);

  async function confirm(address: string, token: string) {
    const separate = await openSeparateClient(config);
    const { data, error } = await separate.verifyOtp({ type: "email_change", email: address, token });
    if (error) throw error;
    if (data.session) {
      // The change is made. This browser keeps the session that it has, and receives the new
      // address with its refresh. If that fails, the page's next look for the change repeats it.
      await separate.signOut({ scope: "local" });
      await client.refreshSession();
    }
    setAccepted((before) => [...before, address]);
    onConfirmed();
  }

  return (
    <div className="mt-3 space-y-3">
      <div role="status" className="empty:hidden">
        {accepted.map((address) => (
          <p key={address} className="flex items-start gap-2 text-sm font-medium text-success [overflow-wrap:anywhere]">
            <Check aria-hidden className="mt-0.5 size-4 shrink-0" />
            {m.email_change_code_accepted({ email: address })}
          </p>
        ))}
      </div>
      {email !== undefined && (
        <CodeForm
          key={email}
          length={config.accounts.codeLength.email}
          label={m.email_change_code_label({ email })}
          submit={m.email_change_code_submit()}
          pending={m.email_change_code_pending()}
          onSubmit={(code) => confirm(email, code)}
        />
      )}
      {other !== undefined && (
        <button
          type="button"
          className="rounded py-1 text-left text-sm text-soft underline underline-offset-4 [overflow-wrap:anywhere] hover:text-ink"
          onClick={() => setChosen(other)}
        >
          {m.email_change_use_other_code({ email: other })}
        </button>
      )}
    </div>
  );
}
