import { Form, FormEmailField } from "../../components/form/form";
import { useZodForm } from "../../components/form/use-zod-form";
import { FormPage } from "../../components/form-page";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { emailField } from "../../lib/form-fields";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { type PendingCode, rememberPendingCode } from "../../lib/pending-code";
import { sendCode } from "./send-code";

const schema = z.object({ email: emailField });

/**
 * Without a pending code in this browser: sends one, or takes the address of one that was requested
 * elsewhere.
 */
export function RequestCodeForm({ onPending }: { onPending: (pending: PendingCode) => void }) {
  const { client } = useAuth();
  const { accounts } = useConfig();
  const form = useZodForm(schema, { email: "" });
  const { isSubmitting } = form.formState;

  async function send({ email }: z.infer<typeof schema>) {
    onPending(await sendCode(client, { address: email, kind: "email", next: null }));
  }

  async function enter() {
    form.clearProblem();
    if (!(await form.trigger("email", { shouldFocus: true }))) return;
    // The server accepts a code of the kind "email" for every pending confirmation.
    onPending(rememberPendingCode({ address: form.getValues("email").trim(), kind: "email", sentAt: 0, next: null }));
  }

  return (
    <FormPage title={m.verify_title()} lead={m.verify_lead({ digits: accounts.codeLength.email })}>
      <Form form={form} onSubmit={send}>
        <FormEmailField form={form} name="email" label={m.email_label()} />
        <div className="space-y-3">
          <Button type="submit" className="w-full" isPending={isSubmitting}>
            {isSubmitting ? m.verify_sending_code() : m.verify_send_code()}
          </Button>
          <Button tone="secondary" className="w-full" onClick={enter}>
            {m.verify_have_code()}
          </Button>
        </div>
      </Form>
    </FormPage>
  );
}
