import type { Factor, Session, User } from "@supabase/supabase-js";
import { readAccessToken } from "../access-token";

/** Returns the second factors that can confirm a sign-in, the one that was used last first. */
export function verifiedFactors(user: User): Factor[] {
  const usedAt = ({ last_challenged_at, created_at }: Factor) => Date.parse(last_challenged_at ?? created_at);
  return (user.factors ?? []).filter(({ status }) => status === "verified").toSorted((a, b) => usedAt(b) - usedAt(a));
}

/**
 * Returns true for a session that is signed in by a first factor only, while the account has a
 * second one.
 */
export function needsSecondFactor(session: Session | null): boolean {
  if (session === null || verifiedFactors(session.user).length === 0) return false;
  return !readAccessToken(session.access_token).hasSecondFactor;
}
