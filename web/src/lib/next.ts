import type { AppAddress } from "./paths";
import { tabStorage } from "./storage";

const storageKey = "portico.next";

/**
 * Returns the candidate when it is an address of the signed-in area at our own origin, else `null`.
 */
export function safeNext(candidate: string | null | undefined): AppAddress | null {
  if (!candidate?.startsWith("/")) return null;
  try {
    const url = new URL(candidate, window.location.origin);
    if (url.origin !== window.location.origin) return null;
    // Any other page redirects signed-in users again, which would make a loop.
    if (url.pathname !== "/app" && !url.pathname.startsWith("/app/")) return null;
    // The check above is what the type says.
    return (url.pathname + url.search + url.hash) as AppAddress;
  } catch {
    return null;
  }
}

/** Stores the address during a round trip to a provider, which always returns to /app. */
export function rememberNext(next: AppAddress | null): void {
  if (next === null) tabStorage.removeItem(storageKey);
  else tabStorage.setItem(storageKey, next);
}

/** Returns the stored address and removes it. */
export function takeRememberedNext(): AppAddress | null {
  const next = safeNext(tabStorage.getItem(storageKey));
  tabStorage.removeItem(storageKey);
  return next;
}
