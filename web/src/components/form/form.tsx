import type { ReactNode, SubmitEvent } from "react";
import type { FieldValues, Path } from "react-hook-form";
import * as m from "../../paraglide/messages";
import { Field, type FieldProps } from "../ui/field";
import { PasswordField } from "../ui/password-field";
import { FormAlert } from "./form-alert";
import type { ZodForm } from "./use-zod-form";

/** A form with its failure above it. Its fields are disabled while it is submitted. */
export function Form<Values extends FieldValues>({
  form,
  onSubmit,
  isBusy = false,
  problemActions,
  className = "space-y-5",
  children,
}: {
  form: ZodForm<Values>;
  onSubmit: (values: Values) => Promise<void>;
  /** Another action of the form is running. */
  isBusy?: boolean;
  /** Actions against the failure, shown with it. */
  problemActions?: ReactNode;
  className?: string;
  children: ReactNode;
}) {
  function submit(event: SubmitEvent) {
    event.preventDefault();
    void form.submit(onSubmit)();
  }
  return (
    <form noValidate onSubmit={submit}>
      <FormAlert problem={form.problem} actions={problemActions} />
      <fieldset disabled={form.formState.isSubmitting || isBusy} className={className}>
        {children}
      </fieldset>
    </form>
  );
}

type FormFieldProps<Values extends FieldValues> = Omit<FieldProps, "error" | "form" | "name"> & {
  form: ZodForm<Values>;
  name: Path<Values>;
};

/** A labelled input of a form, with its error. */
export function FormField<Values extends FieldValues>({ form, name, ...props }: FormFieldProps<Values>) {
  return <Field required {...props} error={form.getFieldState(name, form.formState).error?.message} {...form.register(name)} />;
}

/** The input of a form for an email address. */
export function FormEmailField<Values extends FieldValues>(props: FormFieldProps<Values>) {
  return <FormField type="email" autoComplete="username" inputMode="email" {...props} />;
}

/** The input of a form for a phone number. */
export function FormPhoneField<Values extends FieldValues>(props: Omit<FormFieldProps<Values>, "label">) {
  return <FormField label={m.phone_label()} type="tel" autoComplete="tel" inputMode="tel" placeholder={m.phone_example()} {...props} />;
}

/** The input of a form for a password. */
export function FormPasswordField<Values extends FieldValues>({ form, name, ...props }: FormFieldProps<Values>) {
  const { error } = form.getFieldState(name, form.formState);
  return <PasswordField required {...props} error={error?.message} {...form.register(name)} />;
}
