import type { User } from "@supabase/supabase-js";
import { useEffect, useMemo } from "react";
import { Form, FormEmailField } from "../../components/form/form";
import { FormActions } from "../../components/form/form-actions";
import { useZodForm } from "../../components/form/use-zod-form";
import { useAuth } from "../../lib/auth/auth-context";
import type { AuthClient } from "../../lib/auth/deferred-client";
import { useConfig } from "../../lib/config-context";
import { emailField } from "../../lib/form-fields";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";

/** Requests that the account gets another email address. */
export async function requestEmailChange(client: AuthClient, email: string): Promise<User> {
  const emailRedirectTo = `${window.location.origin}/confirm-email-change`;
  const { data, error } = await client.updateUser({ email }, { emailRedirectTo });
  if (error) throw error;
  return data.user;
}

export function EmailChangeForm({
  current,
  pending,
  onRequested,
  onClosed,
}: {
  current: string | null;
  /** The address of a change that waits for its confirmation. */
  pending: string | null;
  onRequested: (address: string) => void;
  onClosed: () => void;
}) {
  const { client } = useAuth();
  const { accounts } = useConfig();
  const schema = useMemo(() => {
    const error = () => m.email_change_same();
    return z.object({ email: emailField.check(z.refine((email) => email.toLowerCase() !== current, { error })) });
  }, [current]);
  const form = useZodForm(schema, { email: pending ?? "" });
  const { setFocus } = form;
  const { isSubmitting } = form.formState;

  useEffect(() => setFocus("email"), [setFocus]);

  async function request({ email }: { email: string }) {
    const user = await requestEmailChange(client, email);
    onRequested([user.new_email, user.email].find((address) => address !== undefined && address !== "") ?? email);
  }

  return (
    <Form form={form} onSubmit={request} className="space-y-4">
      <FormEmailField
        form={form}
        name="email"
        label={m.email_change_label()}
        autoComplete="email"
        hint={rule(current, accounts.emailChange)}
      />
      <FormActions submit={m.email_change_submit()} pending={m.email_change_pending()} isSubmitting={isSubmitting} onCancel={onClosed} />
    </Form>
  );
}

/** Returns which emails the request will send, and what makes the change. */
function rule(current: string | null, emailChange: "new" | "either" | "both"): string {
  if (current === null || emailChange === "new") return m.email_change_rule_new();
  return emailChange === "both"
    ? m.email_change_rule_both({ email: current })
    : m.email_change_rule_either({ email: current });
}
