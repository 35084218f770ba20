import type { GoTrueClient as AuthClient } from "@supabase/auth-js";
import { type PendingCode, rememberPendingCode } from "./pending-code";

/** Sends a code (and a link) of the kind that is awaited, and remembers that it is on its way. */
export async function sendCode(client: AuthClient, wanted: Omit<PendingCode, "sentAt">): Promise<PendingCode> {
  const { email, kind, next } = wanted;
  const emailRedirectTo = window.location.origin + (next ?? "/app");
  const { error } = await request();
  if (error) throw error;
  return rememberPendingCode({ email, kind, next });

  function request() {
    switch (kind) {
      case "signup":
        return client.resend({ type: "signup", email, options: { emailRedirectTo } });
      case "email":
        return client.signInWithOtp({ email, options: { shouldCreateUser: false, emailRedirectTo } });
      case "recovery":
        return client.resetPasswordForEmail(email, { redirectTo: `${window.location.origin}/update-password` });
    }
  }
}
