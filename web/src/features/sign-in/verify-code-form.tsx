import type { Provider } from "@supabase/supabase-js";
import { useState } from "react";
import { CodeForm } from "../../components/form/code-form";
import { FormNote, FormPage } from "../../components/form-page";
import { MailboxHint } from "../../components/mailbox-hint";
import { ResendButton } from "../../components/resend-button";
import { RichText } from "../../components/rich-text";
import { TextLink } from "../../components/text-link";
import { ButtonLink } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { providerName } from "../../lib/auth/provider-name";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import { type PageAddress, visitorAddress } from "../../lib/paths";
import * as m from "../../paraglide/messages";
import { isPhoneCode, type PendingCode } from "../../lib/pending-code";
import { sendCode } from "./send-code";

export function verifyTitle(pending: PendingCode): string {
  return isPhoneCode(pending) ? m.verify_phone_title() : m.verify_email_title();
}

/** Returns the address of the form where the email address or phone number can be corrected. */
function requestAddress({ kind, next }: PendingCode): PageAddress {
  switch (kind) {
    case "signup":
      return visitorAddress("/sign-up", { next });
    case "email":
    case "provider":
      return visitorAddress("/sign-in", { next });
    case "recovery":
      return visitorAddress("/forgot-password", { next });
    case "phone":
      return visitorAddress("/sign-in", { next, with: "phone" });
    case "phone-signup":
      return visitorAddress("/sign-up", { next, with: "phone" });
  }
}

/** Verifies the pending code, which signs the user in. */
export function VerifyCodeForm({ pending, onResent }: { pending: PendingCode; onResent: (pending: PendingCode) => void }) {
  const { client, rememberMethod } = useAuth();
  const isPhone = isPhoneCode(pending);
  const length = useConfig().accounts.codeLength[isPhone ? "phone" : "email"];
  const [wasRejected, setWasRejected] = useState(false);

  async function verify(token: string) {
    const { address, kind } = pending;
    const { error } = await client.verifyOtp(
      isPhone
        ? { phone: address, token, type: "sms" }
        : { email: address, token, type: kind === "signup" || kind === "recovery" ? kind : "email" },
    );
    if (!error) {
      if (isPhone) rememberMethod("phone");
      else if (kind === "email") rememberMethod("code");
      return;
    }
    if (describeError(error).field === "code") setWasRejected(true);
    throw error;
  }

  return (
    <FormPage title={verifyTitle(pending)} lead={<VerifyLead pending={pending} code={m.code_name({ digits: length })} />}>
      <CodeForm
        length={length}
        submit={m.verify_submit()}
        pending={m.verify_pending()}
        rejection={isPhone ? m.verify_phone_code_refused() : undefined}
        onSubmit={verify}
      >
        {({ report, clearProblem }) => (
          <>
            {wasRejected && pending.kind === "signup" && <LinkOpenedElsewhere pending={pending} />}
            <div className="mt-4 flex flex-wrap items-center justify-between gap-x-4">
              <ResendCode pending={pending} onResent={onResent} onFailed={report} onStart={clearProblem} />
              <ButtonLink tone="quiet" size="sm" className="-mr-3" href={requestAddress(pending)}>
                {isPhone ? m.verify_change_phone() : pending.provider ? m.verify_other_method() : m.verify_change_email()}
              </ButtonLink>
            </div>
          </>
        )}
      </CodeForm>
      {pending.kind === "signup" && (
        <FormNote>
          {m.sign_up_have_account()}{" "}
          <TextLink href={visitorAddress("/sign-in", { next: pending.next })}>{m.sign_in()}</TextLink>
        </FormNote>
      )}
      <MailboxHint />
    </FormPage>
  );
}

function VerifyLead({ pending, code }: { pending: PendingCode; code: string }) {
  const elements = { contact: (text: React.ReactNode) => <strong className="font-medium text-ink">{text}</strong> };
  const { address, provider } = pending;
  if (provider !== undefined) {
    const inputs = { code, address, provider: providerName(provider) };
    return <RichText message={m.verify_provider_lead} inputs={inputs} elements={elements} />;
  }
  return isPhoneCode(pending) ? (
    <RichText message={m.verify_phone_lead} inputs={{ code, phone: address }} elements={elements} />
  ) : (
    <RichText message={m.verify_email_lead} inputs={{ code, address }} elements={elements} />
  );
}

/**
 * The link and the code of an email are one token: once the link was opened, anywhere, the code is
 * spent.
 */
function LinkOpenedElsewhere({ pending: { next } }: { pending: PendingCode }) {
  return (
    <p className="mt-4 text-sm text-soft">
      <RichText
        message={m.verify_link_opened_elsewhere}
        inputs={{}}
        elements={{ link: (text) => <TextLink href={visitorAddress("/sign-in", { next })}>{text}</TextLink> }}
      />
    </p>
  );
}

function ResendCode({
  pending,
  onStart,
  onResent,
  onFailed,
}: {
  pending: PendingCode;
  onStart: () => void;
  onResent: (pending: PendingCode) => void;
  onFailed: (error: unknown) => void;
}) {
  const { client, signInWithProvider } = useAuth();
  const [isPending, setIsPending] = useState(false);
  const [wasSent, setWasSent] = useState(false);
  const status = isPhoneCode(pending) ? m.verify_phone_resent() : m.verify_email_resent();

  async function resend() {
    setIsPending(true);
    onStart();
    try {
      // The server sends the code of a provider's address during a sign-in with that provider.
      if (pending.provider !== undefined) {
        // The tab stored it when it called the same function.
        await signInWithProvider(pending.provider as Provider, pending.next);
        return;
      }
      onResent(await sendCode(client, pending));
      setWasSent(true);
    } catch (error) {
      onFailed(error);
    } finally {
      setIsPending(false);
    }
  }

  return (
    <ResendButton
      sentAt={pending.sentAt}
      label={m.resend()}
      status={wasSent ? status : null}
      isPending={isPending}
      onResend={() => void resend()}
    />
  );
}
