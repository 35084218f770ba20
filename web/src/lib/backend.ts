import type { SupabaseClient } from "@supabase/supabase-js";
import type { GoTrueClient } from "@supabase/auth-js";
import type { Config } from "./config";
import { observedFetch } from "./http";

/** The source of the current session. */
export type SessionSource = Pick<GoTrueClient, "getSession">;

/**
 * The clients for data, files, live changes and functions, loaded when a page first needs them.
 * Their calls carry the user's access token, and the anonymous key without a session.
 */
export async function openBackend(config: Config, auth: SessionSource): Promise<SupabaseClient> {
  const { createClient } = await import("@supabase/supabase-js");
  return createClient(config.url, config.anonKey, {
    accessToken: () => accessToken(auth),
    global: { fetch: observedFetch },
  });
}

export async function accessToken(auth: SessionSource): Promise<string | null> {
  const { data } = await auth.getSession();
  return data.session?.access_token ?? null;
}
