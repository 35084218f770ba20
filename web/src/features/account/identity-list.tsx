import type { User, UserIdentity } from "@supabase/supabase-js";
import { useMutation } from "@tanstack/react-query";
import { KeyRound, Link2, Smartphone } from "lucide-react";
import { useState } from "react";
import { RelativeTime } from "../../components/relative-time";
import { RichText } from "../../components/rich-text";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { Card } from "../../components/ui/card";
import { ConfirmDialog } from "../../components/ui/confirm-dialog";
import { useAuth } from "../../lib/auth/auth-context";
import { providerName } from "../../lib/auth/provider-name";
import { useSignInMethods } from "../../lib/auth/sign-in-methods";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";

/** The identities that sign in to this account. The last one cannot be removed. */
export function IdentityList({ user }: { user: User }) {
  const { client } = useAuth();
  const { accounts } = useConfig();
  const { methods } = useSignInMethods();
  const [identityToRemove, setIdentityToRemove] = useState<UserIdentity | null>(null);
  const identities = user.identities ?? [];
  const canLinkGoogle = accounts.manualLinking && methods.google && !identities.some(({ provider }) => provider === "google");

  const link = useMutation({
    mutationFn: async () => {
      const { error } = await client.linkIdentity({
        provider: "google",
        options: { redirectTo: `${window.location.origin}/app` },
      });
      if (error) throw error;
    },
  });
  const unlink = useMutation({
    mutationFn: async (identity: UserIdentity) => {
      const { error } = await client.unlinkIdentity(identity);
      if (error) throw error;
      // The stored session holds the user as before; a refreshed one holds the current user.
      await client.refreshSession();
    },
    onSettled: () => setIdentityToRemove(null),
  });
  const error = link.error ?? unlink.error;

  return (
    <Card
      title={m.identities_title()}
      description={m.identities_description()}
      aside={
        canLinkGoogle && (
          <Button tone="secondary" size="sm" isPending={link.isPending} onClick={() => link.mutate()}>
            {m.identities_add_google()}
          </Button>
        )
      }
    >
      {error && (
        <Alert tone="danger" className="mb-3">
          {describeError(error).message}
        </Alert>
      )}
      {identities.length === 0 && <p className="text-sm text-soft">{m.identities_none()}</p>}
      <ul className="divide-y divide-line">
        {identities.map((identity) => (
          <IdentityRow
            key={identity.identity_id}
            identity={identity}
            onRemove={accounts.manualLinking && identities.length > 1 ? () => setIdentityToRemove(identity) : null}
          />
        ))}
      </ul>
      {identityToRemove && (
        <ConfirmDialog
          title={m.identities_remove_title({ provider: providerName(identityToRemove.provider) })}
          action={m.identities_remove_named({ provider: providerName(identityToRemove.provider) })}
          isPending={unlink.isPending}
          onClose={() => setIdentityToRemove(null)}
          onConfirm={() => unlink.mutate(identityToRemove)}
        >
          {m.identities_remove_text({ provider: providerName(identityToRemove.provider) })}
        </ConfirmDialog>
      )}
    </Card>
  );
}

/** One identity; `onRemove` is `null` where it cannot be removed. */
function IdentityRow({ identity, onRemove }: { identity: UserIdentity; onRemove: (() => void) | null }) {
  const provider = providerName(identity.provider);
  const contact = contactOf(identity);
  const { last_sign_in_at } = identity;
  return (
    <li className="flex items-center gap-x-4 py-3.5 first:pt-1 last:pb-0">
      <IdentityIcon provider={identity.provider} />
      <div className="min-w-0 flex-1">
        <p className="font-medium">{provider}</p>
        <p className="text-sm text-soft [overflow-wrap:anywhere]">
          {last_sign_in_at === undefined ? (
            contact
          ) : (
            <RichText
              message={m.identity_used}
              inputs={{ contact }}
              elements={{ time: () => <RelativeTime at={new Date(last_sign_in_at)} /> }}
            />
          )}
        </p>
      </div>
      {onRemove && (
        <Button
          tone="quiet"
          size="sm"
          className="-mr-3 shrink-0"
          aria-label={m.identities_remove_named({ provider })}
          onClick={onRemove}
        >
          {m.identities_remove()}
        </Button>
      )}
    </li>
  );
}

function IdentityIcon({ provider }: { provider: string }) {
  const Icon = provider === "email" ? KeyRound : provider === "phone" ? Smartphone : Link2;
  return <Icon aria-hidden className="size-5 shrink-0 text-soft" strokeWidth={1.75} />;
}

const text = z.catch(z.optional(z.string()), undefined);
const identityDataSchema = z.catch(z.object({ email: text, phone: text }), {});

function contactOf(identity: UserIdentity): string {
  const { email, phone } = identityDataSchema.parse(identity.identity_data);
  if (email !== undefined && email !== "") return email;
  return phone !== undefined && phone !== "" ? `+${phone}` : m.identity_linked();
}
