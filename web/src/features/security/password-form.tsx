import type { User } from "@supabase/supabase-js";
import { useEffect, useMemo, useState } from "react";
import { useWatch } from "react-hook-form";
import { CodeField } from "../../components/form/code-field";
import { Form, FormPasswordField } from "../../components/form/form";
import { StrengthHint } from "../../components/form/strength-hint";
import { useZodForm } from "../../components/form/use-zod-form";
import { useStepUp } from "../../components/second-factor/step-up";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { useConfig } from "../../lib/config-context";
import { newPasswordField } from "../../lib/form-fields";
import { AppLink } from "../../lib/navigation";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";

/** Sets or changes the password, with a code where the server requires one. */
export function PasswordForm({
  user,
  asksForCurrent,
  onSaved,
  onClosed,
}: {
  user: User;
  asksForCurrent: boolean;
  onSaved: () => void;
  onClosed: () => void;
}) {
  const { client } = useAuth();
  const { withSecondFactor, dialog } = useStepUp();
  const email = user.email ?? "";
  // The server sends its code to the email address, and to the phone of a user without one.
  const { accounts } = useConfig();
  const codeLength = accounts.codeLength[email === "" ? "phone" : "email"];
  const rules = accounts.password;
  const schema = useMemo(() => {
    const isTyped = (text: string) => !asksForCurrent || text !== "";
    const currentPassword = z.string().check(z.refine(isTyped, { error: () => m.password_current_required() }));
    return z.object({ currentPassword, password: newPasswordField(rules), code: z.string() });
  }, [asksForCurrent, rules]);
  const form = useZodForm(schema, { currentPassword: "", password: "", code: "" });
  const { setFocus } = form;
  const password = useWatch({ control: form.control, name: "password" });
  const [needsCode, setNeedsCode] = useState(false);
  const { isSubmitting } = form.formState;

  useEffect(() => setFocus(asksForCurrent ? "currentPassword" : "password"), [setFocus, asksForCurrent]);

  async function save({ currentPassword, password, code }: z.infer<typeof schema>) {
    try {
      await withSecondFactor(async () => {
        const current = asksForCurrent ? { current_password: currentPassword } : {};
        const { error } = await client.updateUser({ password, ...current, ...(needsCode ? { nonce: code } : {}) });
        if (error) throw error;
      });
    } catch (error) {
      const { code: reason } = z.catch(z.object({ code: z.optional(z.string()) }), {}).parse(error);
      if (reason !== "reauthentication_needed" || needsCode) throw error;
      // The server requires a proof that this is still the same user: it sends a code.
      const request = await client.reauthenticate();
      if (request.error) throw request.error;
      setNeedsCode(true);
      throw error;
    }
    onSaved();
  }

  return (
    <>
      <Form form={form} onSubmit={save}>
        {/* Tells password managers which account the password belongs to. */}
        <input type="text" name="username" autoComplete="username" value={email} readOnly hidden />
        {asksForCurrent && (
          <FormPasswordField
            form={form}
            name="currentPassword"
            label={m.password_current_label()}
            autoComplete="current-password"
            aside={
              <AppLink href="/forgot-password" className="text-sm text-soft underline underline-offset-4 hover:text-ink">
                {m.sign_in_forgot_password()}
              </AppLink>
            }
          />
        )}
        <FormPasswordField
          form={form}
          name="password"
          label={m.password_new_label()}
          autoComplete="new-password"
          hint={<StrengthHint password={password} known={[email]} />}
        />
        {needsCode && <CodeField form={form} name="code" length={codeLength} onComplete={() => void form.submit(save)()} />}
        <p className="text-sm text-soft">{m.password_ends_sessions()}</p>
        <div className="flex flex-wrap gap-3">
          <Button type="submit" size="sm" isPending={isSubmitting}>
            {isSubmitting ? m.password_saving() : m.password_save()}
          </Button>
          <Button tone="quiet" size="sm" onClick={onClosed}>
            {m.cancel()}
          </Button>
        </div>
      </Form>
      {dialog}
    </>
  );
}
