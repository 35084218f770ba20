import { useMemo } from "react";
import { useWatch } from "react-hook-form";
import { track } from "../../analytics";
import { Form, FormEmailField } from "../../components/form/form";
import { NewPasswordField } from "../../components/form/new-password-field";
import { useZodForm } from "../../components/form/use-zod-form";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { emailField, newPasswordField } from "../../lib/form-fields";
import { go } from "../../lib/navigation";
import type { AppAddress } from "../../lib/paths";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { pendingEmail, rememberPendingCode } from "../../lib/pending-code";

/** Creates an account with an email address and a password. */
export function SignUpForm({ next }: { next: AppAddress | null }) {
  const { client, rememberMethod } = useAuth();
  const rules = useConfig().accounts.password;
  const schema = useMemo(() => z.object({ email: emailField, password: newPasswordField(rules) }), [rules]);
  // /verify leads back here to correct the address.
  const form = useZodForm(schema, { email: pendingEmail(), password: "" });
  const email = useWatch({ control: form.control, name: "email" });
  const { isSubmitting } = form.formState;

  async function signUp(values: { email: string; password: string }) {
    const { data, error } = await client.signUp({
      ...values,
      options: { emailRedirectTo: window.location.origin + (next ?? "/app") },
    });
    if (error) throw error;
    track("sign_up", { method: "email" });
    rememberMethod("password");
    if (data.session) return;
    rememberPendingCode({ address: values.email, kind: "signup", next });
    go("/verify");
  }

  return (
    <Form form={form} onSubmit={signUp}>
      <FormEmailField form={form} name="email" label={m.email_label()} />
      <NewPasswordField form={form} name="password" label={m.password_label()} known={[email]} />
      <Button type="submit" className="w-full" isPending={isSubmitting}>
        {isSubmitting ? m.sign_up_pending() : m.sign_up_submit()}
      </Button>
    </Form>
  );
}
