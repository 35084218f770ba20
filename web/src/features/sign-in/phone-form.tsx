import { zodResolver } from "@hookform/resolvers/zod";
import { useState } from "react";
import { useForm } from "react-hook-form";
import { Button } from "../../components/ui/button";
import { Field } from "../../components/ui/field";
import { AppLink, go } from "../../lib/navigation";
import { z } from "../../lib/zod";
import { useAuth } from "../../lib/auth/auth-context";
import { useCodeLength } from "./code-length";
import { phoneField } from "../../lib/form-fields";
import { FormAlert } from "../../components/form/form-alert";
import { LastUsed } from "../../components/last-used";
import { pendingPhone } from "./pending-code";
import { sendCode } from "./send-code";
import { useErrorFocus, useProblem } from "../../components/form/use-form-problem";

const schema = z.object({ phone: phoneField });
type Values = z.infer<typeof schema>;

/** Asks for the number that a code goes to. The code itself is entered on /verify, as those from mails are. */
export function PhoneForm({ kind, next, signUpHref }: { kind: "phone" | "phone-signup"; next: string | null; signUpHref: string | null }) {
  const { client, lastMethod } = useAuth();
  const { aCode } = useCodeLength("phone");
  const { register, handleSubmit, formState, setError, setFocus, getValues } = useForm({
    resolver: zodResolver(schema),
    // Whoever comes back from /verify to correct their number finds it here.
    defaultValues: { phone: pendingPhone() },
  });
  const { problem, report, clear } = useProblem<Values>(setError, ["phone"]);
  useErrorFocus(formState, setFocus, ["phone"]);
  const [isUnknown, setIsUnknown] = useState(false);
  const { errors, isSubmitting } = formState;

  const send = handleSubmit(async ({ phone }) => {
    clear();
    setIsUnknown(false);
    try {
      await sendCode(client, { address: phone, kind, next });
      go("/verify");
    } catch (error) {
      if (codeOf(error) === "otp_disabled") {
        setIsUnknown(true);
        report({ message: `There is no account with ${getValues("phone").trim()} yet.` });
      } else if (codeOf(error) === "validation_failed") {
        setError("phone", { message: "This doesn’t look like a phone number." }, { shouldFocus: true });
      } else report(error);
    }
  });

  return (
    <form noValidate onSubmit={send}>
      <FormAlert
        problem={problem}
        actions={
          isUnknown &&
          signUpHref !== null && (
            <AppLink href={signUpHref} className="mt-2 inline-block font-medium underline">
              Create one
            </AppLink>
          )
        }
      />
      <fieldset disabled={isSubmitting} className="space-y-5">
        <Field
          label="Phone number"
          type="tel"
          autoComplete="tel"
          inputMode="tel"
          placeholder="+41 79 123 45 67"
          error={errors.phone?.message}
          hint={`We text you ${aCode}.`}
          {...register("phone")}
        />
        <Button type="submit" className="relative w-full" isPending={isSubmitting}>
          {isSubmitting ? "Sending the code" : "Text me a code"}
          {lastMethod === "phone" && <LastUsed />}
        </Button>
      </fieldset>
    </form>
  );
}

function codeOf(error: unknown): unknown {
  return typeof error === "object" && error !== null && "code" in error ? error.code : null;
}
