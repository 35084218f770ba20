/**
 * Readers of unknown JSON for the first script, where the 6.5 KiB (compressed) of zod do not fit
 * into the landing page's budget. Everything that is loaded later reads JSON with zod.
 */

/** Returns the fields of an object; none for anything else. */
export function recordOf(value: unknown): Record<string, unknown> {
  // An object's fields are all `unknown` until they are read, so this cast promises nothing.
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

/** Parses the text and returns the fields of the object in it; none for anything else. */
export function parseRecord(json: string | null): Record<string, unknown> {
  try {
    return recordOf(JSON.parse(json ?? "null"));
  } catch {
    return {};
  }
}

/** Returns a text that is not empty, else `null`. */
export function textOf(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}
