import type { GoTrueClient } from "@supabase/auth-js";
import type { Config } from "../config";
import { observedFetch } from "../http";
import { clientHeaders, loadClientCode } from "./client";

/**
 * Opens a second client that keeps its session to itself and stores nothing. A code that proves an
 * address opens a session; in the page's own client that session would replace the one that was
 * confirmed with a second factor.
 */
export async function openSeparateClient(config: Config): Promise<GoTrueClient> {
  const AuthClient = await loadClientCode();
  return new AuthClient({
    url: `${config.url}/auth/v1`,
    headers: clientHeaders(config),
    storageKey: "portico.separate-session",
    persistSession: false,
    autoRefreshToken: false,
    detectSessionInUrl: false,
    fetch: observedFetch,
  });
}
