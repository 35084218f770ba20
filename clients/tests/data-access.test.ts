// The access of each role to data: anonymous callers, accounts that signed up with the same client,
// and the secret key.
import { createHmac } from "node:crypto";

import type { SupabaseClient } from "@supabase/supabase-js";
import { describe, expect, test } from "vitest";

import { admin, responseOf, club, dataOf, errorOf } from "../harness/club.ts";
import { sql } from "../harness/database.ts";
import { PASSWORD, newEmail, signedUp } from "../harness/accounts.ts";

const { portico } = await club();

/** Signs a token with the project's own secret. */
function token(claims: Record<string, unknown>, secret = portico.status.JWT_SECRET): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

const bearing = (accessToken: string): SupabaseClient => portico.client({ global: { headers: { Authorization: `Bearer ${accessToken}` } } });
const now = (): number => Math.floor(Date.now() / 1000);

describe("an account", () => {
  test("gets a profile by a trigger, and can edit no other", async () => {
    const client = portico.client();
    const { data } = await client.auth.signUp({ email: newEmail(), password: PASSWORD, options: { data: { name: "Ada" } } });
    const id = data.user!.id;
    const other = await signedUp(portico);
    expect(await dataOf(client.from("profiles").select().eq("id", id).single())).toEqual({ id, name: "Ada" });
    expect(await dataOf(client.from("profiles").update({ name: "Ada L." }).eq("id", id).select("name").single())).toEqual({ name: "Ada L." });
    expect(await dataOf(client.from("profiles").update({ name: "taken over" }).eq("id", other.id).select())).toEqual([]);
    expect(await dataOf(other.client.from("profiles").select("name").eq("id", other.id).single())).toEqual({ name: "nobody" });
  });

  test("has rows of their own", async () => {
    const ada = await signedUp(portico);
    const bob = await signedUp(portico);
    const milk = await dataOf(ada.client.from("todos").insert({ title: "Milk" }).select("id, owner, title, done, profile:profiles(name)").single());
    expect(milk).toMatchObject({ owner: ada.id, title: "Milk", done: false, profile: { name: "nobody" } });
    await dataOf(bob.client.from("todos").insert([{ title: "Bread" }, { title: "Salt" }]));
    expect(await dataOf(ada.client.from("todos").select("title"))).toEqual([{ title: "Milk" }]);
    expect(await responseOf(bob.client.from("todos").select("title", { count: "exact" }).order("title"))).toMatchObject({ count: 2, data: [{ title: "Bread" }, { title: "Salt" }] });
    // A row that cannot be read is not changed, which is no error.
    expect(await dataOf(bob.client.from("todos").update({ done: true }).eq("title", "Milk").select())).toEqual([]);
    expect(await responseOf(bob.client.from("todos").delete().eq("title", "Milk"))).toMatchObject({ status: 204, error: null });
    expect(await dataOf(ada.client.from("todos").select("done").single())).toEqual({ done: false });
    // A row cannot be given to another account.
    expect(await errorOf(ada.client.from("todos").insert({ title: "For Bob", owner: bob.id }))).toEqual({
      status: 403,
      code: "42501",
      details: null,
      hint: null,
      message: 'new row violates row-level security policy for table "todos"',
    });
    expect(await errorOf(ada.client.from("todos").update({ owner: bob.id }).eq("title", "Milk"))).toMatchObject({ status: 403, code: "42501" });
    // A shared row is visible to all.
    await dataOf(ada.client.from("todos").update({ shared: true }).eq("title", "Milk"));
    expect(await dataOf(bob.client.from("todos").select("title").eq("shared", true).eq("owner", ada.id))).toEqual([{ title: "Milk" }]);
    expect(await dataOf(portico.client().from("todos").select("title").eq("owner", ada.id))).toEqual([{ title: "Milk" }]);
    expect(await dataOf(admin(portico).from("todos").select("title").in("owner", [ada.id, bob.id]).order("title"))).toEqual([{ title: "Bread" }, { title: "Milk" }, { title: "Salt" }]);
  });

  test("loses its role when the client signs out, and gets another's with its sign-in", async () => {
    const first = await signedUp(portico);
    await dataOf(first.client.from("todos").insert({ title: "mine" }));
    await first.client.auth.signOut();
    expect(await dataOf(first.client.from("todos").select("title").eq("owner", first.id))).toEqual([]);
    expect(await errorOf(first.client.from("todos").insert({ title: "nobody's", owner: first.id }))).toMatchObject({ status: 401, code: "42501" });
    await first.client.auth.signInWithPassword({ email: first.email, password: PASSWORD });
    expect(await dataOf(first.client.from("todos").select("title"))).toContainEqual({ title: "mine" });
    await first.client.auth.signInAnonymously();
    expect(await dataOf(first.client.from("todos").select("title").eq("shared", false))).toEqual([]);
  });

  test("takes its rows along when it is deleted", async () => {
    const gone = await signedUp(portico);
    await dataOf(gone.client.from("todos").insert({ title: "last" }));
    await sql(portico.status.DB_URL, "delete from auth.users where id = $1", [gone.id]);
    expect(await dataOf(admin(portico).from("todos").select().eq("owner", gone.id))).toEqual([]);
    expect(await dataOf(admin(portico).from("profiles").select().eq("id", gone.id))).toEqual([]);
  });

  test("concurrent accounts never see each other's rows", async () => {
    const people = await Promise.all(Array.from({ length: 8 }, () => signedUp(portico)));
    await Promise.all(
      people.flatMap(({ client, id }) =>
        Array.from({ length: 10 }, async (_, turn) => {
          await dataOf(client.from("todos").insert({ title: `${turn}` }));
          const seen = (await dataOf(client.from("todos").select("owner").eq("shared", false))) as { owner: string }[];
          expect(new Set(seen.map(({ owner }) => owner))).toEqual(new Set([id]));
          expect(await dataOf(client.rpc("who"))).toMatchObject({ role: "authenticated", uid: id });
        }),
      ),
    );
    for (const { client } of people) expect(await responseOf(client.from("todos").select("*", { count: "exact", head: true }).eq("shared", false))).toMatchObject({ count: 10 });
  });
});

