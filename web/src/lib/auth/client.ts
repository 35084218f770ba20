import type { GoTrueClient } from "@supabase/auth-js";
import { readAccessToken } from "../claims";
import type { Config } from "../config";
import { observedFetch } from "../http";
import { deleteEarlierSessions, openStorage, type PageStorage } from "../storage";
import { type ArrivalProblem, openArrival } from "./redirect-outcome";
import { lateClient, type PageClient } from "./deferred-client";

export const sessionKey = "portico.session";

/** The session logic of this page: the official client, and what we know of how the page was reached. */
export interface Auth {
  client: PageClient;
  /** The client itself, once its code is there: for what it tells by itself. */
  opened: Promise<GoTrueClient>;
  storage: PageStorage;
  /** The session that was already there when the page opened. */
  sessionAtStart: string | null;
  /** Whether somebody may be signed in: there is a session, or the address may hold one. */
  mayBeSignedIn: boolean;
  /** Whether this very tab asked for the sign-in that is now told, rather than learn of another tab's. Asks once. */
  takeOwnSignIn: () => boolean;
  /** What the address said had gone wrong on the way here; settled once the client has read the address. */
  arrival: Promise<ArrivalProblem | null>;
}

/**
 * Opens the authentication client just as `createClient` of supabase-js does: same class, same headers, same
 * options. The other clients of that library come with `lib/backend.ts`, when a page first needs them.
 *
 * Where nobody can be signed in, the client's code is asked for after `pageCode`, which then has the line for itself.
 */
export function openAuth(config: Config, pageCode: Promise<unknown> = Promise.resolve()): Auth {
  deleteEarlierSessions(sessionKey);
  const storage = openStorage();
  const sessionAtStart = storedSessionId(storage);
  const arriving = openArrival();
  let hasAsked = false;
  const open = async () => {
    const { AuthClient } = await import("@supabase/auth-js");
    return new AuthClient(options);
  };
  const options = {
    url: `${config.url}/auth/v1`,
    headers: { apikey: config.anonKey, Authorization: `Bearer ${config.anonKey}`, "X-Client-Info": "portico-web" },
    storageKey: sessionKey,
    storage,
    flowType: "pkce" as const,
    persistSession: true,
    autoRefreshToken: true,
    detectSessionInUrl: true,
    fetch: (input: RequestInfo | URL, init?: RequestInit) => {
      if (opensSession(input)) hasAsked = true;
      return observedFetch(input, init);
    },
  };
  const { client, opened, start } = lateClient(open);
  const mayBeSignedIn = sessionAtStart !== null || arriving.comesFromServer;
  if (mayBeSignedIn) void start();
  else void pageCode.then(start, start);
  const arrival = opened
    .then((there) => there.initialize())
    .then(({ error }) => arriving.settle(error, storedSessionId(storage) !== null));
  const takeOwnSignIn = () => {
    const own = hasAsked;
    hasAsked = false;
    return own;
  };
  return { client, opened, storage, sessionAtStart, mayBeSignedIn, takeOwnSignIn, arrival };
}

function opensSession(input: RequestInfo | URL): boolean {
  const address = input instanceof Request ? input.url : input.toString();
  return /\/(?:signup|verify|token\?grant_type=(?!refresh_token))/.test(address);
}

function storedSessionId(storage: PageStorage): string | null {
  try {
    const stored: unknown = JSON.parse(storage.getItem(sessionKey) ?? "null");
    if (typeof stored !== "object" || stored === null || !("access_token" in stored)) return null;
    return typeof stored.access_token === "string" ? sessionIdOf(stored.access_token) : null;
  } catch {
    return null;
  }
}

/** The session's id; for a token without one, the token itself tells sessions apart. */
export function sessionIdOf(accessToken: string): string {
  return readAccessToken(accessToken).sessionId ?? accessToken;
}
