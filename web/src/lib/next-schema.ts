import { safeNext } from "./next";
import { z } from "./zod";

/** Reads the address to go to after sign-in; `null` for everything that is not one. */
export const nextSchema = z.pipe(
  z._default(z.unknown(), null),
  z.transform((value) => safeNext(typeof value === "string" ? value : null)),
);
