import type { Ref } from "react";
import { Field } from "../../components/ui/field";

/** Six digits in one input: pastes as a whole, fills itself from the message where the device can. */
export function CodeField({
  value,
  error,
  onChange,
  ref,
}: {
  value: string;
  error: string | undefined;
  onChange: (code: string) => void;
  ref?: Ref<HTMLInputElement>;
}) {
  return (
    <Field
      ref={ref}
      label="Six-digit code"
      name="code"
      inputMode="numeric"
      autoComplete="one-time-code"
      className="text-center text-2xl font-medium tracking-[0.35em] tabular-nums"
      placeholder="······"
      value={value}
      error={error}
      onChange={(event) => onChange(event.target.value.replace(/\D/g, "").slice(0, 6))}
    />
  );
}
