// `signInWithOAuth`: both flows, the parameters for the provider, and every redirect that does not
// sign in.
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { AuthEvents } from "../harness/events.ts";
import { submitGoogleChoice, signInAtGoogle } from "../harness/google.ts";
import { redirectTarget, fragment, pageOptions, openPage, query } from "../harness/page.ts";
import { newEmail, claims } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

const APP = "https://app.portico.test/callback";
const CONFIG = '[auth]\nsite_url = "http://127.0.0.1:3000"\nadditional_redirect_urls = ["https://app.portico.test/**", "com.portico.app://callback"]\n';

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: `${CONFIG}[auth.email]\nenable_confirmations = true\n` });
});
afterAll(() => portico.dispose());

const begin = async (client: ReturnType<Portico["client"]>, options: { redirectTo?: string; scopes?: string; queryParams?: Record<string, string> } = {}): Promise<string> => {
  const { data, error } = await client.auth.signInWithOAuth({ provider: "google", options: { redirectTo: APP, skipBrowserRedirect: true, ...options } });
  expect(error).toBeNull();
  return data.url!;
};

describe("with a proof key", () => {
  test("the app exchanges a code, once", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const visitor = { name: "Ada Example", email: newEmail() };
    const back = await signInAtGoogle(await begin(client), visitor);
    expect(back.href).toMatch(/^https:\/\/app\.portico\.test\/callback\?code=[0-9a-f-]{36}$/);
    const code = back.searchParams.get("code")!;
    const events = new AuthEvents(client);
    const { data, error } = await client.auth.exchangeCodeForSession(code);
    expect(error).toBeNull();
    expect((await events.waitFor("SIGNED_IN"))?.user.id).toBe(data.user?.id);
    events.end();
    expect(data.user).toMatchObject({ email: visitor.email, app_metadata: { provider: "google", providers: ["google"] }, user_metadata: { full_name: "Ada Example", name: "Ada Example", email_verified: true } });
    expect(data.user?.email_confirmed_at).toBeTruthy();
    expect(data.session?.provider_token).toBeTruthy();
    expect(await claims(client)).toMatchObject({ amr: [{ method: "oauth" }], aal: "aal1" });

    // The code cannot be exchanged again with the same proof key.
    const response = await fetch(`${portico.url}/auth/v1/token?grant_type=pkce`, {
      method: "POST",
      headers: { apikey: portico.status.PUBLISHABLE_KEY, "content-type": "application/json" },
      body: JSON.stringify({ auth_code: code, code_verifier: "a".repeat(64) }),
    });
    expect(response.status).toBe(404);
    expect(((await response.json()) as { error_code: string }).error_code).toBe("flow_state_not_found");
  });

  test("the page that the flow returns to signs in by itself", async () => {
    const client = portico.client({ auth: { ...pageOptions, flowType: "pkce" } });
    const email = newEmail();
    const { error, left } = await openPage(client, await signInAtGoogle(await begin(client, { redirectTo: `${APP}?next=%2Fhome` }), { name: "Ada", email }));
    expect(error).toBeNull();
    expect(left.href).toBe(`${APP}?next=%2Fhome`);
    expect((await client.auth.getUser()).data.user?.email).toBe(email);
  });

  test("a code is useless without the key", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const back = await signInAtGoogle(await begin(client), { name: "Ada", email: newEmail() });
    const thief = portico.client({ auth: { flowType: "pkce" } });
    await begin(thief);
    const stolen = await thief.auth.exchangeCodeForSession(back.searchParams.get("code")!);
    expect(stolen.error).toMatchObject({ status: 400, code: "bad_code_verifier" });
    expect(stolen.data.session).toBeNull();
    expect((await client.auth.exchangeCodeForSession("11111111-1111-4111-8111-111111111111")).error).toMatchObject({ status: 404, code: "flow_state_not_found" });
    expect((await client.auth.exchangeCodeForSession("nonsense")).error).not.toBeNull();
  });

  test("a second sign-in finds the account", async () => {
    const visitor = { name: "Ada Example", email: newEmail() };
    const ids = [];
    for (const name of ["Ada Example", "Ada Married"]) {
      const client = portico.client({ auth: { flowType: "pkce" } });
      const back = await signInAtGoogle(await begin(client), { ...visitor, name });
      const { data } = await client.auth.exchangeCodeForSession(back.searchParams.get("code")!);
      ids.push(data.user?.id);
      expect(data.user?.user_metadata).toMatchObject({ full_name: name });
    }
    expect(ids[0]).toBe(ids[1]);
  });

  test("an app on a phone has an address of its own", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const back = await signInAtGoogle(await begin(client, { redirectTo: "com.portico.app://callback" }), { name: "Ada", email: newEmail() });
    expect(back.href).toMatch(/^com\.portico\.app:\/\/callback\?code=/);
  });
});

describe("without a proof key", () => {
  test("the session is in the fragment", async () => {
    const client = portico.client({ auth: { ...pageOptions, flowType: "implicit" } });
    const email = newEmail();
    const back = await signInAtGoogle(await begin(client), { name: "Ada Example", email });
    expect(back.href.split("#")[0]).toBe(APP);
    const fields = fragment(back);
    expect(fields).toMatchObject({ token_type: "bearer", expires_in: "3600" });
    for (const field of ["access_token", "refresh_token", "expires_at", "provider_token"]) expect(fields[field], field).toBeTruthy();
    const events = new AuthEvents(client);
    const { error, left } = await openPage(client, back);
    expect(error).toBeNull();
    expect(left.hash).toBe("");
    const session = await events.waitFor("SIGNED_IN");
    events.end();
    expect(session).toMatchObject({ user: { email }, provider_token: fields["provider_token"] });
    expect((await client.auth.refreshSession()).error).toBeNull();
  });

  test("the tokens of the fragment can be passed to setSession", async () => {
    const client = portico.client({ auth: { flowType: "implicit" } });
    const email = newEmail();
    const { access_token, refresh_token } = fragment(await signInAtGoogle(await begin(client), { name: "Ada", email }));
    const { data, error } = await client.auth.setSession({ access_token: access_token!, refresh_token: refresh_token! });
    expect(error).toBeNull();
    expect(data.user?.email).toBe(email);
  });
});

