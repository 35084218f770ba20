import { useConfig } from "../../lib/config-context";

/** A length that the server decided on, as a number and as a word. */
export interface CodeLength {
  digits: number;
  /** `six`, as sentences have it. */
  word: string;
  /** `a six-digit code`, or `an eight-digit code`. */
  aCode: string;
}

const words = ["six", "seven", "eight", "nine", "ten"];

/** How long the codes are that this server sends. */
export function useCodeLength(by: "email" | "phone"): CodeLength {
  const digits = useConfig().accounts.codeLength[by];
  const word = words[digits - 6] ?? String(digits);
  return { digits, word, aCode: `${word === "eight" ? "an" : "a"} ${word}-digit code` };
}

/** Where a sentence begins. */
export function capitalised(word: string): string {
  return word.charAt(0).toUpperCase() + word.slice(1);
}
