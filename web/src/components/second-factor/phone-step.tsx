import { useState } from "react";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { CodeForm } from "../form/code-form";
import { MailboxHint } from "../mailbox-hint";
import { ResendButton } from "../resend-button";
import { Alert } from "../ui/alert";
import { Button } from "../ui/button";

/** A code that was sent to the phone of a factor. */
interface SentCode {
  challengeId: string;
  sentAt: number;
}

/** Confirms the session with a code by text message, which is sent when the user asks for it. */
export function PhoneStep({
  factorId,
  name,
  submit = m.second_factor_submit(),
  onConfirmed,
}: {
  factorId: string;
  /** The factor's name, which is its number where it was added here. */
  name: string;
  submit?: string;
  onConfirmed: () => void;
}) {
  const { client } = useAuth();
  const length = useConfig().accounts.codeLength.factor;
  const [sent, setSent] = useState<SentCode | null>(null);
  const [isPending, setIsPending] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);

  async function send() {
    setIsPending(true);
    setFailure(null);
    const { data, error } = await client.mfa.challenge({ factorId, channel: "sms" });
    setIsPending(false);
    if (error) setFailure(error);
    else setSent({ challengeId: data.id, sentAt: Date.now() });
  }

  async function confirm(code: string) {
    const { error } = await client.mfa.verify({ factorId, challengeId: sent?.challengeId ?? "", code });
    if (error) throw error;
    onConfirmed();
  }

  return (
    <>
      {failure !== null && (
        <Alert tone="danger" className="mb-6">
          {describeError(failure).message}
        </Alert>
      )}
      {sent === null ? (
        <>
          <p className="mb-6 text-soft">{name === "" ? m.second_factor_phone_lead() : m.second_factor_phone_lead_named({ phone: name })}</p>
          <Button className="w-full" isPending={isPending} onClick={send}>
            {m.second_factor_phone_send()}
          </Button>
        </>
      ) : (
        <>
          <p className="mb-6 text-soft" role="status">
            {name === "" ? m.second_factor_phone_sent() : m.second_factor_phone_sent_named({ phone: name })}
          </p>
          <CodeForm length={length} submit={submit} pending={m.second_factor_pending()} onSubmit={confirm} />
          <div className="mt-4">
            <ResendButton sentAt={sent.sentAt} label={m.resend()} status={null} isPending={isPending} onResend={() => void send()} />
          </div>
          <MailboxHint className="mt-4" />
        </>
      )}
    </>
  );
}
