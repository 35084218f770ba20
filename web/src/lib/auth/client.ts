import type { GoTrueClient } from "@supabase/auth-js";
import { readAccessToken } from "../access-token";
import type { Config } from "../config";
import { observedFetch } from "../http";
import { parseRecord } from "../json";
import { deleteEarlierSessions, openStorage, type PageStorage } from "../storage";
import { type AuthClient, deferClient } from "./deferred-client";
import { readRedirect, type RedirectOutcome } from "./redirect-outcome";

export const sessionKey = "portico.session";

/** The official client of this page, and how the page was reached. */
export interface AuthConnection {
  client: AuthClient;
  /** Resolves to the client itself once its code is loaded, for its events. */
  opened: Promise<GoTrueClient>;
  storage: PageStorage;
  /** The id of the session that was stored when the page opened. */
  sessionAtStart: string | null;
  /** The server redirected the user to this page. */
  isRedirect: boolean;
  /** A session is possible: one is stored, or the address may hold one. */
  mayBeSignedIn: boolean;
  /**
   * True once, when this tab requested the sign-in that the client reports, and not another tab.
   */
  takeOwnSignIn: () => boolean;
  /** The outcome of the redirect to this page; settled once the client has read the address. */
  redirectOutcome: Promise<RedirectOutcome | null>;
}

/**
 * Opens the authentication client just as `createClient` of supabase-js does: same class, same
 * headers, same options. The other clients of that library come with `lib/backend.ts`, when a page
 * first needs them.
 *
 * The client opens once the application is `mounted` and has subscribed to it, or at the first call
 * of a page: it signs in with the code of the address at once, and reports that once. Where no
 * session is possible, its code is requested then, too, so that the page's code has the network to
 * itself.
 */
export function openAuth(config: Config, mounted: Promise<unknown> = Promise.resolve()): AuthConnection {
  deleteEarlierSessions(sessionKey);
  const storage = openStorage();
  const sessionAtStart = storedSessionId(storage);
  const redirect = readRedirect();
  let hasRequestedSession = false;
  const open = async () => {
    const AuthClient = await loadClientCode();
    return new AuthClient(options);
  };
  const options = {
    url: `${config.url}/auth/v1`,
    headers: clientHeaders(config),
    storageKey: sessionKey,
    storage,
    flowType: "pkce" as const,
    persistSession: true,
    autoRefreshToken: true,
    detectSessionInUrl: true,
    experimental: { passkey: true },
    fetch: (input: RequestInfo | URL, init?: RequestInit) => {
      if (requestsSession(input)) hasRequestedSession = true;
      return observedFetch(input, init);
    },
  };
  const { client, opened, start } = deferClient(open);
  const mayBeSignedIn = sessionAtStart !== null || redirect.isRedirect;
  // Its code is loaded early, but it begins to work as soon as it is open.
  if (mayBeSignedIn) void loadClientCode().catch(() => undefined);
  void mounted.then(start, start);
  const redirectOutcome = opened
    .then((loaded) => loaded.initialize())
    .then(({ error }) => redirect.settle(error, storedSessionId(storage) !== null));
  const takeOwnSignIn = () => {
    const isOwn = hasRequestedSession;
    hasRequestedSession = false;
    return isOwn;
  };
  const { isRedirect } = redirect;
  return { client, opened, storage, sessionAtStart, isRedirect, mayBeSignedIn, takeOwnSignIn, redirectOutcome };
}

/**
 * Loads the official client's code: the one import of it, so that the build leaves out the
 * library's other exports.
 */
export async function loadClientCode() {
  const { AuthClient } = await import("@supabase/auth-js");
  return AuthClient;
}

/** Returns the headers of requests without a session. */
export function clientHeaders({ anonKey }: Config): Record<string, string> {
  return { apikey: anonKey, Authorization: `Bearer ${anonKey}`, "X-Client-Info": "portico-web" };
}

function requestsSession(input: RequestInfo | URL): boolean {
  const address = input instanceof Request ? input.url : input.toString();
  return /\/(?:signup|verify|token\?grant_type=(?!refresh_token)|passkeys\/authentication\/verify)/.test(address);
}

function storedSessionId(storage: PageStorage): string | null {
  const { access_token } = parseRecord(storage.getItem(sessionKey));
  return typeof access_token === "string" ? sessionIdOf(access_token) : null;
}

/** Returns the session's id. A token without one stands for its session itself. */
export function sessionIdOf(accessToken: string): string {
  return readAccessToken(accessToken).sessionId ?? accessToken;
}
