import type { User } from "@supabase/supabase-js";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Download, LifeBuoy, Printer } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { useStepUp } from "../../components/second-factor/step-up";
import { Button } from "../../components/ui/button";
import { ConfirmDialog } from "../../components/ui/confirm-dialog";
import { createRecoveryCodes, recoveryCodesKey, recoveryCodesQuery } from "../../lib/auth/recovery-codes";
import { useApi } from "../../lib/auth/use-api";
import { useConfig } from "../../lib/config-context";
import * as m from "../../paraglide/messages";
import { CopyButton } from "./copy-button";
import { ActionFailure, LoadFailure, Panel, Row, RowSkeleton } from "./section";

/** The recovery codes: how many are left, and new ones, which are shown once. */
export function RecoveryCodes({
  user,
  codes,
  onCodes,
}: {
  user: User;
  /** The codes that were just created. */
  codes: string[] | null;
  onCodes: (codes: string[] | null) => void;
}) {
  const api = useApi();
  const queries = useQueryClient();
  const { withSecondFactor, dialog } = useStepUp();
  const { data, error, refetch } = useQuery(recoveryCodesQuery(api));
  const [isConfirming, setIsConfirming] = useState(false);
  const create = useMutation({
    mutationFn: () => withSecondFactor(() => createRecoveryCodes(api)),
    onSuccess: async (created) => {
      onCodes(created);
      await queries.invalidateQueries({ queryKey: recoveryCodesKey });
    },
    onSettled: () => setIsConfirming(false),
  });

  if (error) return <LoadFailure error={error} onRetry={() => void refetch()} />;
  if (!data) return <RowSkeleton />;
  const hasCodes = data.remaining > 0;
  return (
    <>
      <ActionFailure error={create.error} />
      <Row
        Icon={LifeBuoy}
        title={m.recovery_title()}
        text={
          <>
            <p>{m.recovery_text()}</p>
            <p className={data.remaining < 3 ? "mt-1 font-medium text-caution" : "mt-1"}>
              {hasCodes ? m.recovery_left({ count: data.remaining }) : m.recovery_none()}
            </p>
          </>
        }
        actions={
          <Button
            tone="secondary"
            size="sm"
            isPending={create.isPending}
            onClick={() => (hasCodes ? setIsConfirming(true) : create.mutate())}
          >
            {hasCodes ? m.recovery_renew() : m.recovery_create()}
          </Button>
        }
      >
        {codes && (
          <Panel>
            <NewCodes codes={codes} user={user} onClosed={() => onCodes(null)} />
          </Panel>
        )}
      </Row>
      {isConfirming && (
        <ConfirmDialog
          title={m.recovery_renew_title()}
          action={m.recovery_renew()}
          isPending={create.isPending}
          onClose={() => setIsConfirming(false)}
          onConfirm={() => create.mutate()}
        >
          {m.recovery_renew_text()}
        </ConfirmDialog>
      )}
      {dialog}
    </>
  );
}

function NewCodes({ codes, user, onClosed }: { codes: string[]; user: User; onClosed: () => void }) {
  const { brand } = useConfig();
  const title = useRef<HTMLHeadingElement>(null);
  const account = user.email !== undefined && user.email !== "" ? user.email : `+${user.phone ?? ""}`;
  const heading = m.recovery_file_heading({ account, brand: brand.name });
  const text = `${heading}\n\n${codes.join("\n")}\n`;

  useEffect(() => title.current?.focus(), []);

  function download() {
    const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `${brand.name.toLowerCase().replaceAll(/\W+/g, "-")}-recovery-codes.txt`;
    link.click();
    URL.revokeObjectURL(url);
  }

  return (
    <div className="rounded border border-line bg-paper p-5">
      <h3 ref={title} tabIndex={-1} className="outline-none">
        {m.recovery_save_title()}
      </h3>
      <p className="mt-1.5 text-sm text-soft">{m.recovery_save_text()}</p>
      <div className="printed">
        <p className="only-printed">{heading}</p>
        <ul aria-label={m.recovery_list_label()} className="mt-4 grid grid-cols-1 gap-x-6 gap-y-1.5 font-mono text-[0.9375rem] min-[24rem]:grid-cols-2">
          {codes.map((code) => (
            <li key={code}>{code}</li>
          ))}
        </ul>
      </div>
      <div className="mt-5 flex flex-wrap gap-2">
        <CopyButton text={text} />
        <Button tone="secondary" size="sm" onClick={download}>
          <Download aria-hidden className="size-4" />
          {m.recovery_download()}
        </Button>
        <Button tone="secondary" size="sm" onClick={() => window.print()}>
          <Printer aria-hidden className="size-4" />
          {m.recovery_print()}
        </Button>
      </div>
      <Button className="mt-4 w-full" onClick={onClosed}>
        {m.recovery_saved()}
      </Button>
    </div>
  );
}
