import { nextSchema } from "./next-schema";
import type { AppAddress } from "./paths";
import { tabStorage } from "./storage";
import { z } from "./zod";

const pendingCodeSchema = z.object({
  /** The email address or phone number that the code was sent to. */
  address: z.string(),
  /** The purpose of the code; `provider`: an address that an identity provider has not verified. */
  kind: z.enum(["signup", "email", "recovery", "provider", "phone", "phone-signup"]),
  /** The identity provider of a code for its address. */
  provider: z.optional(z.string()),
  sentAt: z.number(),
  next: nextSchema,
});

/**
 * A code that was sent to an email address or a phone. Stored for the tab, so that it survives a
 * reload.
 */
export type PendingCode = z.infer<typeof pendingCodeSchema>;

/** A code that is to be sent. */
export interface CodeRequest {
  address: string;
  kind: PendingCode["kind"];
  provider?: string | undefined;
  next: AppAddress | null;
}

const storageKey = "portico.pending-code";

/** Stores a code, sent just now unless `sentAt` says otherwise. */
export function rememberPendingCode(sent: CodeRequest & { sentAt?: number }): PendingCode {
  const pending = { sentAt: Date.now(), ...sent };
  tabStorage.setItem(storageKey, JSON.stringify(pending));
  return pending;
}

/** Returns true when the code is sent by text message. */
export function isPhoneCode({ kind }: Pick<PendingCode, "kind">): boolean {
  return kind === "phone" || kind === "phone-signup";
}

/** Returns the address of the pending code, for the form that sent it. */
export function pendingEmail(): string {
  const pending = readPendingCode();
  return pending && !isPhoneCode(pending) ? pending.address : "";
}

/** Returns the phone number of the pending code, for the form that sent it. */
export function pendingPhone(): string {
  const pending = readPendingCode();
  return pending && isPhoneCode(pending) ? pending.address : "";
}

export function forgetPendingCode(): void {
  tabStorage.removeItem(storageKey);
}

export function readPendingCode(): PendingCode | null {
  try {
    return pendingCodeSchema.parse(JSON.parse(tabStorage.getItem(storageKey) ?? "null"));
  } catch {
    return null;
  }
}
