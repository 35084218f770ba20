import * as m from "../paraglide/messages";
import { getLocale } from "../paraglide/runtime";
import type { CharacterClass, PasswordRules } from "./config";
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

const byteLength = (text: string): number => new TextEncoder().encode(text).length;

/** Returns the field of a new password by the server's rules, which count bytes. */
export function newPasswordField({ minLength, requires }: PasswordRules) {
  const missing = (text: string) => requires.filter((name) => !characterClasses[name].pattern.test(text));
  return z.string().check(
    z.refine((text) => byteLength(text) >= minLength, { error: () => m.password_too_short({ count: minLength }) }),
    z.refine((text) => byteLength(text) <= 72, { error: () => m.password_too_long() }),
    z.refine((text) => missing(text).length === 0, {
      error: ({ input }) => m.password_needs({ needs: listOf(missing(typeof input === "string" ? input : "")) }),
    }),
  );
}

/** Returns the rules for a new password as a sentence. */
export function passwordRulesText({ minLength: count, requires }: PasswordRules): string {
  return requires.length === 0 ? m.password_minimum({ count }) : m.password_rules({ count, needs: listOf(requires) });
}

/** The server's classes of characters (`compose/auth.rs`). */
const characterClasses: Record<CharacterClass, { pattern: RegExp; name: () => string }> = {
  lower: { pattern: /[a-z]/, name: m.password_needs_lower },
  upper: { pattern: /[A-Z]/, name: m.password_needs_upper },
  letters: { pattern: /[A-Za-z]/, name: m.password_needs_letters },
  digits: { pattern: /[0-9]/, name: m.password_needs_digits },
  symbols: { pattern: /[!@#$%^&*()_+\-=[\]{};'\\:"|<>?,./`~]/, name: m.password_needs_symbols },
};

function listOf(names: CharacterClass[]): string {
  const words = names.map((name) => characterClasses[name].name());
  return new Intl.ListFormat(getLocale(), { type: "conjunction" }).format(words);
}
