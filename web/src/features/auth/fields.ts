import { z } from "../../lib/zod";

/** The rules that can be told before asking the server. Its own are the ones that count. */
export const emailField = z
  .string()
  .trim()
  .min(1, "Enter your e-mail address.")
  .max(255, "This address is too long.")
  .regex(/^[^\s@]+@[^\s@]+$/, "This doesn’t look like an e-mail address.");

/** A phone number as it is dialled from abroad, without the marks that people write into it. */
export function dialledNumber(text: string): string {
  const number = text.replace(/\(0\)|[\s().\-\u2010-\u2015/]/g, "");
  return number.startsWith("00") ? `+${number.slice(2)}` : number;
}

export const phoneField = z
  .string()
  .transform(dialledNumber)
  .pipe(
    z
      .string()
      .min(1, "Enter your phone number.")
      .regex(/^\+/, "Begin with the code of the country, such as +41 or +1.")
      .regex(/^\+[1-9]\d{6,14}$/, "This doesn’t look like a phone number."),
  );

export const newPasswordField = z
  .string()
  .min(8, "Use at least 8 characters.")
  .refine((text) => new TextEncoder().encode(text).length <= 72, "Use at most 72 characters.");
