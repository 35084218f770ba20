import type { User } from "@supabase/supabase-js";
import { type ReactNode, useEffect, useMemo } from "react";
import { useConfig } from "../../lib/config-context";
import { newPasswordField } from "../../lib/form-fields";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { useStepUp } from "../second-factor/step-up";
import { CodeField } from "./code-field";
import { CurrentPasswordField } from "./current-password-field";
import { Form } from "./form";
import { NewPasswordField } from "./new-password-field";
import { type PasswordChange, usePasswordChange } from "./use-password-change";
import { useZodForm } from "./use-zod-form";

/**
 * Sets or changes the password of the signed-in user, with a code where the server requires one.
 */
export function PasswordChangeForm({
  user,
  asksForCurrent,
  focusesFirst = false,
  onSaved,
  children,
}: {
  user: User;
  asksForCurrent: boolean;
  /** Moves the focus to the first field when the form appears. */
  focusesFirst?: boolean;
  onSaved: () => void;
  /** Renders what follows the fields, with the buttons. */
  children: (isSubmitting: boolean) => ReactNode;
}) {
  const { withSecondFactor, dialog } = useStepUp();
  const { needsCode, changePassword } = usePasswordChange();
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

  useEffect(() => {
    if (focusesFirst) setFocus(asksForCurrent ? "currentPassword" : "password");
  }, [setFocus, asksForCurrent, focusesFirst]);

  async function save(change: PasswordChange) {
    await withSecondFactor(() => changePassword(change));
    onSaved();
  }

  return (
    <>
      <Form form={form} onSubmit={save}>
        {/* Tells password managers which account the password belongs to. */}
        <input type="text" name="username" autoComplete="username" value={email} readOnly hidden />
        {asksForCurrent && <CurrentPasswordField form={form} name="currentPassword" label={m.password_current_label()} />}
        <NewPasswordField form={form} name="password" label={m.password_new_label()} known={[email]} />
        {needsCode && <CodeField form={form} name="code" length={codeLength} onComplete={() => void form.submit(save)()} />}
        {children(form.formState.isSubmitting)}
      </Form>
      {dialog}
    </>
  );
}
