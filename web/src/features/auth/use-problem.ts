import { useCallback, useState } from "react";
import type { FieldValues, Path, UseFormSetError } from "react-hook-form";
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
