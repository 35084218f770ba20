import { useEffect } from "react";
import { Form, FormField } from "../../components/form/form";
import { FormActions } from "../../components/form/form-actions";
import { useZodForm } from "../../components/form/use-zod-form";
import { useStepUp } from "../../components/second-factor/step-up";
import { useAuth } from "../../lib/auth/auth-context";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import type { FactorSetup } from "./authenticator-setup";
import { removeUnfinished, uniqueName } from "./factors";

const schema = z.object({ name: z.string().check(z.trim(), z.minLength(1, { error: () => m.passkeys_name_required() })) });

/** Adds a security key: takes a name for it, then asks the browser for the key. */
export function SecurityKeySetup({ factors, onAdded, onClosed }: FactorSetup) {
  const { client } = useAuth();
  const { withSecondFactor, dialog } = useStepUp();
  const others = factors.filter(({ status }) => status === "verified");
  const form = useZodForm(schema, { name: uniqueName(m.security_key_title(), others) });
  const { setFocus } = form;
  const { isSubmitting } = form.formState;

  useEffect(() => setFocus("name", { shouldSelect: true }), [setFocus]);

  async function add({ name }: z.infer<typeof schema>) {
    await withSecondFactor(async () => {
      await removeUnfinished(client, "webauthn");
      const { error } = await client.mfa.webauthn.register({ friendlyName: name });
      if (error) throw error;
    });
    onAdded();
  }

  return (
    <>
      <Form form={form} onSubmit={add} className="space-y-4">
        <FormField form={form} name="name" label={m.security_key_name_label()} autoComplete="off" />
        <FormActions submit={m.security_key_submit()} pending={m.security_key_pending()} isSubmitting={isSubmitting} onCancel={onClosed} />
      </Form>
      {dialog}
    </>
  );
}
