import { type FieldValues, type Path, useController } from "react-hook-form";
import type { ZodForm } from "./use-zod-form";
import { Field } from "../ui/field";
import type { CodeLength } from "../../lib/config";
import * as m from "../../paraglide/messages";

/**
 * The input of a form for a code: it takes a code pasted as a whole, and filled in by the device.
 */
export function CodeField<Values extends FieldValues>({
  form,
  name,
  length,
  label = m.code_label({ digits: length }),
  onComplete,
}: {
  form: ZodForm<Values>;
  name: Path<Values>;
  length: CodeLength;
  label?: string | undefined;
  /** The last digit was typed, or the whole code was pasted. */
  onComplete: () => void;
}) {
  const {
    field: { ref, value, onBlur, onChange },
    fieldState: { error },
  } = useController({ control: form.control, name });
  return (
    <Field
      ref={ref}
      label={label}
      name="code"
      inputMode="numeric"
      autoComplete="one-time-code"
      className="text-center text-2xl font-medium tracking-[0.35em] tabular-nums"
      placeholder={"·".repeat(length)}
      value={value}
      error={error?.message}
      onBlur={onBlur}
      onChange={(event) => {
        const code = event.target.value.replace(/\D/g, "").slice(0, length);
        const isComplete = code.length === length && code !== value;
        onChange(code);
        form.clearErrors(name);
        if (isComplete) onComplete();
      }}
    />
  );
}
