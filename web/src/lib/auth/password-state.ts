import type { Session } from "@supabase/supabase-js";
import { useQuery } from "@tanstack/react-query";
import { readAccessToken } from "../access-token";
import { z } from "../zod";
import { useApi } from "./use-api";

const passwordSchema = z.object({ is_set: z.boolean() });

/** The methods of a session that began with a message: its user may have forgotten the password. */
const messageMethods = new Set(["otp", "magiclink", "recovery"]);

/**
 * Returns true when the session began with a message. The server then requires no current password.
 */
export function beganWithMessage(session: Session): boolean {
  return readAccessToken(session.access_token).methods.some(({ method }) => messageMethods.has(method));
}

/** Requests the answer to whether the account has a password. */
export function usePasswordState(session: Session, options: { enabled?: boolean } = {}) {
  const api = useApi();
  return useQuery({
    queryKey: ["password", session.user.id],
    queryFn: ({ signal }) => api.get("/auth/v1/user/password", passwordSchema, signal),
    ...options,
  });
}
