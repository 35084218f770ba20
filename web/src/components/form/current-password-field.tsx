import type { FieldValues, Path } from "react-hook-form";
import { AppLink } from "../../lib/navigation";
import * as m from "../../paraglide/messages";
import { FormPasswordField } from "./form";
import type { ZodForm } from "./use-zod-form";

/**
 * The input of a form for the password that the account has, with a link for people who forgot it.
 */
export function CurrentPasswordField<Values extends FieldValues>(props: {
  form: ZodForm<Values>;
  name: Path<Values>;
  label: string;
}) {
  return (
    <FormPasswordField
      {...props}
      autoComplete="current-password"
      aside={
        <AppLink href="/forgot-password" className="text-sm text-soft underline underline-offset-4 hover:text-ink">
          {m.sign_in_forgot_password()}
        </AppLink>
      }
    />
  );
}
