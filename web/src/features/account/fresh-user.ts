import type { User } from "@supabase/supabase-js";
import { queryOptions } from "@tanstack/react-query";
import type { PageClient } from "../../lib/auth/deferred-client";

/**
 * Brings the person in the stored session up to date. Their address changes wherever the link of a mail is opened, on a
 * phone for example, and this browser's session does not learn of that by itself.
 */
export const freshUserQuery = (client: PageClient, known: User | null) =>
  queryOptions({
    queryKey: ["fresh-user", known?.id, known?.email, known?.new_email],
    enabled: known !== null,
    staleTime: 0,
    queryFn: async (): Promise<User> => {
      const { data, error } = await client.getUser();
      if (error) throw error;
      const isKnown = data.user.email === known?.email && (data.user.new_email ?? "") === (known?.new_email ?? "");
      // A renewed session holds the person as they are, and tells every tab.
      if (!isKnown) await client.refreshSession();
      return data.user;
    },
  });
