import { z } from "../../lib/zod";

/** The rules that can be told before asking the server. Its own are the ones that count. */
export const emailField = z
  .string()
  .trim()
  .min(1, "Enter your e-mail address.")
  .max(255, "This address is too long.")
  .regex(/^[^\s@]+@[^\s@]+$/, "This doesn’t look like an e-mail address.");

export const newPasswordField = z
  .string()
  .min(8, "Use at least 8 characters.")
  .refine((text) => new TextEncoder().encode(text).length <= 72, "Use at most 72 characters.");
