import * as m from "../paraglide/messages";

export type { DescribedError } from "./errors";

/**
 * Loads the sentences for failures, which the first script does without: on the landing page a
 * failure is rare. Where they cannot be loaded, the server cannot be reached either.
 */
export function loadErrorTexts(): Promise<Pick<typeof import("./errors"), "describeError" | "describeCancelledSignIn">> {
  const unreachable = () => ({ message: m.error_unreachable() });
  return import("./errors").catch(() => ({ describeError: unreachable, describeCancelledSignIn: unreachable }));
}
