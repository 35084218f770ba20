import { z } from "./zod";

/** The rules that can be told before asking the server. Its own are the ones that count. */
export const emailField = z
  .string()
  .check(
    z.trim(),
    z.minLength(1, "Enter your e-mail address."),
    z.maxLength(255, "This address is too long."),
    z.regex(/^[^\s@]+@[^\s@]+$/, "This doesn’t look like an e-mail address."),
  );

/** A phone number as it is dialled from abroad, without the marks that people write into it. */
export function dialledNumber(text: string): string {
  const number = text.replace(/\(0\)|[\s().\-\u2010-\u2015/]/g, "");
  return number.startsWith("00") ? `+${number.slice(2)}` : number;
}

export const phoneField = z.pipe(
  z.pipe(z.string(), z.transform(dialledNumber)),
  z
    .string()
    .check(
      z.minLength(1, "Enter your phone number."),
      z.regex(/^\+/, "Begin with the code of the country, such as +41 or +1."),
      z.regex(/^\+[1-9]\d{6,14}$/, "This doesn’t look like a phone number."),
    ),
);

export const newPasswordField = z
  .string()
  .check(
    z.minLength(8, "Use at least 8 characters."),
    z.refine((text) => new TextEncoder().encode(text).length <= 72, "Use at most 72 characters."),
  );
