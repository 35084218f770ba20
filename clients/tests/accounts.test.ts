// The official client's account methods against the running program, as an app calls them.
import { isAuthApiError, isAuthWeakPasswordError, type SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { codeIn, linkIn, emailTo, emailsTo } from "../harness/emails.ts";
import { Portico } from "../harness/portico.ts";

let portico: Portico;

beforeAll(async () => {
  portico = await Portico.start();
});
afterAll(() => portico.dispose());

let count = 0;
const address = (): string => `person-${++count}@portico.test`;

async function signedUp(email = address(), password = "correct horse battery"): Promise<{ client: SupabaseClient; email: string; password: string }> {
  const client = portico.client();
  const { error } = await client.auth.signUp({ email, password });
  expect(error).toBeNull();
  return { client, email, password };
}

describe("sign-up", () => {
  test("returns a session where no confirmation is required", async () => {
    const email = address();
    const client = portico.client();
    const { data, error } = await client.auth.signUp({ email, password: "correct horse battery", options: { data: { name: "Ada" } } });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ email, role: "authenticated", aud: "authenticated", user_metadata: { name: "Ada" } });
    expect(data.user?.app_metadata).toEqual({ provider: "email", providers: ["email"] });
    expect(data.session).toMatchObject({ token_type: "bearer", expires_in: 3600 });
    const { data: read } = await client.auth.getUser();
    expect(read.user?.id).toBe(data.user?.id);
  });

  test("of a taken address is rejected", async () => {
    const { email, password } = await signedUp();
    const { error } = await portico.client().auth.signUp({ email, password });
    expect(error).toMatchObject({ status: 422, code: "user_already_exists", message: "User already registered" });
  });

  test("with a short password is rejected with the reasons", async () => {
    const { error } = await portico.client().auth.signUp({ email: address(), password: "abc" });
    expect(isAuthWeakPasswordError(error)).toBe(true);
    expect(error).toMatchObject({ status: 422, code: "weak_password", reasons: ["length"] });
  });

  test("needs a valid address", async () => {
    const { error } = await portico.client().auth.signUp({ email: "not an address", password: "correct horse battery" });
    expect(error).toMatchObject({ status: 400, code: "validation_failed" });
  });
});

describe("sign-in with a password", () => {
  test("works, and stores its session", async () => {
    const { email, password } = await signedUp();
    const client = portico.client();
    const events: string[] = [];
    client.auth.onAuthStateChange((event) => events.push(event));
    const { data, error } = await client.auth.signInWithPassword({ email: email.toUpperCase(), password });
    expect(error).toBeNull();
    expect(data.user?.email).toBe(email);
    expect((await client.auth.getSession()).data.session?.access_token).toBe(data.session?.access_token);
    expect(events).toContain("SIGNED_IN");
  });

  test("has the same error for a wrong password and an unknown address", async () => {
    const { email } = await signedUp();
    for (const attempt of [{ email, password: "wrong password" }, { email: address(), password: "wrong password" }]) {
      const { error } = await portico.client().auth.signInWithPassword(attempt);
      expect(isAuthApiError(error)).toBe(true);
      expect(error).toMatchObject({ status: 400, code: "invalid_credentials", message: "Invalid login credentials" });
    }
  });
});

describe("a session", () => {
  test("is refreshed, and its token is verified with the published keys", async () => {
    const { client } = await signedUp();
    const before = (await client.auth.getSession()).data.session;
    const { data, error } = await client.auth.refreshSession();
    expect(error).toBeNull();
    expect(data.session?.refresh_token).not.toBe(before?.refresh_token);
    const claims = await client.auth.getClaims();
    expect(claims.error).toBeNull();
    expect(claims.data?.claims.sub).toBe(data.user?.id);
    expect(claims.data?.header.alg).toBe("ES256");
  });

  test("can be carried to another client", async () => {
    const { client } = await signedUp();
    const { access_token, refresh_token } = (await client.auth.getSession()).data.session!;
    const other = portico.client();
    const { data, error } = await other.auth.setSession({ access_token, refresh_token });
    expect(error).toBeNull();
    expect(data.user?.id).toBe((await client.auth.getUser()).data.user?.id);
  });

  test("survives many tabs that refresh at once", async () => {
    const { client } = await signedUp();
    const { refresh_token } = (await client.auth.getSession()).data.session!;
    const responses = await Promise.all(Array.from({ length: 20 }, () => portico.client().auth.refreshSession({ refresh_token })));
    expect(responses.map(({ error }) => error)).toEqual(responses.map(() => null));
    const last = responses.at(-1)!.data.session!;
    expect((await portico.client().auth.refreshSession({ refresh_token: last.refresh_token })).error).toBeNull();
  });

  test("with an unknown refresh token is rejected permanently", async () => {
    const { error } = await portico.client().auth.refreshSession({ refresh_token: "aaaaaaaaaaaa" });
    expect(error).toMatchObject({ status: 400, code: "refresh_token_not_found" });
  });
});

describe("sign-out", () => {
  test("ends every session of the account by default", async () => {
    const { client, email, password } = await signedUp();
    const other = portico.client();
    await other.auth.signInWithPassword({ email, password });
    expect((await client.auth.signOut()).error).toBeNull();
    expect((await client.auth.getSession()).data.session).toBeNull();
    expect((await other.auth.refreshSession()).error).toMatchObject({ status: 400 });
  });

  test("of the others keeps this one", async () => {
    const { client, email, password } = await signedUp();
    const other = portico.client();
    await other.auth.signInWithPassword({ email, password });
    expect((await client.auth.signOut({ scope: "others" })).error).toBeNull();
    expect((await client.auth.refreshSession()).error).toBeNull();
    expect((await other.auth.refreshSession()).error).not.toBeNull();
  });
});

