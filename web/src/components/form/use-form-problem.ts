import { useCallback, useEffect, useState } from "react";
import type { FieldValues, FormState, Path, UseFormSetError, UseFormSetFocus } from "react-hook-form";
import { type Described, describeError } from "../../lib/errors";

/** Puts a failure where it belongs: on its field when the form has that field, else above the form. */
export function useProblem<Values extends FieldValues>(setError: UseFormSetError<Values>, fields: Path<Values>[]) {
  const [problem, setProblem] = useState<Described | null>(null);

  const report = (error: unknown) => {
    const described = describeError(error);
    const field = fields.find((name) => name === described.field);
    if (field !== undefined && !described.reasons) {
      setError(field, { message: described.message }, { shouldFocus: true });
    } else {
      setProblem(described);
    }
  };
  const clear = useCallback(() => setProblem(null), []);
  return { problem, report, clear };
}

/**
 * Moves the focus to the first field that is wrong once a try to submit is over. The form does so itself too early: its
 * fields are still disabled then.
 */
export function useErrorFocus<Values extends FieldValues>(
  { isSubmitting, submitCount, errors }: FormState<Values>,
  setFocus: UseFormSetFocus<Values>,
  fields: Path<Values>[],
): void {
  const wrong = isSubmitting ? undefined : fields.find((name) => name in errors);
  useEffect(() => {
    if (wrong !== undefined) setFocus(wrong);
  }, [wrong, submitCount, setFocus]);
}