describe("roles", () => {
  test("follow from the key or the token", async () => {
    const { client, id } = await signedUp(portico);
    expect(await dataOf(portico.client().rpc("who"))).toEqual({ role: "anon", uid: null, claims_role: "anon", method: "POST" });
    expect(await dataOf(portico.client({}, portico.status.ANON_KEY).rpc("who", {}, { get: true }))).toEqual({ role: "anon", uid: null, claims_role: "anon", method: "GET" });
    expect(await dataOf(client.rpc("who"))).toEqual({ role: "authenticated", uid: id, claims_role: "authenticated", method: "POST" });
    expect(await dataOf(admin(portico).rpc("who"))).toMatchObject({ role: "service_role", uid: null, claims_role: "service_role" });
    expect(await dataOf(portico.client({}, portico.status.SERVICE_ROLE_KEY).rpc("who"))).toMatchObject({ role: "service_role" });
  });

  test("an insert needs no select privilege, returning its rows does", async () => {
    const client = portico.client();
    expect(await responseOf(client.from("letters").insert({ text: "dear" }))).toMatchObject({ status: 201, error: null });
    expect(await errorOf(client.from("letters").insert({ text: "dear" }).select())).toMatchObject({ status: 401, code: "42501", message: 'new row violates row-level security policy for table "letters"' });
    expect(await dataOf(client.from("letters").select())).toEqual([]);
    expect(await dataOf(admin(portico).from("letters").select("text"))).toEqual([{ text: "dear" }]);
  });

  test("a missing privilege is reported with the remedy", async () => {
    const remedy = (role: string): object => ({ code: "42501", message: "permission denied for table vault", hint: `Grant the required privileges to the current role with: GRANT SELECT ON public.vault TO ${role};` });
    expect(await errorOf(portico.client().from("vault").select())).toMatchObject({ status: 401, ...remedy("anon") });
    const { client } = await signedUp(portico);
    expect(await errorOf(client.from("vault").select())).toMatchObject({ status: 403, ...remedy("authenticated") });
    expect(await dataOf(admin(portico).from("vault").select())).toEqual([]);
  });
});

describe("tokens", () => {
  test("signed with the project's secret are accepted", async () => {
    expect(await dataOf(bearing(token({ role: "authenticated", sub: "6f2b1a52-0c5e-4b9a-9a5e-0f0e6f3c1d2b", exp: now() + 60 })).rpc("who"))).toMatchObject({
      role: "authenticated",
      uid: "6f2b1a52-0c5e-4b9a-9a5e-0f0e6f3c1d2b",
    });
  });

  test("that have expired or are not valid yet are rejected", async () => {
    expect(await errorOf(bearing(token({ role: "authenticated", exp: now() - 120 })).from("clubs").select())).toEqual({ status: 401, code: "PGRST303", details: null, hint: null, message: "JWT expired" });
    expect(await errorOf(bearing(token({ role: "authenticated", nbf: now() + 3600, exp: now() + 7200 })).from("clubs").select())).toMatchObject({ status: 401, code: "PGRST303", message: "JWT not yet valid" });
    // Clocks may differ slightly.
    expect(await dataOf(bearing(token({ role: "authenticated", exp: now() - 5 })).from("clubs").select("id").eq("id", 1))).toEqual([{ id: 1 }]);
  });

  test("signed with another secret, or malformed, are rejected", async () => {
    expect(await errorOf(bearing(token({ role: "service_role", exp: now() + 60 }, "another secret of more than 32 bytes")).from("vault").select())).toMatchObject({ status: 401, code: "PGRST301" });
    expect(await errorOf(bearing("abc").from("clubs").select())).toMatchObject({ status: 401, code: "PGRST301" });
    expect(await errorOf(bearing(token({ role: "postgres", exp: now() + 60 })).from("clubs").select())).toMatchObject({ status: 403, code: "42501", message: 'permission denied to set role "postgres"' });
    expect(await errorOf(bearing(token({ role: "ghost", exp: now() + 60 })).from("clubs").select())).toMatchObject({ status: 401, code: "22023", message: 'role "ghost" does not exist' });
  });

  test("a wrong key is rejected by the gateway; in development a call without one is anonymous", async () => {
    const wrong = await fetch(`${portico.url}/rest/v1/clubs`, { headers: { apikey: "sb_publishable_wrong" } });
    expect(wrong.status).toBe(401);
    expect(((await wrong.json()) as { message: string }).message).toBeTruthy();
    expect((await fetch(`${portico.url}/rest/v1/clubs`)).status).toBe(200);
  });
});
