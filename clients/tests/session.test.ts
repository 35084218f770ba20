// Sessions in the client: `getSession`, `getUser`, `getClaims`, `setSession`, `refreshSession`,
// `signOut`, and their events.
import { generateKeyPairSync, sign } from "node:crypto";

import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import { sql } from "../harness/database.ts";
import { AuthEvents } from "../harness/events.ts";
import { PASSWORD, newEmail, signedUp } from "../harness/accounts.ts";
import { Portico, memoryStorage } from "../harness/portico.ts";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start();
});
afterAll(() => portico.dispose());

const tokensOf = async (client: SupabaseClient): Promise<{ access_token: string; refresh_token: string }> => {
  const { access_token, refresh_token } = (await client.auth.getSession()).data.session!;
  return { access_token, refresh_token };
};

/** Signs in to the same account on another device. */
const elsewhere = async (email: string): Promise<SupabaseClient> => {
  const client = portico.client();
  expect((await client.auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
  return client;
};

describe("getClaims", () => {
  test("verifies a token with the published keys, without requesting the user", async () => {
    const asked: string[] = [];
    const watching: typeof fetch = (input, init) => {
      asked.push(new URL(input instanceof Request ? input.url : input).pathname);
      return fetch(input, init);
    };
    const { client, email, id } = await signedUp(portico, { global: { fetch: watching } });
    asked.length = 0;
    for (let time = 0; time < 2; time += 1) {
      const { data, error } = await client.auth.getClaims();
      expect(error).toBeNull();
      expect(data?.claims).toMatchObject({ sub: id, email, role: "authenticated", aud: "authenticated", aal: "aal1", is_anonymous: false, iss: `${portico.url}/auth/v1`, amr: [{ method: "password" }] });
      expect(data?.claims.session_id).toMatch(/^[0-9a-f-]{36}$/);
      expect(data?.header).toMatchObject({ alg: "ES256", typ: "JWT" });
    }
    expect(asked).not.toContain("/auth/v1/user");
    const jwks = (await (await fetch(`${portico.url}/auth/v1/.well-known/jwks.json`)).json()) as { keys: Record<string, unknown>[] };
    const given = await portico.client().auth.getClaims((await tokensOf(client)).access_token, { jwks: jwks as never });
    expect(given.data?.claims.sub).toBe(id);
    for (const key of jwks.keys) expect(key).not.toHaveProperty("d");
  });

  test("rejects a token of another key, a changed one and a malformed one", async () => {
    const { client } = await signedUp(portico);
    const { access_token } = await tokensOf(client);
    const [header, payload, signature] = access_token.split(".") as [string, string, string];
    const changed = Buffer.from(JSON.stringify({ ...(JSON.parse(Buffer.from(payload, "base64url").toString()) as object), role: "service_role" })).toString("base64url");
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const foreign = sign("sha256", Buffer.from(`${header}.${payload}`), { key: privateKey, dsaEncoding: "ieee-p1363" }).toString("base64url");
    for (const token of [`${header}.${changed}.${signature}`, `${header}.${payload}.${foreign}`]) {
      expect((await client.auth.getClaims(token)).error).toMatchObject({ message: "Invalid JWT signature" });
      expect((await client.auth.getUser(token)).error).toMatchObject({ status: 403, code: "bad_jwt" });
    }
    expect((await client.auth.getClaims("nonsense")).error).not.toBeNull();
    const withoutSession = await portico.client().auth.getClaims();
    expect(withoutSession).toEqual({ data: null, error: null });
  });
});

describe("getSession and getUser", () => {
  test("a session survives a reload, and belongs to its storage", async () => {
    const storage = memoryStorage();
    const { id } = await signedUp(portico, { auth: { storage } });
    const reloaded = portico.client({ auth: { storage } });
    const events = new AuthEvents(reloaded);
    expect((await events.waitFor("INITIAL_SESSION"))?.user.id).toBe(id);
    events.end();
    expect((await reloaded.auth.getUser()).data.user?.id).toBe(id);
    const other = portico.client();
    const none = new AuthEvents(other);
    expect(await none.waitFor("INITIAL_SESSION")).toBeNull();
    none.end();
    expect((await other.auth.getSession()).data.session).toBeNull();
    expect((await other.auth.getUser()).error).toMatchObject({ name: "AuthSessionMissingError" });
  });

  test("a token passed as an argument is verified", async () => {
    const { client, id } = await signedUp(portico);
    const { access_token } = await tokensOf(client);
    expect((await portico.client().auth.getUser(access_token)).data.user?.id).toBe(id);
    expect((await portico.client().auth.getUser("nonsense")).error).toMatchObject({ status: 403, code: "bad_jwt" });
  });

  test("a deleted account is reported", async () => {
    const { client, id } = await signedUp(portico);
    await sql(portico.status.DB_URL, "delete from auth.users where id = $1", [id]);
    expect((await client.auth.getUser()).error).toMatchObject({ status: 403, code: "user_not_found", message: "User from sub claim in JWT does not exist" });
    expect((await client.auth.refreshSession()).error).toMatchObject({ status: 400, code: "refresh_token_not_found" });
  });
});

describe("setSession", () => {
  test("takes a session over, and emits an event", async () => {
    const { client, id } = await signedUp(portico);
    const other = portico.client();
    const events = new AuthEvents(other);
    const { data, error } = await other.auth.setSession(await tokensOf(client));
    expect(error).toBeNull();
    expect(data.session?.user.id).toBe(id);
    expect((await events.waitFor("SIGNED_IN"))?.user.id).toBe(id);
    events.end();
    expect((await other.auth.refreshSession()).error).toBeNull();
  });

  test("refreshes one whose token has expired", async () => {
    const { client, id } = await signedUp(portico);
    const { access_token, refresh_token } = await tokensOf(client);
    // The client reads only the time in the token; the server never receives it.
    const [header, payload] = access_token.split(".") as [string, string];
    const past = Buffer.from(JSON.stringify({ ...(JSON.parse(Buffer.from(payload, "base64url").toString()) as object), exp: 1 })).toString("base64url");
    const other = portico.client();
    const { data, error } = await other.auth.setSession({ access_token: `${header}.${past}.AAAA`, refresh_token });
    expect(error).toBeNull();
    expect(data.user?.id).toBe(id);
    expect(data.session?.refresh_token).not.toBe(refresh_token);
  });

  test("rejects malformed tokens", async () => {
    const client = portico.client();
    expect((await client.auth.setSession({ access_token: "", refresh_token: "" })).error).toMatchObject({ name: "AuthSessionMissingError" });
    expect((await client.auth.setSession({ access_token: "nonsense", refresh_token: "nonsense" })).error).not.toBeNull();
    expect((await client.auth.getSession()).data.session).toBeNull();
  });
});

describe("refreshSession", () => {
  test("returns new tokens, and emits an event", async () => {
    const { client, id } = await signedUp(portico);
    const before = await tokensOf(client);
    const events = new AuthEvents(client);
    const { data, error } = await client.auth.refreshSession();
    expect(error).toBeNull();
    expect(data.session?.refresh_token).not.toBe(before.refresh_token);
    expect((await events.waitFor("TOKEN_REFRESHED"))?.user.id).toBe(id);
    events.end();
    expect((await client.auth.getUser(data.session!.access_token)).data.user?.id).toBe(id);
  });

  test("returns the user as changed meanwhile", async () => {
    const { client, email } = await signedUp(portico);
    const other = await elsewhere(email);
    await other.auth.updateUser({ data: { name: "Grace" } });
    const { data } = await client.auth.refreshSession();
    expect(data.user?.user_metadata).toMatchObject({ name: "Grace" });
    expect((await client.auth.getClaims()).data?.claims.user_metadata).toMatchObject({ name: "Grace" });
  });

  test("a stolen refresh token that is used late ends the session", async () => {
    const storage = memoryStorage();
    const { client } = await signedUp(portico, { auth: { storage, storageKey: "session" } });
    const stolen = (await tokensOf(client)).refresh_token;
    await client.auth.refreshSession();
    await client.auth.refreshSession();
    // Older than the interval in which a used token is accepted again.
    await sql(portico.status.DB_URL, "update auth.refresh_tokens set created_at = created_at - interval '1 hour', updated_at = updated_at - interval '1 hour' where session_id = (select session_id from auth.refresh_tokens where token = $1)", [stolen]);
    await sql(portico.status.DB_URL, "update auth.sessions set refreshed_at = refreshed_at - interval '1 hour' where id = (select session_id from auth.refresh_tokens where token = $1)", [stolen]);
    const theft = await portico.client().auth.refreshSession({ refresh_token: stolen });
    expect(theft.error).toMatchObject({ status: 400, code: "refresh_token_already_used" });
    // The client keeps its session until the access token expires; the refresh then fails.
    storage.setItem("session", JSON.stringify({ ...(JSON.parse(storage.getItem("session")!) as object), expires_at: 1 }));
    const events = new AuthEvents(client);
    // It also logs the error that it returns.
    const printed = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const after = await client.auth.getSession();
    printed.mockRestore();
    expect(after.data.session).toBeNull();
    expect(after.error).toMatchObject({ status: 400 });
    expect(await events.waitFor("SIGNED_OUT")).toBeNull();
    events.end();
  });

  test("a banned account cannot use its session", async () => {
    const { client, id, email } = await signedUp(portico);
    await sql(portico.status.DB_URL, "update auth.users set banned_until = now() + interval '1 day' where id = $1", [id]);
    expect((await client.auth.refreshSession()).error).toMatchObject({ code: "user_banned" });
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toMatchObject({ code: "user_banned" });
  });

  test("a client without a session cannot refresh", async () => {
    expect((await portico.client().auth.refreshSession()).error).toMatchObject({ name: "AuthSessionMissingError" });
    expect((await portico.client().auth.refreshSession({ refresh_token: "" })).error).not.toBeNull();
  });
});

describe("signOut", () => {
  test("of this device keeps the others", async () => {
    const { client, email } = await signedUp(portico);
    const other = await elsewhere(email);
    const events = new AuthEvents(client);
    const { access_token } = await tokensOf(client);
    expect((await client.auth.signOut({ scope: "local" })).error).toBeNull();
    expect(await events.waitFor("SIGNED_OUT")).toBeNull();
    events.end();
    expect((await client.auth.getSession()).data.session).toBeNull();
    expect((await other.auth.refreshSession()).error).toBeNull();
    // The token of the ended session is invalid at once, not only when it expires.
    expect((await client.auth.getUser(access_token)).error).toMatchObject({ name: "AuthSessionMissingError" });
  });

  test("of the others keeps this device, and emits no event here", async () => {
    const { client, email } = await signedUp(portico);
    const others = [await elsewhere(email), await elsewhere(email)];
    const events = new AuthEvents(client);
    expect((await client.auth.signOut({ scope: "others" })).error).toBeNull();
    expect((await client.auth.refreshSession()).error).toBeNull();
    expect(events.names).not.toContain("SIGNED_OUT");
    events.end();
    for (const other of others) expect((await other.auth.refreshSession()).error).not.toBeNull();
  });

  test("of all devices, and without a session", async () => {
    const { client, email } = await signedUp(portico);
    const other = await elsewhere(email);
    expect((await client.auth.signOut({ scope: "global" })).error).toBeNull();
    expect((await other.auth.getUser()).error).not.toBeNull();
    expect((await other.auth.refreshSession()).error).not.toBeNull();
    expect((await client.auth.signOut()).error).toBeNull();
    expect((await portico.client().auth.signOut()).error).toBeNull();
  });
});

test("every change of the session is an event, in order", async () => {
  const client = portico.client();
  const events = new AuthEvents(client);
  await events.waitFor("INITIAL_SESSION");
  await client.auth.signUp({ email: newEmail(), password: PASSWORD });
  await client.auth.updateUser({ data: { name: "Ada" } });
  await client.auth.refreshSession();
  await client.auth.signOut();
  await events.waitFor("SIGNED_OUT");
  expect(events.names).toEqual(["INITIAL_SESSION", "SIGNED_IN", "USER_UPDATED", "TOKEN_REFRESHED", "SIGNED_OUT"]);
  events.end();
  await client.auth.signUp({ email: newEmail(), password: PASSWORD });
  expect(events.names).toHaveLength(5);
});
