import type { Ref } from "react";
import { Field } from "../../components/ui/field";
import { capitalised, type CodeLength } from "./code-length";

/** A code's digits in one input: pastes as a whole, fills itself from the message where the device can. */
export function CodeField({
  value,
  length: { digits, word },
  error,
  onChange,
  onComplete,
  ref,
}: {
  value: string;
  length: CodeLength;
  error: string | undefined;
  onChange: (code: string) => void;
  /** The last digit was typed, or the whole code pasted. */
  onComplete: (code: string) => void;
  ref?: Ref<HTMLInputElement>;
}) {
  return (
    <Field
      ref={ref}
      label={`${capitalised(word)}-digit code`}
      name="code"
      inputMode="numeric"
      autoComplete="one-time-code"
      className="text-center text-2xl font-medium tracking-[0.35em] tabular-nums"
      placeholder={"·".repeat(digits)}
      value={value}
      error={error}
      onChange={(event) => {
        const code = event.target.value.replace(/\D/g, "").slice(0, digits);
        onChange(code);
        if (code.length === digits && code !== value) onComplete(code);
      }}
    />
  );
}
