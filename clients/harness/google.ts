// The emulated Google, driven by its forms as a browser would.
import { createHash } from "node:crypto";

import { type Cookies, follow } from "./page.ts";

export const GOOGLE_CLIENT_ID = "portico-development.apps.googleusercontent.com";
const GOOGLE_CLIENT_SECRET = "portico-development-secret";

/** A person at Google's page, or what happens there instead. */
export type Visitor = { name: string; email: string; unverified?: true } | "cancel" | "fail";

/** Answers the page at `authorize`; where Google sends the person: back to the server. */
export function decide(authorize: string | URL, visitor: Visitor): Promise<URL> {
  const url = new URL(authorize);
  const fields = new URLSearchParams({ request: url.search.slice(1) });
  if (typeof visitor === "string") fields.set("action", visitor);
  else {
    fields.set("action", "add");
    fields.set("name", visitor.name);
    fields.set("email", visitor.email);
    if (visitor.unverified) fields.set("unverified", "on");
  }
  return follow(`${url.origin}${url.pathname}/decision`, { method: "POST", body: fields });
}

/** Follows `start`, an address that the client gave, to Google, answers there, and goes on to the app: the app's address. */
export async function visit(start: string, visitor: Visitor): Promise<URL> {
  const cookies: Cookies = new Map();
  const google = start.includes("/portico/google/") ? new URL(start) : await follow(start, {}, cookies);
  return follow(await decide(google, visitor), {}, cookies);
}

/** What Google's own library gives an app on a phone. */
export async function tokens(server: string, visitor: Visitor, nonce?: string): Promise<{ id_token: string; access_token: string }> {
  const redirect_uri = `${server}/auth/v1/callback`;
  const parameters = new URLSearchParams({ client_id: GOOGLE_CLIENT_ID, redirect_uri, response_type: "code", scope: "openid email profile" });
  // The app keeps the nonce; Google sees its hash.
  if (nonce !== undefined) parameters.set("nonce", createHash("sha256").update(nonce).digest("hex"));
  const back = await decide(`${server}/portico/google/authorize?${parameters}`, visitor);
  const body = new URLSearchParams({ grant_type: "authorization_code", code: back.searchParams.get("code")!, redirect_uri, client_id: GOOGLE_CLIENT_ID, client_secret: GOOGLE_CLIENT_SECRET });
  const answer = await fetch(`${server}/portico/google/token`, { method: "POST", body });
  if (!answer.ok) throw new Error(`Google gives no tokens: ${await answer.text()}`);
  return (await answer.json()) as { id_token: string; access_token: string };
}
