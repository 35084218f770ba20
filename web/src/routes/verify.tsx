import { type SubmitEvent, useEffect, useRef, useState } from "react";
import { Button } from "../components/ui/button";
import { Field } from "../components/ui/field";
import { useAuth } from "../lib/auth/auth-context";
import { CodeField } from "../features/sign-in/code-field";
import { capitalised, useCodeLength } from "../features/sign-in/code-length";
import { withPhone } from "../features/sign-in/contact-switch";
import { emailField } from "../lib/form-fields";
import { FormAlert } from "../components/form/form-alert";
import { FormPage } from "../components/form-page";
import { FormSkeleton } from "../components/guards";
import { OpenMailbox } from "../components/mailbox-hint";
import {
  forgetPendingCode,
  isByPhone,
  type PendingCode,
  pendingCode,
  rememberPendingCode,
  resendAfterMs,
} from "../features/sign-in/pending-code";
import { sendCode } from "../features/sign-in/send-code";
import { type Described, describeError } from "../lib/errors";
import { AppLink, go } from "../lib/navigation";
import { withNext } from "../lib/next";
import { useNow } from "../lib/use-now";
import { usePageTitle } from "../lib/use-page-title";

export function VerifyPage() {
  const { user, isUndecided } = useAuth();
  const [pending, setPending] = useState(pendingCode);
  // A recovery code signs the person in too, but they came for a new password.
  const target = pending?.kind === "recovery" ? "/update-password" : (pending?.next ?? "/app");
  const isSignedIn = user !== null;
  usePageTitle(pending === null ? "Sign in with a code" : titleOf(pending));

  useEffect(() => {
    if (!isSignedIn) return;
    forgetPendingCode();
    go(target, { replace: true });
  }, [isSignedIn, target]);

  if (isUndecided || isSignedIn) return <FormSkeleton />;
  if (pending === null) return <AddressForm onKnown={setPending} />;
  return <CodeForm pending={pending} onResent={setPending} />;
}

/** Nobody asked for a code in this browser: it can be sent, or somebody brings one that was sent elsewhere. */
function AddressForm({ onKnown }: { onKnown: (pending: PendingCode) => void }) {
  const { client } = useAuth();
  const { word } = useCodeLength("email");
  const [email, setEmail] = useState("");
  const [error, setError] = useState<string>();
  const [problem, setProblem] = useState<Described | null>(null);
  const [isSending, setIsSending] = useState(false);

  function readAddress(): string | null {
    const address = emailField.safeParse(email);
    setError(address.error?.issues[0]?.message);
    setProblem(null);
    return address.data ?? null;
  }

  async function send(event: SubmitEvent) {
    event.preventDefault();
    const address = readAddress();
    if (address === null) return;
    setIsSending(true);
    try {
      onKnown(await sendCode(client, { address, kind: "email", next: null }));
    } catch (failure) {
      setProblem(describeError(failure));
      setIsSending(false);
    }
  }

  function enter() {
    const address = readAddress();
    // The server takes a code of the kind "email" for whichever confirmation is awaited.
    if (address !== null) onKnown(rememberPendingCode({ address, kind: "email", sentAt: 0, next: null }));
  }

  return (
    <FormPage title="Sign in with a code" lead={`${capitalised(word)} digits from your inbox, instead of a link or a password.`}>
      <form noValidate onSubmit={send}>
        <FormAlert problem={problem} />
        <fieldset disabled={isSending} className="space-y-5">
          <Field
            label="E-mail"
            type="email"
            autoComplete="username"
            inputMode="email"
            value={email}
            error={error}
            onChange={(event) => setEmail(event.target.value)}
          />
          <div className="space-y-3">
            <Button type="submit" className="w-full" isPending={isSending}>
              {isSending ? "Sending the code" : "Send me a code"}
            </Button>
            <Button tone="quiet" className="w-full" onClick={enter}>
              I already have one
            </Button>
          </div>
        </fieldset>
      </form>
    </FormPage>
  );
}

function titleOf(pending: PendingCode): string {
  return isByPhone(pending) ? "Check your phone" : "Check your inbox";
}

/** Where the address or number can be corrected. */
function formOf({ kind, next }: PendingCode): string {
  switch (kind) {
    case "signup":
      return withNext("/sign-up", next);
    case "email":
      return withNext("/sign-in", next);
    case "recovery":
      return withNext("/forgot-password", next);
    case "phone":
      return withPhone("/sign-in", next);
    case "phone-signup":
      return withPhone("/sign-up", next);
  }
}

