import { useEffect, useState } from "react";
import { Form, FormPhoneField } from "../../components/form/form";
import { FormActions } from "../../components/form/form-actions";
import { useZodForm } from "../../components/form/use-zod-form";
import { PhoneStep } from "../../components/second-factor/phone-step";
import { useStepUp } from "../../components/second-factor/step-up";
import { useAuth } from "../../lib/auth/auth-context";
import { phoneField } from "../../lib/form-fields";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import type { FactorSetup } from "./authenticator-setup";
import { removeUnfinished, uniqueName } from "./factors";

const schema = z.object({ phone: phoneField });

/** Adds a phone: takes its number, and verifies the code that is sent to it. */
export function PhoneSetup({ factors, onAdded, onClosed }: FactorSetup) {
  const { client } = useAuth();
  const { withSecondFactor, dialog } = useStepUp();
  const form = useZodForm(schema, { phone: "" });
  const { setFocus } = form;
  const { isSubmitting } = form.formState;
  const [added, setAdded] = useState<{ factorId: string; phone: string } | null>(null);

  useEffect(() => setFocus("phone"), [setFocus]);

  async function add({ phone }: z.infer<typeof schema>) {
    const factorId = await withSecondFactor(async () => {
      await removeUnfinished(client, "phone");
      const others = factors.filter(({ status }) => status === "verified");
      const { data, error } = await client.mfa.enroll({ factorType: "phone", phone, friendlyName: uniqueName(phone, others) });
      if (error) throw error;
      return data.id;
    });
    setAdded({ factorId, phone });
  }

  if (added) {
    return <PhoneStep factorId={added.factorId} name={added.phone} submit={m.totp_submit()} onConfirmed={onAdded} />;
  }
  return (
    <>
      <Form form={form} onSubmit={add} className="space-y-4">
        <FormPhoneField form={form} name="phone" />
        <FormActions submit={m.phone_factor_submit()} pending={m.phone_factor_pending()} isSubmitting={isSubmitting} onCancel={onClosed} />
      </Form>
      {dialog}
    </>
  );
}
