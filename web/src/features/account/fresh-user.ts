import type { User } from "@supabase/supabase-js";
import { queryOptions } from "@tanstack/react-query";
import type { AuthClient } from "../../lib/auth/deferred-client";

/**
 * Updates the user of the stored session. The email address changes wherever the link of an email
 * is opened, on a phone for example, and this browser's session does not learn of that by itself.
 */
export const freshUserQuery = (client: AuthClient, known: User | null) =>
  queryOptions({
    queryKey: ["fresh-user", known?.id, known?.email, known?.new_email],
    enabled: known !== null,
    staleTime: 0,
    queryFn: async (): Promise<User> => {
      const { data, error } = await client.getUser();
      if (error) throw error;
      const isKnown = data.user.email === known?.email && (data.user.new_email ?? "") === (known?.new_email ?? "");
      // A refreshed session holds the current user, and every tab receives it.
      if (!isKnown) await client.refreshSession();
      return data.user;
    },
  });
