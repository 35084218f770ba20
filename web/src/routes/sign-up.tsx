import { zodResolver } from "@hookform/resolvers/zod";
import { useState } from "react";
import { useForm, useWatch } from "react-hook-form";
import { track } from "../analytics";
import { Alert } from "../components/ui/alert";
import { Button } from "../components/ui/button";
import { Field } from "../components/ui/field";
import { useAuth } from "../lib/auth/auth-context";
import { EmailOrPhone, useIsPhoneAsked, withPhone } from "../features/sign-in/contact-switch";
import { emailField, newPasswordField } from "../lib/form-fields";
import { FormAlert } from "../components/form/form-alert";
import { FormPage } from "../components/form-page";
import { VisitorsOnly } from "../components/guards";
import { PasswordField } from "../components/ui/password-field";
import { pendingEmail, rememberPendingCode } from "../features/sign-in/pending-code";
import { PhoneForm } from "../features/sign-in/phone-form";
import { hasProviders, Or, ProviderButtons, useSignInMethods } from "../features/sign-in/provider-buttons";
import { StrengthHint } from "../features/sign-in/strength-hint";
import { useErrorFocus, useProblem } from "../components/form/use-form-problem";
import { AppLink, go } from "../lib/navigation";
import { nextFromAddress, withNext } from "../lib/next";
import { usePageTitle } from "../lib/use-page-title";
import { z } from "../lib/zod";

export function SignUpPage() {
  const [next] = useState(nextFromAddress);
  const { methods } = useSignInMethods();
  const isByPhone = useIsPhoneAsked();
  usePageTitle("Create an account");
  return (
    <VisitorsOnly next={next}>
      <FormPage title="Create your account">
        {methods.allowsSignUp ? (
          <>
            <ProviderButtons next={next} />
            {(methods.email || methods.phone) && (
              <>
                {hasProviders(methods) && <Or />}
                <EmailOrPhone
                  path="/sign-up"
                  next={next}
                  email={methods.email ? <SignUpForm next={next} /> : null}
                  phone={methods.phone ? <PhoneForm kind="phone-signup" next={next} signUpHref={null} /> : null}
                />
              </>
            )}
          </>
        ) : (
          <Alert tone="info">New accounts can’t be made here at the moment.</Alert>
        )}
        <p className="mt-8 text-sm text-soft">
          Have an account?{" "}
          <AppLink
            href={isByPhone ? withPhone("/sign-in", next) : withNext("/sign-in", next)}
            className="font-medium text-ink underline underline-offset-4"
          >
            Sign in
          </AppLink>
        </p>
      </FormPage>
    </VisitorsOnly>
  );
}

const schema = z.object({ email: emailField, password: newPasswordField });
type Values = z.infer<typeof schema>;

function SignUpForm({ next }: { next: string | null }) {
  const { client, rememberMethod } = useAuth();
  const { register, handleSubmit, formState, setError, setFocus, control } = useForm<Values>({
    resolver: zodResolver(schema),
    // Whoever comes back from /verify to correct their address finds it here.
    defaultValues: { email: pendingEmail(), password: "" },
  });
  const { problem, report, clear } = useProblem<Values>(setError, ["email", "password"]);
  useErrorFocus(formState, setFocus, ["email", "password"]);
  const [email, password] = useWatch({ control, name: ["email", "password"] });
  const { errors, isSubmitting } = formState;

  const signUp = handleSubmit(async (values) => {
    clear();
    const { data, error } = await client.signUp({
      ...values,
      options: { emailRedirectTo: window.location.origin + (next ?? "/app") },
    });
    if (error) {
      report(error);
      return;
    }
    track("sign_up", { method: "email" });
    rememberMethod("password");
    if (data.session) return;
    rememberPendingCode({ address: values.email, kind: "signup", next });
    go("/verify");
  });

  return (
    <form noValidate onSubmit={signUp}>
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
        <PasswordField
          label="Password"
          autoComplete="new-password"
          error={errors.password?.message}
          hint={<StrengthHint password={password} known={[email]} />}
          {...register("password")}
        />
        <Button type="submit" className="w-full" isPending={isSubmitting}>
          {isSubmitting ? "Creating your account" : "Create account"}
        </Button>
      </fieldset>
    </form>
  );
}
