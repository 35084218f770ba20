import type { Factor } from "@supabase/supabase-js";
import { useQuery } from "@tanstack/react-query";
import { CodeForm } from "../../components/form/code-form";
import { useStepUp } from "../../components/second-factor/step-up";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { Skeleton } from "../../components/ui/skeleton";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { CopyButton } from "./copy-button";
import { removeUnfinished, uniqueName } from "./factors";

/** The properties of a form that sets up a factor. */
export interface FactorSetup {
  factors: Factor[];
  onAdded: () => void;
  onClosed: () => void;
}

/** Adds an authenticator app: shows its secret, and verifies the first code. */
export function AuthenticatorSetup({ factors, onAdded, onClosed }: FactorSetup) {
  const { client } = useAuth();
  const { brand } = useConfig();
  const { withSecondFactor, dialog } = useStepUp();
  // A secret for each time that the panel is opened, and never from the cache.
  const { data, error } = useQuery({
    queryKey: ["authenticator-setup"],
    gcTime: 0,
    staleTime: Infinity,
    retry: false,
    refetchOnMount: "always",
    queryFn: () =>
      withSecondFactor(async () => {
        await removeUnfinished(client, "totp");
        const others = factors.filter(({ status }) => status === "verified");
        const friendlyName = uniqueName(m.totp_title(), others);
        const { data, error } = await client.mfa.enroll({ factorType: "totp", friendlyName, issuer: brand.name });
        if (error) throw error;
        return { factorId: data.id, ...data.totp };
      }),
  });

  async function verify(code: string) {
    const { error } = await client.mfa.challengeAndVerify({ factorId: data?.factorId ?? "", code });
    if (error) throw error;
    onAdded();
  }

  function cancel() {
    // The next attempt, or the server, removes a factor that stays behind.
    if (data) void client.mfa.unenroll({ factorId: data.factorId });
    onClosed();
  }

  if (error) {
    return (
      <>
        <Alert tone="danger">{describeError(error).message}</Alert>
        {dialog}
      </>
    );
  }
  if (!data) {
    return (
      <>
        <Skeleton className="size-44" />
        {dialog}
      </>
    );
  }
  const secret = data.secret.replace(/(.{4})(?=.)/g, "$1 ");
  return (
    <>
      <p className="text-sm">{m.totp_scan()}</p>
      {/* White in the dark theme too: cameras expect dark squares on a light ground. */}
      <img
        src={data.qr_code}
        alt={m.totp_image()}
        width={176}
        height={176}
        className="mt-3 size-44 rounded border border-line bg-[white] object-contain"
      />
      <p className="mt-4 text-sm">{m.totp_cannot_scan()}</p>
      <div className="mt-2 flex flex-wrap items-center gap-x-3 gap-y-2">
        <code className="text-sm font-medium tracking-wide [overflow-wrap:anywhere]">{secret}</code>
        <CopyButton text={data.secret} />
      </div>
      <p className="mt-5 mb-4 text-sm">{m.totp_enter_code()}</p>
      <CodeForm
        length={6}
        submit={m.totp_submit()}
        pending={m.second_factor_pending()}
        onSubmit={verify}
        actions={
          <Button tone="quiet" onClick={cancel}>
            {m.cancel()}
          </Button>
        }
      />
    </>
  );
}
