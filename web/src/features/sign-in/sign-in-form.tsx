import { useState } from "react";
import { CurrentPasswordField } from "../../components/form/current-password-field";
import { Form, FormEmailField } from "../../components/form/form";
import { useZodForm } from "../../components/form/use-zod-form";
import { LastUsed } from "../../components/last-used";
import { Button } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { emailField } from "../../lib/form-fields";
import { go } from "../../lib/navigation";
import type { AppAddress } from "../../lib/paths";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { sendCode } from "./send-code";

const schema = z.object({
  email: emailField,
  password: z.string().check(z.minLength(1, { error: () => m.password_required() })),
});

/** Signs in with a password, or sends a code to the email address. */
export function SignInForm({ next }: { next: AppAddress | null }) {
  const { client, lastMethod, rememberMethod } = useAuth();
  const form = useZodForm(schema, { email: "", password: "" });
  const [isUnconfirmed, setIsUnconfirmed] = useState(false);
  const [isSendingCode, setIsSendingCode] = useState(false);
  const { isSubmitting } = form.formState;

  async function signIn(credentials: z.infer<typeof schema>) {
    setIsUnconfirmed(false);
    const { error } = await client.signInWithPassword(credentials);
    if (error) {
      setIsUnconfirmed(error.code === "email_not_confirmed");
      throw error;
    }
    rememberMethod("password");
  }

  async function sendCodeOfKind(kind: "email" | "signup") {
    form.clearProblem();
    if (!(await form.trigger("email", { shouldFocus: true }))) return;
    setIsSendingCode(true);
    try {
      await sendCode(client, { address: form.getValues("email").trim(), kind, next });
      go("/verify");
    } catch (error) {
      form.report(error);
    } finally {
      setIsSendingCode(false);
    }
  }

  return (
    <Form
      form={form}
      onSubmit={signIn}
      isBusy={isSendingCode}
      problemActions={
        isUnconfirmed && (
          <button type="button" onClick={() => sendCodeOfKind("signup")} className="mt-2 font-medium underline">
            {m.sign_in_confirm_again()}
          </button>
        )
      }
    >
      {/* Browsers suggest passkeys here too, while `PasskeySignIn` is shown. */}
      <FormEmailField form={form} name="email" label={m.email_label()} autoComplete="username webauthn" />
      <CurrentPasswordField form={form} name="password" label={m.password_label()} />
      <div className="space-y-3 pt-1">
        <Button type="submit" className="relative w-full" isPending={isSubmitting}>
          {isSubmitting ? m.sign_in_pending() : m.sign_in_submit()}
          {lastMethod === "password" && <LastUsed />}
        </Button>
        <Button
          tone="secondary"
          className="relative w-full"
          isPending={isSendingCode}
          onClick={() => sendCodeOfKind("email")}
        >
          {isSendingCode ? m.sign_in_sending_code() : m.sign_in_send_code()}
          {lastMethod === "code" && <LastUsed />}
        </Button>
      </div>
    </Form>
  );
}
