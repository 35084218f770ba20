import type { AuthClient } from "../../lib/auth/deferred-client";
import { type CodeRequest, type PendingCode, rememberPendingCode } from "../../lib/pending-code";

/** Sends a code, by email with a link, and stores that it is pending. */
export async function sendCode(client: AuthClient, { address, kind, next }: CodeRequest): Promise<PendingCode> {
  const emailRedirectTo = window.location.origin + (next ?? "/app");
  const { error } = await request();
  if (error) throw error;
  return rememberPendingCode({ address, kind, next });

  function request() {
    switch (kind) {
      case "signup":
        return client.resend({ type: "signup", email: address, options: { emailRedirectTo } });
      case "email":
      case "provider":
        return client.signInWithOtp({ email: address, options: { shouldCreateUser: false, emailRedirectTo } });
      case "recovery":
        return client.resetPasswordForEmail(address, { redirectTo: `${window.location.origin}/update-password` });
      case "phone":
      case "phone-signup":
        return client.signInWithOtp({ phone: address, options: { shouldCreateUser: kind === "phone-signup" } });
    }
  }
}
