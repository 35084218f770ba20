import { safeNext } from "../../lib/next";
import { tabNotes } from "../../lib/storage";

const kinds = ["signup", "email", "recovery", "phone", "phone-signup"] as const;

/** A code that is on its way to an inbox or a phone. Kept for the tab, so that a reload asks nothing again. */
export interface PendingCode {
  /** The e-mail address or phone number it was sent to. */
  address: string;
  kind: (typeof kinds)[number];
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

/** Whether the code goes to a phone. */
export function isByPhone({ kind }: Pick<PendingCode, "kind">): boolean {
  return kind === "phone" || kind === "phone-signup";
}

/** The address that a code was sent to last, for the form that its sender comes back to. */
export function pendingEmail(): string {
  const pending = pendingCode();
  return pending && !isByPhone(pending) ? pending.address : "";
}

export function pendingPhone(): string {
  const pending = pendingCode();
  return pending && isByPhone(pending) ? pending.address : "";
}

export function forgetPendingCode(): void {
  tabNotes.removeItem(noteKey);
}

export function pendingCode(): PendingCode | null {
  try {
    const note: unknown = JSON.parse(tabNotes.getItem(noteKey) ?? "null");
    if (typeof note !== "object" || note === null) return null;
    const read = (name: string): unknown => Reflect.get(note, name);
    const address = read("address");
    const kind = kinds.find((known) => known === read("kind"));
    const sentAt = read("sentAt");
    const next = read("next");
    if (typeof address !== "string" || typeof sentAt !== "number" || kind === undefined) return null;
    return { address, kind, sentAt, next: typeof next === "string" ? safeNext(next) : null };
  } catch {
    return null;
  }
}
