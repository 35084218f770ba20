import { zodResolver } from "@hookform/resolvers/zod";
import type { User } from "@supabase/supabase-js";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useForm } from "react-hook-form";
import { Alert } from "../../components/ui/alert";
import { Button } from "../../components/ui/button";
import { Card } from "../../components/ui/card";
import { Field } from "../../components/ui/field";
import { useConfig } from "../../lib/config-context";
import { describeError } from "../../lib/errors";
import { useNow } from "../../lib/use-now";
import { z } from "../../lib/zod";
import { useAuth } from "../../lib/auth/auth-context";
import { emailField } from "../../lib/form-fields";
import { FormAlert } from "../../components/form/form-alert";
import { OpenMailbox } from "../../components/mailbox-hint";
import { resendAfterMs } from "../sign-in/pending-code";
import { useErrorFocus, useProblem } from "../../components/form/use-form-problem";
import { freshUserQuery } from "./fresh-user";

/** How often a pending change is looked for while the page is seen: its link may be opened on another device. */
const lookAgainMs = 15_000;

/** The account's address, the form that asks for another, and a change that waits to be confirmed. */
export function EmailAddress({ user }: { user: User }) {
  const current = textOr(user.email);
  const pending = textOr(user.new_email);
  const [isOpen, setIsOpen] = useState(false);
  // What was asked for in this page's life, to say so when it has come true.
  const [awaited, setAwaited] = useState(pending);
  if (pending !== null && pending !== awaited) setAwaited(pending);
  const isDone = pending === null && awaited !== null && awaited === current;
  const opener = useRef<HTMLButtonElement>(null);

  function close() {
    setIsOpen(false);
    opener.current?.focus();
  }

  return (
    <Card
      title="E-mail address"
      description={<span className="text-ink">{current ?? "You have none yet"}</span>}
      aside={
        <Button
          ref={opener}
          tone="secondary"
          size="sm"
          aria-expanded={isOpen}
          onClick={() => (isOpen ? close() : setIsOpen(true))}
        >
          {current === null ? "Add an address" : "Change address"}
        </Button>
      }
    >
      <div role="status">
        {isDone && (
          <p className="text-sm font-medium text-success">Your address is changed. Use the new one to sign in.</p>
        )}
      </div>
      {isOpen ? (
        <ChangeForm
          current={current}
          pending={pending}
          onClosed={close}
          onAsked={(address) => {
            setAwaited(address);
            close();
          }}
        />
      ) : pending === null ? (
        !isDone && <p className="text-sm text-soft">For signing in, and for mails about your account.</p>
      ) : (
        <PendingChange user={user} current={current} pending={pending} />
      )}
    </Card>
  );
}

function ChangeForm({
  current,
  pending,
  onAsked,
  onClosed,
}: {
  current: string | null;
  pending: string | null;
  onAsked: (address: string) => void;
  onClosed: () => void;
}) {
  const { client } = useAuth();
  const { accounts } = useConfig();
  const schema = z.object({
    email: emailField.check(z.refine((email) => email.toLowerCase() !== current, "That is your address already.")),
  });
  const { register, handleSubmit, formState, setError, setFocus } = useForm({
    resolver: zodResolver(schema),
    defaultValues: { email: pending ?? "" },
  });
  const { problem, report, clear } = useProblem<{ email: string }>(setError, ["email"]);
  useErrorFocus(formState, setFocus, ["email"]);
  const { errors, isSubmitting } = formState;

  useEffect(() => setFocus("email"), [setFocus]);

  const ask = handleSubmit(async ({ email }) => {
    clear();
    const { data, error } = await client.updateUser({ email }, { emailRedirectTo: returnAddress() });
    if (error) report(error);
    else onAsked(textOr(data.user.new_email) ?? textOr(data.user.email) ?? email);
  });

  return (
    <form noValidate onSubmit={ask}>
      <FormAlert problem={problem} />
      <fieldset disabled={isSubmitting} className="space-y-4">
        <Field
          label="New e-mail address"
          type="email"
          autoComplete="email"
          inputMode="email"
          error={errors.email?.message}
          hint={whatHappens(current, accounts.emailChange)}
          {...register("email")}
        />
        <div className="flex flex-wrap gap-3">
          <Button type="submit" size="sm" isPending={isSubmitting}>
            {isSubmitting ? "Asking for the change" : "Ask for the change"}
          </Button>
          <Button tone="quiet" size="sm" onClick={onClosed}>
            Cancel
          </Button>
        </div>
      </fieldset>
    </form>
  );
}

type Answering = "new" | "either" | "both";

/** Before the change is asked for: which mails will come, and what to do with them. */
function whatHappens(current: string | null, answering: Answering): string {
  if (current === null || answering === "new") return "We mail a link to the new address. Opening it makes the change.";
  return answering === "both"
    ? `We mail a link to the new address and one to ${current}. The change is made when both are opened.`
    : `We mail a link to the new address and one to ${current}. Opening either makes the change.`;
}

function PendingChange({ user, current, pending }: { user: User; current: string | null; pending: string }) {
  const { client } = useAuth();
  const { accounts } = useConfig();
  useQuery({ ...freshUserQuery(client, user), refetchInterval: lookAgainMs, refetchOnWindowFocus: "always" });
  const now = useNow(1000);
  const wait = Math.ceil((Date.parse(user.email_change_sent_at ?? "") + resendAfterMs - now.getTime()) / 1000);
  const again = useMutation({
    mutationFn: async () => {
      // Asking for the same change sends its mails anew, also where there is no current address to resend to.
      const { error } = await client.updateUser({ email: pending }, { emailRedirectTo: returnAddress() });
      if (error) throw error;
    },
  });
  const isOne = current === null || accounts.emailChange === "new";

  return (
    <>
      <Alert tone="info">
        <p className="font-medium">Waiting for {pending} to be confirmed</p>
        <p className="mt-1">
          {isOne
            ? "Open the link in the mail we sent there. It works in any browser."
            : accounts.emailChange === "both"
              ? `Open the links in both mails, there and at ${current}, in any order and in any browser.`
              : `Open the link in either mail, there or at ${current}, in any browser.`}
          {current !== null && " Until then nothing changes."}
        </p>
      </Alert>
      {again.error && (
        <Alert tone="danger" className="mt-3">
          {describeError(again.error).message}
        </Alert>
      )}
      <div className="mt-2 flex flex-wrap items-center justify-between gap-x-4">
        <Button
          tone="quiet"
          size="sm"
          className="-ml-3 tabular-nums"
          disabled={wait > 0}
          isPending={again.isPending}
          onClick={() => again.mutate()}
        >
          {wait > 0 ? `Send again in ${wait} s` : isOne ? "Send the mail again" : "Send both mails again"}
        </Button>
        <span role="status" className="sr-only">
          {again.isSuccess && "New mails are on their way."}
        </span>
      </div>
      <OpenMailbox className="mt-2" />
    </>
  );
}

function returnAddress(): string {
  return `${window.location.origin}/confirm-email-change`;
}

function textOr(text: string | undefined): string | null {
  return text === undefined || text === "" ? null : text;
}
