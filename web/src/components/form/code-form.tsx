import type { ReactNode, SubmitEvent } from "react";
import type { CodeLength } from "../../lib/config";
import { describeError } from "../../lib/errors";
import { Button } from "../ui/button";
import { CodeField } from "./code-field";
import { FormAlert } from "./form-alert";
import { useCodeForm } from "./use-code-form";
import type { ZodForm } from "./use-zod-form";

/**
 * A form for one code of digits, submitted with the last digit. A wrong code stays, selected, to be
 * typed over.
 */
export function CodeForm({
  length,
  label,
  submit: submitLabel,
  pending,
  rejection,
  onSubmit,
  actions,
  children,
}: {
  length: CodeLength;
  /** The label of the input, which else names the length of the code. */
  label?: string;
  submit: string;
  pending: string;
  /** The sentence for a wrong code, which else depends on the server's error. */
  rejection?: string | undefined;
  /** Verifies the code. What it throws is shown at the input, or above it. */
  onSubmit: (code: string) => Promise<void>;
  /** Shown beside the button. */
  actions?: ReactNode;
  /** Renders what follows the form, and reports its failures in it. */
  children?: (form: Pick<ZodForm<{ code: string }>, "report" | "clearProblem">) => ReactNode;
}) {
  const form = useCodeForm(length);
  const { setError, setFocus } = form;
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
        if (rejection === undefined || describeError(error).field !== "code") throw error;
        setError("code", { message: rejection });
      }
    })();
  }

  return (
    <>
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
      {children?.(form)}
    </>
  );
}
