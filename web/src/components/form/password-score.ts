import { ZxcvbnFactory } from "@zxcvbn-ts/core";
import { adjacencyGraphs, dictionary } from "@zxcvbn-ts/language-common";

const zxcvbn = new ZxcvbnFactory({ dictionary, graphs: adjacencyGraphs });

/**
 * Rates how hard a password is to guess, from 0 to 4. The `known` texts, such as the address, are
 * guessed first.
 */
export function passwordScore(password: string, known: string[]): number {
  // The work grows with the length, and beyond this every password is as strong.
  return zxcvbn.check(password.slice(0, 72), known).score;
}
