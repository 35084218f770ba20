import { emailField } from "../form-fields";
import { takeRememberedNext } from "../next";
import { type CodeRequest } from "../pending-code";
import { pendingProviderKey, tabStorage } from "../storage";

/**
 * Reads from the address of this page which email address of an identity provider has to be proved
 * with a code first. Anyone can write an address, so it counts only in the tab that started the
 * sign-in.
 */
export function readUnverifiedEmail(): CodeRequest | null {
  const provider = tabStorage.getItem(pendingProviderKey);
  const fragment = new URLSearchParams(window.location.hash.slice(1));
  const email = emailField.safeParse(fragment.get("email"));
  if (provider === null || fragment.get("error_code") !== "provider_email_needs_verification" || !email.success) return null;
  return { address: email.data, kind: "provider", provider, next: takeRememberedNext() };
}
