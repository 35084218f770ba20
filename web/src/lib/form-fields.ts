import * as m from "../paraglide/messages";
import { z } from "./zod";

/** The rules that can be checked without the server, whose own rules decide. */
export const emailField = z
  .string()
  .check(
    z.trim(),
    z.minLength(1, { error: () => m.email_required() }),
    z.maxLength(255, { error: () => m.email_too_long() }),
    z.regex(/^[^\s@]+@[^\s@]+$/, { error: () => m.email_malformed() }),
  );

/** Returns a phone number in its international form, without separators. */
export function internationalNumber(text: string): string {
  const number = text.replace(/\(0\)|[\s().\-\u2010-\u2015/]/g, "");
  return number.startsWith("00") ? `+${number.slice(2)}` : number;
}

export const phoneField = z.pipe(
  z.pipe(z.string(), z.transform(internationalNumber)),
  z
    .string()
    .check(
      z.minLength(1, { error: () => m.phone_required() }),
      z.regex(/^\+/, { error: () => m.phone_needs_country() }),
      z.regex(/^\+[1-9]\d{6,14}$/, { error: () => m.phone_malformed() }),
    ),
);

export const newPasswordField = z
  .string()
  .check(
    z.minLength(8, { error: () => m.password_too_short() }),
    z.refine((text) => new TextEncoder().encode(text).length <= 72, { error: () => m.password_too_long() }),
  );
