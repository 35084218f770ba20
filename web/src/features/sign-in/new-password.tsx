import type { User } from "@supabase/supabase-js";
import { useMemo, useState } from "react";
import { useWatch } from "react-hook-form";
import { Form, FormPasswordField } from "../../components/form/form";
import { useZodForm } from "../../components/form/use-zod-form";
import { FormPage } from "../../components/form-page";
import { Button, ButtonLink } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { newPasswordField } from "../../lib/form-fields";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { CodeField } from "../../components/form/code-field";
import { StrengthHint } from "../../components/form/strength-hint";

/** Sets a new password, with a code where the server requires one. */
export function NewPassword({ user }: { user: User }) {
  const [isDone, setIsDone] = useState(false);
  return isDone ? <PasswordChanged /> : <NewPasswordForm user={user} onDone={() => setIsDone(true)} />;
}

function NewPasswordForm({ user, onDone }: { user: User; onDone: () => void }) {
  const { client, isRecovering } = useAuth();
  const email = user.email ?? "";
  // The server sends its code to the email address, and to the phone of a user without one.
  const { accounts } = useConfig();
  const codeLength = accounts.codeLength[email === "" ? "phone" : "email"];
  const rules = accounts.password;
  const schema = useMemo(() => z.object({ password: newPasswordField(rules), code: z.string() }), [rules]);
  const form = useZodForm(schema, { password: "", code: "" });
  const password = useWatch({ control: form.control, name: "password" });
  const [needsCode, setNeedsCode] = useState(false);
  const { isSubmitting } = form.formState;

  async function save({ password, code }: { password: string; code: string }) {
    const { error } = await client.updateUser(needsCode ? { password, nonce: code } : { password });
    if (!error) {
      onDone();
      return;
    }
    form.report(error);
    if (error.code === "reauthentication_needed" && !needsCode) {
      // The server requires a proof that this is still the same user: it sends a code.
      const request = await client.reauthenticate();
      if (request.error) throw request.error;
      setNeedsCode(true);
    }
  }

  return (
    <FormPage
      title={isRecovering ? m.new_password_title() : m.change_password_title()}
      lead={email === "" ? undefined : m.new_password_for({ email })}
    >
      <Form form={form} onSubmit={save}>
        {/* Tells password managers which account the password belongs to. */}
        <input type="text" name="username" autoComplete="username" value={email} readOnly hidden />
        <FormPasswordField
          form={form}
          name="password"
          label={m.new_password_label()}
          autoComplete="new-password"
          minLength={rules.minLength}
          hint={<StrengthHint password={password} known={[email]} />}
        />
        {needsCode && <CodeField form={form} name="code" length={codeLength} onComplete={() => void form.submit(save)()} />}
        <Button type="submit" className="w-full" isPending={isSubmitting}>
          {isSubmitting ? m.new_password_pending() : m.new_password_submit()}
        </Button>
      </Form>
    </FormPage>
  );
}

function PasswordChanged() {
  return (
    <FormPage title={m.new_password_done_title()} lead={m.new_password_done_lead()}>
      <ButtonLink href="/app">{m.open_your_account()}</ButtonLink>
      <p role="status" className="sr-only">
        {m.new_password_done_status()}
      </p>
    </FormPage>
  );
}

/** The page of a recovery link that did not sign the user in. */
export function RecoveryLinkExpired() {
  const { redirectOutcome } = useAuth();
  const isOtherBrowser = redirectOutcome?.kind === "other-browser";
  return (
    <FormPage
      title={isOtherBrowser ? m.recovery_link_other_browser_title() : m.recovery_link_expired_title()}
      lead={isOtherBrowser ? m.recovery_link_other_browser_lead() : m.recovery_link_expired_lead()}
    >
      <div className="flex flex-wrap gap-3">
        <ButtonLink href="/forgot-password">{m.recovery_link_resend()}</ButtonLink>
        <ButtonLink tone="secondary" href="/sign-in">
          {m.sign_in()}
        </ButtonLink>
      </div>
    </FormPage>
  );
}
