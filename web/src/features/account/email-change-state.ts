import type { User } from "@supabase/supabase-js";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useApi } from "../../lib/auth/use-api";
import { z } from "../../lib/zod";

const stateSchema = z.object({ new_email: z.nullable(z.string()), confirmed: z.nullable(z.enum(["new", "current"])) });

/**
 * Requests which address has confirmed the change of `user` to the address `pending`, again
 * whenever the account has changed. Null: neither of the two, or it is not known.
 */
export function useConfirmedAddress(user: User, pending: string): string | null {
  const api = useApi();
  const { data } = useQuery({
    // Each confirmation changes the account, and so does a request that sends the emails again.
    queryKey: ["email-change", user.id, pending, user.updated_at],
    queryFn: ({ signal }) => api.get("/auth/v1/user/email-change", stateSchema, signal),
    placeholderData: keepPreviousData,
  });
  if (data?.new_email !== pending || data.confirmed === null) return null;
  return data.confirmed === "new" ? pending : (user.email ?? null);
}
