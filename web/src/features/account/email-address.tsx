import type { User } from "@supabase/supabase-js";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { MailboxHint } from "../../components/mailbox-hint";
import { ResendButton } from "../../components/resend-button";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { Card } from "../../components/ui/card";
import { useDisclosure } from "../../components/ui/use-disclosure";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { EmailChangeCodes } from "./email-change-codes";
import { EmailChangeForm, requestEmailChange } from "./email-change-form";
import { useConfirmedAddress } from "./email-change-state";
import { freshUserQuery } from "./fresh-user";

/**
 * The interval of looking for a confirmed change while the page is visible: its link may be opened
 * on another device.
 */
const refetchMs = 15_000;

/**
 * The account's email address, the form for another one, and a change that waits for its
 * confirmation.
 */
export function EmailAddress({ user }: { user: User }) {
  const current = textOrNull(user.email);
  const pending = textOrNull(user.new_email);
  const { isOpen, close, button } = useDisclosure();
  // The address requested since the page opened, to announce the change once it is made.
  const [requested, setRequested] = useState(pending);
  if (pending !== null && pending !== requested) setRequested(pending);
  const isDone = pending === null && requested !== null && requested === current;

  return (
    <Card
      title={m.email_change_title()}
      description={<span className="text-ink">{current ?? m.email_change_none()}</span>}
      aside={
        <Button tone="secondary" size="sm" {...button}>
          {current === null ? m.email_change_add() : m.email_change_open()}
        </Button>
      }
    >
      <div role="status">
        {isDone && <p className="text-sm font-medium text-success">{m.email_change_done()}</p>}
      </div>
      {isOpen ? (
        <EmailChangeForm
          current={current}
          pending={pending}
          onClosed={close}
          onRequested={(address) => {
            setRequested(address);
            close();
          }}
        />
      ) : pending === null ? (
        !isDone && <p className="text-sm text-soft">{m.email_change_purpose()}</p>
      ) : (
        <PendingChange user={user} current={current} pending={pending} />
      )}
    </Card>
  );
}

function PendingChange({ user, current, pending }: { user: User; current: string | null; pending: string }) {
  const { client } = useAuth();
  const { accounts } = useConfig();
  const fresh = useQuery({ ...freshUserQuery(client, user), refetchInterval: refetchMs, refetchOnWindowFocus: "always" });
  // The same request sends its emails again, also without a current address that could be resent
  // to.
  const resend = useMutation({ mutationFn: () => requestEmailChange(client, pending) });
  const isOneEmail = current === null || accounts.emailChange === "new";
  const [hasCodeForms, setHasCodeForms] = useState(false);
  const addresses = isOneEmail ? [pending] : [pending, current];
  const confirmed = useConfirmedAddress(fresh.data ?? user, pending);
  const open = addresses.filter((address) => address !== confirmed);

  return (
    <>
      <Alert tone="info">
        <p className="font-medium">
          {confirmed === null ? m.email_change_waiting({ email: pending }) : m.email_change_half_title()}
        </p>
        <p className="mt-1">
          {confirmed !== null && open[0] !== undefined
            ? m.email_change_open_other({ confirmed, email: open[0] })
            : instruction(current, accounts.emailChange)}
        </p>
      </Alert>
      {resend.error && (
        <Alert tone="danger" className="mt-3">
          {describeError(resend.error).message}
        </Alert>
      )}
      <div className="mt-2 flex flex-wrap items-center justify-between gap-x-4">
        <ResendButton
          sentAt={Date.parse(user.email_change_sent_at ?? "")}
          label={isOneEmail ? m.email_change_resend_one() : m.email_change_resend_both()}
          status={resend.isSuccess ? m.email_change_resent() : null}
          isPending={resend.isPending}
          onResend={() => resend.mutate()}
        />
        {!hasCodeForms && (
          <Button tone="quiet" size="sm" className="-ml-3" onClick={() => setHasCodeForms(true)}>
            {open.length === 1 || accounts.emailChange === "either" ? m.email_change_enter_code() : m.email_change_enter_codes()}
          </Button>
        )}
      </div>
      {hasCodeForms && (
        // New emails bring new codes, also for an address that was confirmed.
        <EmailChangeCodes key={user.email_change_sent_at} addresses={open} onConfirmed={() => void fresh.refetch()} />
      )}
      <MailboxHint className="mt-2" />
    </>
  );
}

/** Returns which links have to be opened. */
function instruction(current: string | null, emailChange: "new" | "either" | "both"): string {
  if (current === null) return m.email_change_open_first();
  if (emailChange === "new") return m.email_change_open_new();
  return emailChange === "both" ? m.email_change_open_both({ email: current }) : m.email_change_open_either({ email: current });
}

function textOrNull(text: string | undefined): string | null {
  return text === undefined || text === "" ? null : text;
}
