import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import type { Api } from "../../lib/api";
import { z } from "../../lib/zod";
import type { PageClient } from "../../lib/auth/deferred-client";

const sessionSchema = z.object({
  id: z.string(),
  created_at: z.coerce.date(),
  refreshed_at: z.nullish(z.coerce.date()),
  user_agent: z.nullish(z.string()),
  ip: z.nullish(z.string()),
  current: z.boolean(),
});
const sessionsSchema = z.array(sessionSchema);

/** One browser or device that is signed in. */
export type DeviceSession = z.infer<typeof sessionSchema>;

export const sessionsQuery = (api: Api, userId: string) =>
  queryOptions({
    queryKey: ["sessions", userId],
    queryFn: ({ signal }) => api.get("/auth/v1/sessions", sessionsSchema, signal),
    select: (sessions) => sessions.toSorted((a, b) => Number(b.current) - Number(a.current) || lastSeen(b) - lastSeen(a)),
  });

export function lastSeenAt(session: DeviceSession): Date {
  return session.refreshed_at ?? session.created_at;
}

function lastSeen(session: DeviceSession): number {
  return lastSeenAt(session).getTime();
}

/** Ends one session of the account's own. */
export function useEndSession(api: Api) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => api.delete(`/auth/v1/sessions/${encodeURIComponent(id)}`),
    onSettled: () => queries.invalidateQueries({ queryKey: ["sessions"] }),
  });
}

/** Ends every session but this one. */
export function useEndOtherSessions(client: PageClient) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: async () => {
      const { error } = await client.signOut({ scope: "others" });
      if (error) throw error;
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["sessions"] }),
  });
}
