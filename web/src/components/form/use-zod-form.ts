import { zodResolver } from "@hookform/resolvers/zod";
import { useCallback, useEffect, useState } from "react";
import { type DefaultValues, type FieldValues, type Path, useForm, type UseFormProps, type UseFormReturn } from "react-hook-form";
import { type DescribedError, describeError } from "../../lib/errors";
import type { z } from "../../lib/zod";

/** A form whose values satisfy a schema before they are submitted. */
export interface ZodForm<Values extends FieldValues> extends UseFormReturn<Values> {
  /** The failure that belongs to no field of the form, shown above it. */
  problem: DescribedError | null;
  /** Shows a failure: at its field when the form has that field, else above the form. */
  report: (error: unknown) => void;
  clearProblem: () => void;
  /**
   * Returns the event handler that validates the form and runs the action. What the action throws
   * is reported.
   */
  submit: (action: (values: Values) => Promise<void>) => () => Promise<void>;
}

/**
 * The one way to make a form: the schema has the rules and their sentences, `Form` and `FormField`
 * render it, and an action that fails throws. Input is kept whatever happens.
 */
export function useZodForm<Values extends FieldValues>(
  schema: z.ZodMiniType<Values, Values>,
  defaultValues: Values,
  options: Pick<UseFormProps<Values>, "reValidateMode"> = {},
): ZodForm<Values> {
  const form = useForm<Values>({
    resolver: zodResolver(schema),
    ...options,
    // A complete set of values is one of the partial sets that the library asks for.
    defaultValues: defaultValues as DefaultValues<Values>,
  });
  const { setError, handleSubmit } = form;
  const [problem, setProblem] = useState<DescribedError | null>(null);
  const [fields] = useState(() => Object.keys(defaultValues) as Path<Values>[]);
  useErrorFocus(form, fields);

  const report = useCallback(
    (error: unknown) => {
      const described = describeError(error);
      const field = fields.find((name) => name === described.field);
      if (field !== undefined && !described.reasons) {
        setError(field, { message: described.message }, { shouldFocus: true });
      } else {
        setProblem(described);
      }
    },
    [fields, setError],
  );
  const clearProblem = useCallback(() => setProblem(null), []);

  const submit = (action: (values: Values) => Promise<void>) => () =>
    handleSubmit(async (values) => {
      clearProblem();
      try {
        await action(values);
      } catch (error) {
        report(error);
      }
    })();

  return { ...form, problem, report, clearProblem, submit };
}

/**
 * Moves the focus to the first wrong field once a submit has ended. The library does so too early:
 * its fields are still disabled then.
 */
function useErrorFocus<Values extends FieldValues>(
  { formState: { isSubmitting, submitCount, errors }, setFocus }: UseFormReturn<Values>,
  fields: Path<Values>[],
): void {
  const wrongField = isSubmitting ? undefined : fields.find((name) => name in errors);
  useEffect(() => {
    if (wrongField !== undefined) setFocus(wrongField);
  }, [wrongField, submitCount, setFocus]);
}
