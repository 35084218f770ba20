// Sessions in the client: `getSession`, `getUser`, `getClaims`, `setSession`, `refreshSession`, `signOut`, and what the app hears.
import { generateKeyPairSync, sign } from "node:crypto";

import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import { sql } from "../harness/database.ts";
import { Events } from "../harness/events.ts";
import { PASSWORD, address, signedUp } from "../harness/people.ts";
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

/** The same account on another device. */
const elsewhere = async (email: string): Promise<SupabaseClient> => {
  const client = portico.client();
  expect((await client.auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
  return client;
};

describe("getClaims", () => {
  test("verifies a token with the published keys, without asking the server for the person", async () => {
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

  test("refuses what another key signed, what is changed, and what is none", async () => {
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
    const nobody = await portico.client().auth.getClaims();
    expect(nobody).toEqual({ data: null, error: null });
  });
});

describe("getSession and getUser", () => {
  test("a session survives a reload, and belongs to its storage", async () => {
    const storage = memoryStorage();
    const { id } = await signedUp(portico, { auth: { storage } });
    const reloaded = portico.client({ auth: { storage } });
    const events = new Events(reloaded);
    expect((await events.told("INITIAL_SESSION"))?.user.id).toBe(id);
    events.end();
    expect((await reloaded.auth.getUser()).data.user?.id).toBe(id);
    const other = portico.client();
    const none = new Events(other);
    expect(await none.told("INITIAL_SESSION")).toBeNull();
    none.end();
    expect((await other.auth.getSession()).data.session).toBeNull();
    expect((await other.auth.getUser()).error).toMatchObject({ name: "AuthSessionMissingError" });
  });

  test("a token that is handed over is checked", async () => {
    const { client, id } = await signedUp(portico);
    const { access_token } = await tokensOf(client);
    expect((await portico.client().auth.getUser(access_token)).data.user?.id).toBe(id);
    expect((await portico.client().auth.getUser("nonsense")).error).toMatchObject({ status: 403, code: "bad_jwt" });
  });

  test("an account that is gone is said to be", async () => {
    const { client, id } = await signedUp(portico);
    await sql(portico.status.DB_URL, "delete from auth.users where id = $1", [id]);
    expect((await client.auth.getUser()).error).toMatchObject({ status: 403, code: "user_not_found", message: "User from sub claim in JWT does not exist" });
    expect((await client.auth.refreshSession()).error).toMatchObject({ status: 400, code: "refresh_token_not_found" });
  });
});

describe("setSession", () => {
  test("takes a session over, and says so", async () => {
    const { client, id } = await signedUp(portico);
    const other = portico.client();
    const events = new Events(other);
    const { data, error } = await other.auth.setSession(await tokensOf(client));
    expect(error).toBeNull();
    expect(data.session?.user.id).toBe(id);
    expect((await events.told("SIGNED_IN"))?.user.id).toBe(id);
    events.end();
    expect((await other.auth.refreshSession()).error).toBeNull();
  });

  test("refreshes one whose token has expired", async () => {
    const { client, id } = await signedUp(portico);
    const { access_token, refresh_token } = await tokensOf(client);
    // The client looks at the time in the token only; the server never sees this one.
    const [header, payload] = access_token.split(".") as [string, string];
    const past = Buffer.from(JSON.stringify({ ...(JSON.parse(Buffer.from(payload, "base64url").toString()) as object), exp: 1 })).toString("base64url");
    const other = portico.client();
    const { data, error } = await other.auth.setSession({ access_token: `${header}.${past}.AAAA`, refresh_token });
    expect(error).toBeNull();
    expect(data.user?.id).toBe(id);
    expect(data.session?.refresh_token).not.toBe(refresh_token);
  });

  test("refuses tokens that are none", async () => {
    const client = portico.client();
    expect((await client.auth.setSession({ access_token: "", refresh_token: "" })).error).toMatchObject({ name: "AuthSessionMissingError" });
    expect((await client.auth.setSession({ access_token: "nonsense", refresh_token: "nonsense" })).error).not.toBeNull();
    expect((await client.auth.getSession()).data.session).toBeNull();
  });
});

describe("refreshSession", () => {
  test("gives new tokens, and says so", async () => {
    const { client, id } = await signedUp(portico);
    const before = await tokensOf(client);
    const events = new Events(client);
    const { data, error } = await client.auth.refreshSession();
    expect(error).toBeNull();
    expect(data.session?.refresh_token).not.toBe(before.refresh_token);
    expect((await events.told("TOKEN_REFRESHED"))?.user.id).toBe(id);
    events.end();
    expect((await client.auth.getUser(data.session!.access_token)).data.user?.id).toBe(id);
  });

  test("sees what was changed meanwhile", async () => {
    const { client, email } = await signedUp(portico);
    const other = await elsewhere(email);
    await other.auth.updateUser({ data: { name: "Grace" } });
    const { data } = await client.auth.refreshSession();
    expect(data.user?.user_metadata).toMatchObject({ name: "Grace" });
    expect((await client.auth.getClaims()).data?.claims.user_metadata).toMatchObject({ name: "Grace" });
  });

  test("a refresh token that was stolen and comes late ends the session", async () => {
    const storage = memoryStorage();
    const { client } = await signedUp(portico, { auth: { storage, storageKey: "session" } });
    const stolen = (await tokensOf(client)).refresh_token;
    await client.auth.refreshSession();
    await client.auth.refreshSession();
    // Older than the seconds in which a used token may come again
    await sql(portico.status.DB_URL, "update auth.refresh_tokens set created_at = created_at - interval '1 hour', updated_at = updated_at - interval '1 hour' where session_id = (select session_id from auth.refresh_tokens where token = $1)", [stolen]);
    await sql(portico.status.DB_URL, "update auth.sessions set refreshed_at = refreshed_at - interval '1 hour' where id = (select session_id from auth.refresh_tokens where token = $1)", [stolen]);
    const theft = await portico.client().auth.refreshSession({ refresh_token: stolen });
    expect(theft.error).toMatchObject({ status: 400, code: "refresh_token_already_used" });
    // The client keeps what it has until the access token expires, and then hears that there is no more.
    storage.setItem("session", JSON.stringify({ ...(JSON.parse(storage.getItem("session")!) as object), expires_at: 1 }));
    const events = new Events(client);
    // It also prints what it returns.
    const printed = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const after = await client.auth.getSession();
    printed.mockRestore();
    expect(after.data.session).toBeNull();
    expect(after.error).toMatchObject({ status: 400 });
    expect(await events.told("SIGNED_OUT")).toBeNull();
    events.end();
  });

  test("a ban ends what a session may do", async () => {
    const { client, id, email } = await signedUp(portico);
    await sql(portico.status.DB_URL, "update auth.users set banned_until = now() + interval '1 day' where id = $1", [id]);
    expect((await client.auth.refreshSession()).error).toMatchObject({ code: "user_banned" });
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toMatchObject({ code: "user_banned" });
  });

  test("nobody has nothing to refresh", async () => {
    expect((await portico.client().auth.refreshSession()).error).toMatchObject({ name: "AuthSessionMissingError" });
    expect((await portico.client().auth.refreshSession({ refresh_token: "" })).error).not.toBeNull();
  });
});

describe("signOut", () => {
  test("of this device leaves the others", async () => {
    const { client, email } = await signedUp(portico);
    const other = await elsewhere(email);
    const events = new Events(client);
    const { access_token } = await tokensOf(client);
    expect((await client.auth.signOut({ scope: "local" })).error).toBeNull();
    expect(await events.told("SIGNED_OUT")).toBeNull();
    events.end();
    expect((await client.auth.getSession()).data.session).toBeNull();
    expect((await other.auth.refreshSession()).error).toBeNull();
    // The token of the ended session is worth nothing at once, not only when it expires.
    expect((await client.auth.getUser(access_token)).error).toMatchObject({ name: "AuthSessionMissingError" });
  });

  test("of the others keeps this device, and is no event here", async () => {
    const { client, email } = await signedUp(portico);
    const others = [await elsewhere(email), await elsewhere(email)];
    const events = new Events(client);
    expect((await client.auth.signOut({ scope: "others" })).error).toBeNull();
    expect((await client.auth.refreshSession()).error).toBeNull();
    expect(events.names).not.toContain("SIGNED_OUT");
    events.end();
    for (const other of others) expect((await other.auth.refreshSession()).error).not.toBeNull();
  });

  test("of all, and of nobody", async () => {
    const { client, email } = await signedUp(portico);
    const other = await elsewhere(email);
    expect((await client.auth.signOut({ scope: "global" })).error).toBeNull();
    expect((await other.auth.getUser()).error).not.toBeNull();
    expect((await other.auth.refreshSession()).error).not.toBeNull();
    expect((await client.auth.signOut()).error).toBeNull();
    expect((await portico.client().auth.signOut()).error).toBeNull();
  });
});

test("the app hears everything that happens to the session, in order", async () => {
  const client = portico.client();
  const events = new Events(client);
  await events.told("INITIAL_SESSION");
  await client.auth.signUp({ email: address(), password: PASSWORD });
  await client.auth.updateUser({ data: { name: "Ada" } });
  await client.auth.refreshSession();
  await client.auth.signOut();
  await events.told("SIGNED_OUT");
  expect(events.names).toEqual(["INITIAL_SESSION", "SIGNED_IN", "USER_UPDATED", "TOKEN_REFRESHED", "SIGNED_OUT"]);
  events.end();
  await client.auth.signUp({ email: address(), password: PASSWORD });
  expect(events.names).toHaveLength(5);
});
