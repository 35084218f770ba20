import { zodResolver } from "@hookform/resolvers/zod";
import type { User } from "@supabase/supabase-js";
import { useState } from "react";
import { useForm, useWatch } from "react-hook-form";
import { Button } from "../components/ui/button";
import { useAuth } from "../lib/auth/auth-context";
import { CodeField } from "../features/sign-in/code-field";
import { useCodeLength } from "../features/sign-in/code-length";
import { newPasswordField } from "../lib/form-fields";
import { FormAlert } from "../components/form/form-alert";
import { FormPage } from "../components/form-page";
import { FormSkeleton } from "../components/guards";
import { PasswordField } from "../components/ui/password-field";
import { StrengthHint } from "../features/sign-in/strength-hint";
import { useErrorFocus, useProblem } from "../components/form/use-form-problem";
import { AppLink } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";
import { z } from "../lib/zod";

export function UpdatePasswordPage() {
  const { user, loading } = useAuth();
  usePageTitle("New password");
  if (loading) return <FormSkeleton />;
  if (!user) return <LinkExpired />;
  return <NewPasswordForm email={user.email ?? ""} codeComesBy={codeComesBy(user)} />;
}

function LinkExpired() {
  const { problem } = useAuth();
  const isElsewhere = problem?.kind === "other-browser";
  return (
    <FormPage
      title={isElsewhere ? "This is another browser" : "This link no longer works"}
      lead={
        isElsewhere
          ? "For your safety a link sets a new password only in the browser that asked for it, and works once. Send a new one from here: its code works anywhere."
          : "It was used already or is too old."
      }
    >
      <div className="flex flex-wrap gap-3">
        <Button asChild>
          <AppLink href="/forgot-password">Send a new one</AppLink>
        </Button>
        <Button tone="secondary" asChild>
          <AppLink href="/sign-in">Sign in</AppLink>
        </Button>
      </div>
    </FormPage>
  );
}

/** The server sends its code to the address, and to the phone of somebody who has none. */
function codeComesBy({ email }: User): "email" | "phone" {
  return email === undefined || email === "" ? "phone" : "email";
}

const schema = z.object({ password: newPasswordField });
type Values = z.infer<typeof schema>;

function NewPasswordForm({ email, codeComesBy }: { email: string; codeComesBy: "email" | "phone" }) {
  const { client, isRecovering } = useAuth();
  const { register, handleSubmit, formState, setError, setFocus, control } = useForm<Values>({
    resolver: zodResolver(schema),
    defaultValues: { password: "" },
  });
  const { problem, report, clear } = useProblem<Values>(setError, ["password"]);
  useErrorFocus(formState, setFocus, ["password"]);
  const password = useWatch({ control, name: "password" });
  const [needsCode, setNeedsCode] = useState(false);
  const [code, setCode] = useState("");
  const codeLength = useCodeLength(codeComesBy);
  const [isDone, setIsDone] = useState(false);
  const { errors, isSubmitting } = formState;

  const save = handleSubmit((values) => saveWith(values, code));

  async function saveWith({ password }: Values, nonce: string) {
    clear();
    const { error } = await client.updateUser(needsCode ? { password, nonce } : { password });
    if (!error) {
      setIsDone(true);
      return;
    }
    report(error);
    if (error.code === "reauthentication_needed" && !needsCode) {
      // The server wants to know that it is still the same person: it sends a code to their inbox.
      const asked = await client.reauthenticate();
      if (asked.error) report(asked.error);
      else setNeedsCode(true);
    }
  }

  if (isDone) {
    return (
      <FormPage title="Your password is changed" lead="Use it the next time you sign in.">
        <Button asChild>
          <AppLink href="/app">Open your account</AppLink>
        </Button>
        <p role="status" className="sr-only">
          Your password is changed.
        </p>
      </FormPage>
    );
  }
  return (
    <FormPage
      title={isRecovering ? "Set a new password" : "Change your password"}
      lead={email === "" ? undefined : `For ${email}`}
    >
      <form noValidate onSubmit={save}>
        <FormAlert problem={problem} />
        <fieldset disabled={isSubmitting} className="space-y-5">
          {/* Tells password managers whose password this is. */}
          <input type="text" name="username" autoComplete="username" value={email} readOnly hidden />
          <PasswordField
            label="New password"
            autoComplete="new-password"
            error={errors.password?.message}
            hint={<StrengthHint password={password} known={[email]} />}
            {...register("password")}
          />
          {needsCode && (
            <CodeField
              value={code}
              length={codeLength}
              error={undefined}
              onChange={setCode}
              onComplete={(typed) => void handleSubmit((values) => saveWith(values, typed))()}
            />
          )}
          <Button type="submit" className="w-full" isPending={isSubmitting}>
            {isSubmitting ? "Saving" : "Save password"}
          </Button>
        </fieldset>
      </form>
    </FormPage>
  );
}
