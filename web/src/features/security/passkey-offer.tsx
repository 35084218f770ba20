import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Fingerprint } from "lucide-react";
import { useState } from "react";
import { RichText } from "../../components/rich-text";
import { TextLink } from "../../components/text-link";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { addressForPasskeys, supportsPasskeys } from "../../lib/auth/passkey-support";
import { useSignInMethods } from "../../lib/auth/sign-in-methods";
import { describeError } from "../../lib/errors";
import { openStorage } from "../../lib/storage";
import * as m from "../../paraglide/messages";
import { addPasskey, passkeysKey, passkeysQuery } from "./passkeys";

const dismissedKey = "portico.passkey-offer";

/** Offers a passkey once in each browser, to users who have none. */
export function PasskeyOffer() {
  const { client } = useAuth();
  const queries = useQueryClient();
  const { methods } = useSignInMethods();
  const [isDismissed, setIsDismissed] = useState(() => openStorage().getItem(dismissedKey) !== null);
  const isPossible = methods.passkeys && supportsPasskeys() && addressForPasskeys() === null;
  const { data: passkeys } = useQuery({ ...passkeysQuery(client), enabled: isPossible && !isDismissed });
  const add = useMutation({
    mutationFn: () => addPasskey(client),
    onSuccess: () => {
      openStorage().setItem(dismissedKey, "added");
      return queries.invalidateQueries({ queryKey: passkeysKey });
    },
  });

  function dismiss() {
    openStorage().setItem(dismissedKey, "dismissed");
    setIsDismissed(true);
  }

  if (add.isSuccess) {
    return (
      <Alert tone="info">
        <RichText
          message={m.passkey_offer_added}
          inputs={{}}
          elements={{ link: (text) => <TextLink href="/app/security">{text}</TextLink> }}
        />
      </Alert>
    );
  }
  if (isDismissed || passkeys?.length !== 0) return null;
  return (
    <section aria-label={m.passkey_offer_title()} className="rise rounded border border-line bg-surface px-5 py-4 sm:px-6">
      <div className="flex flex-wrap items-center gap-x-6 gap-y-4">
        <div className="flex min-w-0 flex-1 basis-72 items-start gap-4">
          <Fingerprint aria-hidden className="mt-0.5 size-6 shrink-0 text-accent" strokeWidth={1.75} />
          <div>
            <p className="font-medium">{m.passkey_offer_title()}</p>
            <p className="text-sm text-soft">{m.passkey_offer_text()}</p>
          </div>
        </div>
        <div className="flex flex-wrap gap-2">
          <Button tone="quiet" size="sm" onClick={dismiss}>
            {m.passkey_offer_dismiss()}
          </Button>
          <Button size="sm" isPending={add.isPending} onClick={() => add.mutate()}>
            {add.isPending ? m.passkeys_adding() : m.passkeys_add()}
          </Button>
        </div>
      </div>
      {add.error && (
        <Alert tone="danger" className="mt-4">
          {describeError(add.error).message}
        </Alert>
      )}
    </section>
  );
}
