import * as m from "../paraglide/messages";

export type { DescribedError } from "./errors";

/**
 * Loads the sentences for failures, which the first script does without: on the landing page a failure is rare. Where
 * they cannot be loaded, the server cannot be reached either.
 */
export function loadErrorTexts(): Promise<Pick<typeof import("./errors"), "describeError">> {
  return import("./errors").catch(() => ({ describeError: () => ({ message: m.error_unreachable() }) }));
}
