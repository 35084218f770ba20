import { tabNotes } from "./storage";

const noteKey = "portico.next";

/** Where to go after sign-in: a path of our own origin, or nothing. */
export function safeNext(candidate: string | null | undefined): string | null {
  if (!candidate?.startsWith("/")) return null;
  try {
    const url = new URL(candidate, window.location.origin);
    if (url.origin !== window.location.origin) return null;
    // Only the signed-in area: a page that sends people away again would turn in circles.
    if (url.pathname !== "/app" && !url.pathname.startsWith("/app/")) return null;
    return url.pathname + url.search + url.hash;
  } catch {
    return null;
  }
}

/** The place that the current address asks to return to. */
export function nextFromAddress(): string | null {
  return safeNext(new URLSearchParams(window.location.search).get("next"));
}

export function withNext(path: string, next: string | null): string {
  return next === null || next === "/app" ? path : `${path}?next=${encodeURIComponent(next)}`;
}

/** Keeps the place over a round trip to a provider, which always comes back to /app. */
export function rememberNext(next: string | null): void {
  if (next === null) tabNotes.removeItem(noteKey);
  else tabNotes.setItem(noteKey, next);
}

export function takeRememberedNext(): string | null {
  const next = safeNext(tabNotes.getItem(noteKey));
  tabNotes.removeItem(noteKey);
  return next;
}
