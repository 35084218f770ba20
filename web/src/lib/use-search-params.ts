import { useMemo } from "react";
import { nextSchema } from "./next-schema";
import { useShownAddress } from "./shown-address";
import { z } from "./zod";

/** The query parameters of the pages for visitors, as `visitorAddress` writes them. */
export const visitorSearch = z.object({
  next: nextSchema,
  with: z.catch(z.nullable(z.literal("phone")), null),
});

/**
 * Reads the query parameters of the shown page. The schema replaces what it cannot read; it must
 * not fail.
 */
export function useSearchParams<Search>(schema: z.ZodMiniType<Search>): Search {
  const { search } = useShownAddress();
  return useMemo(() => schema.parse(Object.fromEntries(new URLSearchParams(search))), [schema, search]);
}
