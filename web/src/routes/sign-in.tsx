import { zodResolver } from "@hookform/resolvers/zod";
import { useState } from "react";
import { useForm } from "react-hook-form";
import { Button } from "../components/ui/button";
import { Field } from "../components/ui/field";
import { useAuth } from "../lib/auth/auth-context";
import { EmailOrPhone, useIsPhoneAsked, withPhone } from "../features/sign-in/contact-switch";
import { emailField } from "../lib/form-fields";
import { FormAlert } from "../components/form/form-alert";
import { FormPage } from "../components/form-page";
import { VisitorsOnly } from "../components/guards";
import { LastUsed } from "../components/last-used";
import { PasswordField } from "../components/ui/password-field";
import { PhoneForm } from "../features/sign-in/phone-form";
import { hasProviders, Or, ProviderButtons, useSignInMethods } from "../features/sign-in/provider-buttons";
import { sendCode } from "../features/sign-in/send-code";
import { useErrorFocus, useProblem } from "../components/form/use-form-problem";
import { AppLink, go } from "../lib/navigation";
import { nextFromAddress, withNext } from "../lib/next";
import { usePageTitle } from "../lib/use-page-title";
import { z } from "../lib/zod";

export function SignInPage() {
  const [next] = useState(nextFromAddress);
  const { methods } = useSignInMethods();
  const isByPhone = useIsPhoneAsked();
  const signUpByPhone = withPhone("/sign-up", next);
  usePageTitle("Sign in");
  return (
    <VisitorsOnly next={next}>
      <FormPage title="Welcome back">
        <ProviderButtons next={next} />
        {(methods.email || methods.phone) && (
          <>
            {hasProviders(methods) && <Or />}
            <EmailOrPhone
              path="/sign-in"
              next={next}
              email={methods.email ? <SignInForm next={next} /> : null}
              phone={methods.phone ? <PhoneForm kind="phone" next={next} signUpHref={methods.allowsSignUp ? signUpByPhone : null} /> : null}
            />
          </>
        )}
        {methods.allowsSignUp && (
          <p className="mt-8 text-sm text-soft">
            New here?{" "}
            <AppLink
              href={isByPhone ? signUpByPhone : withNext("/sign-up", next)}
              className="font-medium text-ink underline underline-offset-4"
            >
              Create an account
            </AppLink>
          </p>
        )}
      </FormPage>
    </VisitorsOnly>
  );
}

const schema = z.object({ email: emailField, password: z.string().check(z.minLength(1, "Enter your password.")) });
type Values = z.infer<typeof schema>;

function SignInForm({ next }: { next: string | null }) {
  const { client, lastMethod, rememberMethod } = useAuth();
  const { register, handleSubmit, formState, setError, setFocus, trigger, getValues } = useForm<Values>({
    resolver: zodResolver(schema),
    defaultValues: { email: "", password: "" },
  });
  const { problem, report, clear } = useProblem<Values>(setError, ["email", "password"]);
  useErrorFocus(formState, setFocus, ["email", "password"]);
  const [isUnconfirmed, setIsUnconfirmed] = useState(false);
  const [isSendingCode, setIsSendingCode] = useState(false);
  const { errors, isSubmitting } = formState;

  const signIn = handleSubmit(async ({ email, password }) => {
    clear();
    setIsUnconfirmed(false);
    const { error } = await client.signInWithPassword({ email, password });
    if (error) {
      setIsUnconfirmed(error.code === "email_not_confirmed");
      report(error);
      return;
    }
    rememberMethod("password");
  });

  async function sendCodeOf(kind: "email" | "signup") {
    clear();
    if (!(await trigger("email", { shouldFocus: true }))) return;
    setIsSendingCode(true);
    try {
      await sendCode(client, { address: getValues("email").trim(), kind, next });
      go("/verify");
    } catch (error) {
      report(error);
    } finally {
      setIsSendingCode(false);
    }
  }

  return (
    <form noValidate onSubmit={signIn}>
      <FormAlert
        problem={problem}
        actions={
          isUnconfirmed && (
            <button type="button" onClick={() => sendCodeOf("signup")} className="mt-2 font-medium underline">
              Send a new code
            </button>
          )
        }
      />
      <fieldset disabled={isSubmitting || isSendingCode} className="space-y-5">
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
          autoComplete="current-password"
          error={errors.password?.message}
          aside={
            <AppLink href="/forgot-password" className="text-sm text-soft underline underline-offset-4 hover:text-ink">
              Forgot it?
            </AppLink>
          }
          {...register("password")}
        />
        <div className="space-y-3 pt-1">
          <Button type="submit" className="relative w-full" isPending={isSubmitting}>
            {isSubmitting ? "Signing in" : "Sign in"}
            {lastMethod === "password" && <LastUsed />}
          </Button>
          <Button
            tone="quiet"
            className="relative w-full"
            isPending={isSendingCode}
            onClick={() => sendCodeOf("email")}
          >
            {isSendingCode ? "Sending the code" : "E-mail me a code instead"}
            {lastMethod === "code" && <LastUsed />}
          </Button>
        </div>
      </fieldset>
    </form>
  );
}