describe("the parameters for the provider", () => {
  test("scopes are added, parameters are passed on, and ours cannot be replaced", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const url = await begin(client, {
      scopes: "https://www.googleapis.com/auth/calendar.readonly",
      queryParams: { access_type: "offline", prompt: "consent", hd: "portico.test", client_id: "mine", state: "mine", redirect_uri: "https://evil.portico.test/" },
    });
    const google = await redirectTarget(url);
    expect(google.origin).toBe(new URL(portico.url).origin);
    const asked = query(google);
    expect(asked["scope"]!.split(" ")).toEqual(expect.arrayContaining(["email", "profile", "https://www.googleapis.com/auth/calendar.readonly"]));
    expect(asked).toMatchObject({ access_type: "offline", prompt: "consent", hd: "portico.test", response_type: "code", redirect_uri: `${portico.url}/auth/v1/callback` });
    expect(asked["client_id"]).not.toBe("mine");
    expect(asked["state"]).not.toBe("mine");
    expect(asked["code_challenge_method"]).toBe("S256");
    for (const own of ["redirect_to", "provider", "scopes", "apikey"]) expect(asked, own).not.toHaveProperty(own);

    const back = await redirectTarget(await submitGoogleChoice(google, { name: "Ada", email: newEmail() }));
    const { data } = await client.auth.exchangeCodeForSession(back.searchParams.get("code")!);
    expect(data.session?.provider_token).toBeTruthy();
    expect(data.session?.provider_refresh_token).toBeTruthy();
  });

  test("a redirect target that is not allowed is not used", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const back = await signInAtGoogle(await begin(client, { redirectTo: "https://evil.portico.test/" }), { name: "Ada", email: newEmail() });
    expect(back.origin).toBe("http://127.0.0.1:3000");
  });

  test("a provider that is not configured is rejected", async () => {
    for (const provider of ["github", "carrier-pigeon"] as const) {
      const { data } = await portico.client().auth.signInWithOAuth({ provider: provider as "github", options: { skipBrowserRedirect: true } });
      const response = await fetch(data.url!, { redirect: "manual" });
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({ error_code: "validation_failed" });
    }
  });
});

describe("a flow that does not sign in", () => {
  test.each(["pkce", "implicit"] as const)("declining returns to the app with the reason (%s)", async (flowType) => {
    const client = portico.client({ auth: { ...pageOptions, flowType } });
    const back = await signInAtGoogle(await begin(client), "cancel");
    const reason = { error: "access_denied", error_description: "The person declined." };
    expect(query(back)).toMatchObject(reason);
    expect(fragment(back)).toMatchObject(reason);
    const { error } = await openPage(client, back);
    expect(error).toMatchObject({ message: "The person declined.", details: { error: "access_denied" } });
    expect((await client.auth.getSession()).data.session).toBeNull();
  });

  test("a failing provider is reported to the app", async () => {
    const client = portico.client({ auth: { ...pageOptions, flowType: "pkce" } });
    const back = await signInAtGoogle(await begin(client), "fail");
    expect(back.href.startsWith(APP)).toBe(true);
    expect(query(back)).toMatchObject({ error: "server_error" });
    expect((await openPage(client, back)).error).not.toBeNull();
  });

  test("a callback works once, and only with a state of ours", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const callback = await submitGoogleChoice(await redirectTarget(await begin(client)), { name: "Ada", email: newEmail() });
    const stray = new URL(callback);
    stray.searchParams.set("state", "11111111-1111-4111-8111-111111111111");
    expect(query(await redirectTarget(stray))).toMatchObject({ error: "invalid_request", error_code: "bad_oauth_state" });
    stray.searchParams.delete("state");
    expect(query(await redirectTarget(stray))).toMatchObject({ error: "invalid_request", error_code: "bad_oauth_callback" });
    const first = await redirectTarget(callback);
    const second = await redirectTarget(callback);
    expect(query(second)).toHaveProperty("error_code");
    expect(second.searchParams.has("code")).toBe(false);
    expect((await client.auth.exchangeCodeForSession(first.searchParams.get("code")!)).error).toBeNull();
  });

  test("a flow that took too long has expired", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const back = await signInAtGoogle(await begin(client), { name: "Ada", email: newEmail() });
    await sql(portico.status.DB_URL, "update auth.flow_state set created_at = created_at - interval '1 day', auth_code_issued_at = auth_code_issued_at - interval '1 day' where auth_code = $1", [back.searchParams.get("code")]);
    expect((await client.auth.exchangeCodeForSession(back.searchParams.get("code")!)).error).toMatchObject({ code: "flow_state_expired" });
  });

  test("an address that the provider did not verify requires confirmation", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const email = newEmail();
    const back = await signInAtGoogle(await begin(client), { name: "Eve", email, unverified: true });
    expect(back.searchParams.has("code")).toBe(false);
    expect(query(back)).toMatchObject({ error: "access_denied", error_code: "provider_email_needs_verification" });
  });
});
