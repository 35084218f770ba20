import type { User, UserIdentity } from "@supabase/supabase-js";
import { useMutation } from "@tanstack/react-query";
import { KeyRound, Link2, Smartphone } from "lucide-react";
import { useState } from "react";
import { RelativeTime } from "../../components/relative-time";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { Card } from "../../components/ui/card";
import { ConfirmDialog } from "../../components/ui/confirm-dialog";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import { useAuth } from "../../lib/auth/auth-context";
import { useSignInMethods } from "../sign-in/provider-buttons";
import { providerName } from "../../lib/auth/sign-in-methods";

/** The ways in that belong to this account. The last one can not be removed. */
export function IdentityList({ user }: { user: User }) {
  const { client } = useAuth();
  const { methods } = useSignInMethods();
  const [leaving, setLeaving] = useState<UserIdentity | null>(null);
  const identities = user.identities ?? [];
  const { accounts } = useConfig();
  const canLinkGoogle = accounts.manualLinking && methods.google && !identities.some((identity) => identity.provider === "google");

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
      // The session in storage holds the person as they were; a renewed one holds them as they are.
      await client.refreshSession();
    },
    onSettled: () => setLeaving(null),
  });
  const error = link.error ?? unlink.error;

  return (
    <Card
      title="Your ways in"
      description="Sign-ins that lead to this account"
      aside={
        canLinkGoogle && (
          <Button tone="secondary" size="sm" isPending={link.isPending} onClick={() => link.mutate()}>
            Add Google
          </Button>
        )
      }
    >
      {error && (
        <Alert tone="danger" className="mb-3">
          {describeError(error).message}
        </Alert>
      )}
      {identities.length === 0 && <p className="text-sm text-soft">No sign-in is linked yet.</p>}
      <ul className="divide-y divide-line">
        {identities.map((identity) => (
          <li key={identity.identity_id} className="flex items-center gap-x-4 py-3.5 first:pt-1 last:pb-0">
            <IdentityIcon provider={identity.provider} />
            <div className="min-w-0 flex-1">
              <p className="font-medium">{providerName(identity.provider)}</p>
              <p className="text-sm text-soft [overflow-wrap:anywhere]">
                {addressOf(identity)}
                {identity.last_sign_in_at !== undefined && (
                  <>
                    {" · used "}
                    <RelativeTime at={new Date(identity.last_sign_in_at)} />
                  </>
                )}
              </p>
            </div>
            {accounts.manualLinking && identities.length > 1 && (
              <Button
                tone="quiet"
                size="sm"
                className="-mr-3 shrink-0"
                aria-label={`Remove ${providerName(identity.provider)}`}
                onClick={() => setLeaving(identity)}
              >
                Remove
              </Button>
            )}
          </li>
        ))}
      </ul>
      {leaving && (
        <ConfirmDialog
          title={`Remove ${providerName(leaving.provider)}?`}
          action={`Remove ${providerName(leaving.provider)}`}
          isPending={unlink.isPending}
          onClose={() => setLeaving(null)}
          onConfirm={() => unlink.mutate(leaving)}
        >
          You can no longer sign in this way. Your other ways in stay.
        </ConfirmDialog>
      )}
    </Card>
  );
}

function IdentityIcon({ provider }: { provider: string }) {
  const Icon = provider === "email" ? KeyRound : provider === "phone" ? Smartphone : Link2;
  return <Icon aria-hidden className="size-5 shrink-0 text-soft" strokeWidth={1.75} />;
}

function addressOf(identity: UserIdentity): string {
  const email: unknown = identity.identity_data?.email;
  if (typeof email === "string" && email !== "") return email;
  const phone: unknown = identity.identity_data?.phone;
  return typeof phone === "string" && phone !== "" ? `+${phone}` : "Linked";
}
