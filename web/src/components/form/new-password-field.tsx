import { type FieldValues, type Path, useWatch } from "react-hook-form";
import { useConfig } from "../../lib/config-context";
import { FormPasswordField } from "./form";
import { StrengthHint } from "./strength-hint";
import type { ZodForm } from "./use-zod-form";

/** The input of a form for a password that the user chooses, with the server's rules. */
export function NewPasswordField<Values extends FieldValues>({
  known,
  ...props
}: {
  form: ZodForm<Values>;
  name: Path<Values>;
  label: string;
  /** Texts that others know about the user. A password that contains one is weak. */
  known: string[];
}) {
  const { minLength } = useConfig().accounts.password;
  const password: unknown = useWatch({ control: props.form.control, name: props.name });
  return (
    <FormPasswordField
      {...props}
      autoComplete="new-password"
      minLength={minLength}
      hint={<StrengthHint password={typeof password === "string" ? password : ""} known={known} />}
    />
  );
}
