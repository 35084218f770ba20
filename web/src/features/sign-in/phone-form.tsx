import { useState } from "react";
import { Form, FormPhoneField } from "../../components/form/form";
import { useZodForm } from "../../components/form/use-zod-form";
import { LastUsed } from "../../components/last-used";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { errorCode } from "../../lib/errors";
import { phoneField } from "../../lib/form-fields";
import { AppLink, go } from "../../lib/navigation";
import type { AppAddress, PageAddress } from "../../lib/paths";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { pendingPhone } from "../../lib/pending-code";
import { sendCode } from "./send-code";

const schema = z.object({ phone: phoneField });

/** Requests a code by text message. The code itself is entered on /verify. */
export function PhoneForm({
  kind,
  next,
  signUpHref,
}: {
  kind: "phone" | "phone-signup";
  next: AppAddress | null;
  signUpHref: PageAddress | null;
}) {
  const { client, lastMethod } = useAuth();
  const { accounts } = useConfig();
  // /verify leads back here to correct the number.
  const form = useZodForm(schema, { phone: pendingPhone() });
  const [isUnknown, setIsUnknown] = useState(false);

  async function send({ phone }: z.infer<typeof schema>) {
    setIsUnknown(false);
    try {
      await sendCode(client, { address: phone, kind, next });
      go("/verify");
    } catch (error) {
      const code = errorCode(error);
      if (code === "otp_disabled") {
        setIsUnknown(true);
        form.report({ message: m.phone_unknown({ phone: form.getValues("phone").trim() }) });
      } else if (code === "validation_failed") {
        form.setError("phone", { message: m.phone_malformed() }, { shouldFocus: true });
      } else form.report(error);
    }
  }

  return (
    <Form
      form={form}
      onSubmit={send}
      problemActions={
        isUnknown &&
        signUpHref !== null && (
          <AppLink href={signUpHref} className="mt-2 inline-block font-medium underline">
            {m.phone_create_account()}
          </AppLink>
        )
      }
    >
      <FormPhoneField form={form} name="phone" hint={m.phone_hint({ code: m.code_name({ digits: accounts.codeLength.phone }) })} />
      <Button type="submit" className="relative w-full" isPending={form.formState.isSubmitting}>
        {form.formState.isSubmitting ? m.phone_pending() : m.phone_submit()}
        {lastMethod === "phone" && <LastUsed />}
      </Button>
    </Form>
  );
}
