import { useEffect, useMemo } from "react";
import type { CodeLength } from "../../lib/config";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { useZodForm } from "./use-zod-form";

/** Returns the form of one code of `length` digits. Its input gets the focus. */
export function useCodeForm(length: CodeLength) {
  const schema = useMemo(
    () => z.object({ code: z.string().check(z.minLength(length, { error: () => m.code_incomplete({ digits: length }) })) }),
    [length],
  );
  const form = useZodForm(schema, { code: "" }, { reValidateMode: "onSubmit" });
  const { setFocus } = form;
  useEffect(() => setFocus("code"), [setFocus]);
  return form;
}
