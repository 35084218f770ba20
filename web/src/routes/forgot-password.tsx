import { zodResolver } from "@hookform/resolvers/zod";
import { useForm } from "react-hook-form";
import { Button } from "../components/ui/button";
import { Field } from "../components/ui/field";
import { useAuth } from "../lib/auth/auth-context";
import { emailField } from "../lib/form-fields";
import { FormAlert } from "../components/form/form-alert";
import { FormPage } from "../components/form-page";
import { pendingEmail } from "../features/sign-in/pending-code";
import { sendCode } from "../features/sign-in/send-code";
import { useErrorFocus, useProblem } from "../components/form/use-form-problem";
import { AppLink, go } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";
import { z } from "../lib/zod";

const schema = z.object({ email: emailField });
type Values = z.infer<typeof schema>;

export function ForgotPasswordPage() {
  const { client, user } = useAuth();
  const { register, handleSubmit, formState, setError, setFocus } = useForm<Values>({
    resolver: zodResolver(schema),
    defaultValues: { email: user?.email ?? pendingEmail() },
  });
  const { problem, report, clear } = useProblem<Values>(setError, ["email"]);
  useErrorFocus(formState, setFocus, ["email"]);
  const { errors, isSubmitting } = formState;
  usePageTitle("Forgot password");

  const send = handleSubmit(async ({ email }) => {
    clear();
    try {
      await sendCode(client, { address: email, kind: "recovery", next: null });
      go("/verify");
    } catch (error) {
      report(error);
    }
  });

  return (
    <FormPage title="Forgot your password?" lead="We’ll mail you a code and a link to set a new one.">
      <form noValidate onSubmit={send}>
        <FormAlert problem={problem} />
        <fieldset disabled={isSubmitting} className="space-y-5">
          <Field
            label="E-mail"
            type="email"
            autoComplete="username"
            inputMode="email"
            error={errors.email?.message}
            {...register("email")}
          />
          <Button type="submit" className="w-full" isPending={isSubmitting}>
            {isSubmitting ? "Sending the mail" : "Send me a mail"}
          </Button>
        </fieldset>
      </form>
      <p className="mt-8 text-sm text-soft">
        Remembered it?{" "}
        <AppLink href="/sign-in" className="font-medium text-ink underline underline-offset-4">
          Sign in
        </AppLink>
      </p>
    </FormPage>
  );
}