function CodeForm({ pending, onResent }: { pending: PendingCode; onResent: (pending: PendingCode) => void }) {
  const { client, rememberMethod } = useAuth();
  const [code, setCode] = useState("");
  const [fieldError, setFieldError] = useState<string>();
  const [problem, setProblem] = useState<Described | null>(null);
  const [isVerifying, setIsVerifying] = useState(false);
  const [wasRefused, setWasRefused] = useState(false);
  const byPhone = isByPhone(pending);
  const length = useCodeLength(byPhone ? "phone" : "email");
  const input = useRef<HTMLInputElement>(null);

  useEffect(() => input.current?.focus(), []);

  async function verify(token: string) {
    if (isVerifying) return;
    setProblem(null);
    if (token.length < length.digits) {
      setFieldError(`The code has ${length.word} digits.`);
      input.current?.focus();
      return;
    }
    setFieldError(undefined);
    setIsVerifying(true);
    const { address, kind } = pending;
    const { error } = await client.verifyOtp(
      kind === "phone" || kind === "phone-signup" ? { phone: address, token, type: "sms" } : { email: address, token, type: kind },
    );
    setIsVerifying(false);
    if (!error) {
      if (byPhone) rememberMethod("phone");
      else if (kind === "email") rememberMethod("code");
      return;
    }
    const described = describeError(error);
    if (described.field === "code") {
      setFieldError(byPhone ? "This code is wrong or no longer valid." : described.message);
      setWasRefused(true);
      input.current?.focus();
    } else {
      setProblem(described);
    }
  }

  return (
    <FormPage
      title={titleOf(pending)}
      lead={
        byPhone ? (
          <>
            A text message with {length.aCode} is on its way to{" "}
            <strong className="font-medium text-ink">{pending.address}</strong>.
          </>
        ) : (
          <>
            If <strong className="font-medium text-ink">{pending.address}</strong> can be used here, a mail with{" "}
            {length.aCode} and a link is on its way. Use either.
          </>
        )
      }
    >
      <form
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          void verify(code);
        }}
      >
        <FormAlert problem={problem} />
        <CodeField
          ref={input}
          value={code}
          length={length}
          error={fieldError}
          onChange={(typed) => {
            setCode(typed);
            setFieldError(undefined);
          }}
          onComplete={(typed) => void verify(typed)}
        />
        <Button type="submit" className="mt-5 w-full" isPending={isVerifying}>
          {isVerifying ? "Checking the code" : "Continue"}
        </Button>
      </form>
      {wasRefused && pending.kind === "signup" && (
        // A mail's link and its code are one: once the link was opened, anywhere, the code is spent.
        <p className="mt-4 text-sm text-soft">
          Opened the link in that mail elsewhere? Then your address is confirmed, and you can{" "}
          <AppLink href={withNext("/sign-in", pending.next)} className="font-medium text-ink underline underline-offset-4">
            sign in
          </AppLink>
          .
        </p>
      )}
      <div className="mt-4 flex flex-wrap items-center justify-between gap-x-4">
        <Resend pending={pending} onResent={onResent} onFailed={setProblem} />
        <Button tone="quiet" size="sm" asChild>
          <AppLink href={formOf(pending)}>{byPhone ? "Change number" : "Change address"}</AppLink>
        </Button>
      </div>
      <OpenMailbox />
    </FormPage>
  );
}

function Resend({
  pending,
  onResent,
  onFailed,
}: {
  pending: PendingCode;
  onResent: (pending: PendingCode) => void;
  onFailed: (problem: Described | null) => void;
}) {
  const { client } = useAuth();
  const now = useNow(1000);
  const [isSending, setIsSending] = useState(false);
  const [wasSent, setWasSent] = useState(false);
  const wait = Math.ceil((pending.sentAt + resendAfterMs - now.getTime()) / 1000);

  async function resend() {
    setIsSending(true);
    onFailed(null);
    try {
      onResent(await sendCode(client, pending));
      setWasSent(true);
    } catch (error) {
      onFailed(describeError(error));
    } finally {
      setIsSending(false);
    }
  }

  return (
    <>
      <Button tone="quiet" size="sm" disabled={wait > 0} isPending={isSending} onClick={resend} className="-ml-3 tabular-nums">
        {wait > 0 ? `Send again in ${wait} s` : "Send again"}
      </Button>
      <span role="status" className="sr-only">
        {wasSent && (isByPhone(pending) ? "A new text message is on its way." : "A new mail is on its way.")}
      </span>
    </>
  );
}
