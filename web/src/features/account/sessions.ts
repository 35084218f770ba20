import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { type Api, ApiError } from "../../lib/api";
import type { AuthClient } from "../../lib/auth/deferred-client";
import { z } from "../../lib/zod";

const sessionSchema = z.object({
  id: z.string(),
  created_at: z.coerce.date(),
  refreshed_at: z.nullish(z.coerce.date()),
  user_agent: z.nullish(z.string()),
  ip: z.nullish(z.string()),
  current: z.boolean(),
});
const sessionsSchema = z.array(sessionSchema);

/** A browser or device that is signed in. */
export type DeviceSession = z.infer<typeof sessionSchema>;

/** The account's sessions: this one first, then the most recently used. */
export const sessionsQuery = (api: Api, client: AuthClient, userId: string) =>
  queryOptions({
    queryKey: ["sessions", userId],
    queryFn: async ({ signal }) => {
      try {
        return await api.get("/auth/v1/sessions", sessionsSchema, signal);
      } catch (error) {
        // This session was ended elsewhere: the client removes it as soon as it learns of that, and
        // every page of this browser shows it.
        if (error instanceof ApiError && error.code === "session_not_found") await client.getUser();
        throw error;
      }
    },
    select: (sessions) =>
      sessions.toSorted(
        (a, b) => Number(b.current) - Number(a.current) || lastSeenAt(b).getTime() - lastSeenAt(a).getTime(),
      ),
  });

export function lastSeenAt(session: DeviceSession): Date {
  return session.refreshed_at ?? session.created_at;
}

/** Ends one session of the account. */
export function useEndSession(api: Api) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => api.delete(`/auth/v1/sessions/${encodeURIComponent(id)}`),
    onSettled: () => queries.invalidateQueries({ queryKey: ["sessions"] }),
  });
}

/** Ends every session but this one. */
export function useEndOtherSessions(client: AuthClient) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: async () => {
      const { error } = await client.signOut({ scope: "others" });
      if (error) throw error;
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["sessions"] }),
  });
}
