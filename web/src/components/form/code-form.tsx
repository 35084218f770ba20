import type { ReactNode, SubmitEvent } from "react";
import type { CodeLength } from "../../lib/config";
import { Button } from "../ui/button";
import { CodeField } from "./code-field";
import { FormAlert } from "./form-alert";
import { useCodeForm } from "./use-code-form";

/**
 * A form for one code of digits, submitted with the last digit. A wrong code stays, selected, to be
 * typed over.
 */
export function CodeForm({
  length,
  label,
  submit: submitLabel,
  pending,
  onSubmit,
  actions,
}: {
  length: CodeLength;
  /** The label of the input, which else names the length of the code. */
  label?: string;
  submit: string;
  pending: string;
  /** Verifies the code. What it throws is shown at the input, or above it. */
  onSubmit: (code: string) => Promise<void>;
  /** Shown beside the button. */
  actions?: ReactNode;
}) {
  const form = useCodeForm(length);
  const { setFocus } = form;
  const { isSubmitting } = form.formState;

  function submit(event?: SubmitEvent) {
    event?.preventDefault();
    // The input stays enabled while a code is verified, so that it keeps the focus.
    if (isSubmitting) return;
    void form.submit(async ({ code }) => {
      try {
        await onSubmit(code);
      } catch (error) {
        setFocus("code", { shouldSelect: true });
        throw error;
      }
    })();
  }

  return (
    <form noValidate onSubmit={submit}>
      <FormAlert problem={form.problem} />
      <CodeField form={form} name="code" length={length} label={label} onComplete={submit} />
      <div className="mt-5 flex flex-wrap gap-3">
        <Button type="submit" className="grow" isPending={isSubmitting}>
          {isSubmitting ? pending : submitLabel}
        </Button>
        {actions}
      </div>
    </form>
  );
}
