// The emulated Google, driven by its forms as a browser would.
import { createHash } from "node:crypto";

import { type Cookies, redirectTarget } from "./page.ts";

export const GOOGLE_CLIENT_ID = "portico-development.apps.googleusercontent.com";
const GOOGLE_CLIENT_SECRET = "portico-development-secret";

/** An account to sign in with on Google's page, or a failure to simulate. */
export type GoogleChoice = { name: string; email: string; unverified?: true } | "cancel" | "fail";

/** Submits the form of the page at `authorize`, and returns where it redirects: to the server. */
export function submitGoogleChoice(authorize: string | URL, choice: GoogleChoice): Promise<URL> {
  const url = new URL(authorize);
  const fields = new URLSearchParams({ request: url.search.slice(1) });
  if (typeof choice === "string") fields.set("action", choice);
  else {
    fields.set("action", "add");
    fields.set("name", choice.name);
    fields.set("email", choice.email);
    if (choice.unverified) fields.set("unverified", "on");
  }
  return redirectTarget(`${url.origin}${url.pathname}/decision`, { method: "POST", body: fields });
}

/**
 * Follows `start`, an address from the client, through Google's page to the app, and returns the
 * app's address.
 */
export async function signInAtGoogle(start: string, choice: GoogleChoice): Promise<URL> {
  const cookies: Cookies = new Map();
  const google = start.includes("/portico/google/") ? new URL(start) : await redirectTarget(start, {}, cookies);
  return redirectTarget(await submitGoogleChoice(google, choice), {}, cookies);
}

/** Returns the tokens that an app on a phone gets from Google's own library. */
export async function googleTokens(server: string, choice: GoogleChoice, nonce?: string): Promise<{ id_token: string; access_token: string }> {
  const redirect_uri = `${server}/auth/v1/callback`;
  const parameters = new URLSearchParams({ client_id: GOOGLE_CLIENT_ID, redirect_uri, response_type: "code", scope: "openid email profile" });
  // The app keeps the nonce; Google sees its hash.
  if (nonce !== undefined) parameters.set("nonce", createHash("sha256").update(nonce).digest("hex"));
  const back = await submitGoogleChoice(`${server}/portico/google/authorize?${parameters}`, choice);
  const body = new URLSearchParams({ grant_type: "authorization_code", code: back.searchParams.get("code")!, redirect_uri, client_id: GOOGLE_CLIENT_ID, client_secret: GOOGLE_CLIENT_SECRET });
  const response = await fetch(`${server}/portico/google/token`, { method: "POST", body });
  if (!response.ok) throw new Error(`Google returns no tokens: ${await response.text()}`);
  return (await response.json()) as { id_token: string; access_token: string };
}