describe("the account", () => {
  test("changes its data and its password", async () => {
    const { client, email, password } = await signedUp();
    const { data, error } = await client.auth.updateUser({ data: { name: "Grace" }, password: "another good one" });
    expect(error).toBeNull();
    expect(data.user?.user_metadata).toMatchObject({ name: "Grace" });
    expect((await portico.client().auth.signInWithPassword({ email, password })).error).not.toBeNull();
    expect((await portico.client().auth.signInWithPassword({ email, password: "another good one" })).error).toBeNull();
  });

  test("cannot change what only the server may set", async () => {
    const { client } = await signedUp();
    const { access_token } = (await client.auth.getSession()).data.session!;
    const response = await fetch(`${portico.url}/auth/v1/user`, {
      method: "PUT",
      headers: { authorization: `Bearer ${access_token}`, apikey: portico.status.PUBLISHABLE_KEY, "content-type": "application/json" },
      body: JSON.stringify({ app_metadata: { operator: true } }),
    });
    expect([200, 403]).toContain(response.status);
    const { data } = await client.auth.getUser();
    expect(data.user?.app_metadata).not.toHaveProperty("operator");
  });

  test("lists its sessions and ends one of them", async () => {
    const { client, email, password } = await signedUp();
    const other = portico.client();
    await other.auth.signInWithPassword({ email, password });
    const { access_token } = (await client.auth.getSession()).data.session!;
    const headers = { authorization: `Bearer ${access_token}`, apikey: portico.status.PUBLISHABLE_KEY };
    const sessions = (await (await fetch(`${portico.url}/auth/v1/sessions`, { headers })).json()) as { id: string; current: boolean }[];
    expect(sessions.map(({ current }) => current).sort()).toEqual([false, true]);
    const stranger = sessions.find(({ current }) => !current)!;
    const removed = await fetch(`${portico.url}/auth/v1/sessions/${stranger.id}`, { method: "DELETE", headers });
    expect(removed.status).toBe(204);
    expect((await other.auth.refreshSession()).error).not.toBeNull();
    expect((await client.auth.refreshSession()).error).toBeNull();
  });
});

describe("with confirmation", () => {
  let confirming: Portico;
  beforeAll(async () => {
    confirming = await Portico.start({ config: '[auth]\nsite_url = "http://127.0.0.1:54321"\n[auth.email]\nenable_confirmations = true\n' });
  });
  afterAll(() => confirming.dispose());

  test("the link in the email signs in, by PKCE", async () => {
    const email = address();
    const client = confirming.client({ auth: { flowType: "pkce" } });
    const { data, error } = await client.auth.signUp({ email, password: "correct horse battery" });
    expect(error).toBeNull();
    expect(data.session).toBeNull();
    const mail = await emailTo(confirming.status.MAILPIT_URL, email);
    const response = await fetch(linkIn(mail), { redirect: "manual" });
    expect(response.status).toBe(303);
    const code = new URL(response.headers.get("location")!).searchParams.get("code")!;
    const exchanged = await client.auth.exchangeCodeForSession(code);
    expect(exchanged.error).toBeNull();
    expect(exchanged.data.user?.email).toBe(email);
    const again = await client.auth.exchangeCodeForSession(code).catch((thrown: unknown) => ({ error: thrown }));
    expect(again.error).not.toBeNull();
  });

  test("the code in the email signs in", async () => {
    const email = address();
    const client = confirming.client();
    await client.auth.signUp({ email, password: "correct horse battery" });
    const early = await client.auth.signInWithPassword({ email, password: "correct horse battery" });
    expect(early.error).toMatchObject({ status: 400, code: "email_not_confirmed", message: "Email not confirmed" });
    const token = codeIn(await emailTo(confirming.status.MAILPIT_URL, email));
    const { data, error } = await client.auth.verifyOtp({ email, token, type: "signup" });
    expect(error).toBeNull();
    expect(data.session?.access_token).toBeTruthy();
    const again = await confirming.client().auth.verifyOtp({ email, token, type: "signup" });
    expect(again.error).toMatchObject({ status: 403, code: "otp_expired" });
  });

  test("a taken address is not disclosed", async () => {
    const email = address();
    const client = confirming.client();
    await client.auth.signUp({ email, password: "correct horse battery" });
    await client.auth.verifyOtp({ email, token: codeIn(await emailTo(confirming.status.MAILPIT_URL, email)), type: "signup" });
    const { data, error } = await confirming.client().auth.signUp({ email, password: "a stranger's guess" });
    expect(error).toBeNull();
    expect(data.session).toBeNull();
    expect(data.user?.identities).toEqual([]);
    // The owner of the address gets a notice that leads to the sign-in page, without a code or a
    // link with a token that a stranger could have requested.
    const notice = await emailTo(confirming.status.MAILPIT_URL, email, 1);
    expect(notice.Subject).toBe("You already have an account");
    expect(notice.Text).not.toMatch(/\d{6}|token/);
    expect(notice.Text).toContain("/sign-in");
    expect(await emailsTo(confirming.status.MAILPIT_URL, email)).toHaveLength(2);
  });
});
