import { Form, FormEmailField } from "../../components/form/form";
import { useZodForm } from "../../components/form/use-zod-form";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { emailField } from "../../lib/form-fields";
import { go } from "../../lib/navigation";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { pendingEmail } from "../../lib/pending-code";
import { sendCode } from "./send-code";

const schema = z.object({ email: emailField });

/** Requests a code for setting a new password. */
export function ForgotPasswordForm() {
  const { client, user } = useAuth();
  const form = useZodForm(schema, { email: user?.email ?? pendingEmail() });
  const { isSubmitting } = form.formState;

  async function send({ email }: z.infer<typeof schema>) {
    await sendCode(client, { address: email, kind: "recovery", next: null });
    go("/verify");
  }

  return (
    <Form form={form} onSubmit={send}>
      <FormEmailField form={form} name="email" label={m.email_label()} />
      <Button type="submit" className="w-full" isPending={isSubmitting}>
        {isSubmitting ? m.forgot_password_pending() : m.forgot_password_submit()}
      </Button>
    </Form>
  );
}
