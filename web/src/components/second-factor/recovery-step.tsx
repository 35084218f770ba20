import { useEffect } from "react";
import { useAuth } from "../../lib/auth/auth-context";
import { redeemRecoveryCode } from "../../lib/auth/recovery-codes";
import { useApi } from "../../lib/auth/use-api";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { Form, FormField } from "../form/form";
import { useZodForm } from "../form/use-zod-form";
import { Button } from "../ui/button";

const schema = z.object({
  code: z.string().check(z.trim(), z.minLength(1, { error: () => m.second_factor_recovery_required() })),
});

/** Confirms the session with a recovery code. */
export function RecoveryStep({ onConfirmed }: { onConfirmed: () => void }) {
  const { client } = useAuth();
  const api = useApi();
  const form = useZodForm(schema, { code: "" }, { reValidateMode: "onSubmit" });
  const { setFocus } = form;
  const { isSubmitting } = form.formState;

  useEffect(() => setFocus("code"), [setFocus]);

  async function confirm({ code }: z.infer<typeof schema>) {
    await redeemRecoveryCode(api, client, code);
    onConfirmed();
  }

  return (
    <>
      <p className="mb-6 text-soft">{m.second_factor_recovery_lead()}</p>
      <Form form={form} onSubmit={confirm}>
        <FormField
          form={form}
          name="code"
          label={m.second_factor_recovery_label()}
          autoComplete="off"
          autoCapitalize="off"
          spellCheck={false}
          className="font-medium tracking-wide"
        />
        <Button type="submit" className="w-full" isPending={isSubmitting}>
          {isSubmitting ? m.second_factor_pending() : m.second_factor_submit()}
        </Button>
      </Form>
    </>
  );
}
