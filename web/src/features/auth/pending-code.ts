import { safeNext } from "../../lib/next";
import { tabNotes } from "../../lib/storage";

/** A code that is on its way to an inbox. Kept for the tab, so that a reload asks nothing again. */
export interface PendingCode {
  email: string;
  kind: "signup" | "email" | "recovery";
  sentAt: number;
  next: string | null;
}

const noteKey = "portico.pending-code";
export const resendAfterMs = 60_000;

/** Remembers a code; one that was sent just now unless it says otherwise. */
export function rememberPendingCode(sent: Omit<PendingCode, "sentAt"> & { sentAt?: number }): PendingCode {
  const pending = { sentAt: Date.now(), ...sent };
  tabNotes.setItem(noteKey, JSON.stringify(pending));
  return pending;
}

export function forgetPendingCode(): void {
  tabNotes.removeItem(noteKey);
}

export function pendingCode(): PendingCode | null {
  try {
    const note: unknown = JSON.parse(tabNotes.getItem(noteKey) ?? "null");
    if (typeof note !== "object" || note === null) return null;
    const read = (name: string): unknown => Reflect.get(note, name);
    const email = read("email");
    const kind = read("kind");
    const sentAt = read("sentAt");
    const next = read("next");
    if (typeof email !== "string" || typeof sentAt !== "number") return null;
    if (kind !== "signup" && kind !== "email" && kind !== "recovery") return null;
    return { email, kind, sentAt, next: typeof next === "string" ? safeNext(next) : null };
  } catch {
    return null;
  }
}
