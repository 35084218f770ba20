// The identities of an account: `getUserIdentities`, `linkIdentity`, `unlinkIdentity`.
import type { SupabaseClient, UserIdentity } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { AuthEvents } from "../harness/events.ts";
import { googleTokens, signInAtGoogle, type GoogleChoice } from "../harness/google.ts";
import { emailTo } from "../harness/emails.ts";
import { pageOptions, openPage, query } from "../harness/page.ts";
import { PASSWORD, newEmail, signedUp } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

const google = { provider: "google", options: { skipBrowserRedirect: true, redirectTo: "http://127.0.0.1:3000/settings" } } as const;

const identitiesOf = async (client: SupabaseClient): Promise<UserIdentity[]> => {
  const { data, error } = await client.auth.getUserIdentities();
  expect(error).toBeNull();
  return data!.identities;
};

const providersOf = async (client: SupabaseClient): Promise<string[]> => (await identitiesOf(client)).map(({ provider }) => provider).sort();

describe("where identities may be linked", () => {
  let portico: Portico;
  beforeAll(async () => {
    const notices = ["identity_linked", "identity_unlinked"].map((kind) => `[auth.email.notification.${kind}]\nenabled = true\n`).join("");
    portico = await Portico.start({ config: `[auth]\nsite_url = "http://127.0.0.1:3000"\nenable_manual_linking = true\n${notices}` });
  });
  afterAll(() => portico.dispose());

  /** Links an identity with the proof key of the client, and returns the app's address. */
  const linked = async (client: SupabaseClient, visitor: GoogleChoice): Promise<URL> => {
    const { data, error } = await client.auth.linkIdentity(google);
    expect(error).toBeNull();
    expect(data.provider).toBe("google");
    return signInAtGoogle(data.url!, visitor);
  };

  const withGoogle = async (visitor: { name: string; email: string }): Promise<{ client: SupabaseClient; id: string }> => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const { data } = await client.auth.signInWithOAuth(google);
    const { data: exchanged, error } = await client.auth.exchangeCodeForSession(query(await signInAtGoogle(data.url!, visitor))["code"]!);
    expect(error).toBeNull();
    return { client, id: exchanged.user!.id };
  };

  test("an account begins with one identity", async () => {
    const { client, email, id } = await signedUp(portico);
    const [identity, ...more] = await identitiesOf(client);
    expect(more).toEqual([]);
    expect(identity).toMatchObject({ provider: "email", user_id: id, id, identity_data: { email, sub: id } });
    expect(identity!.identity_id).toMatch(/^[0-9a-f-]{36}$/);
    expect((await portico.client().auth.getUserIdentities()).error).toMatchObject({ name: "AuthSessionMissingError" });
  });

  test("an identity with another address is linked, signs in, and is unlinked", async () => {
    const { client, email, id } = await signedUp(portico, { auth: { flowType: "pkce" } });
    const visitor = { name: "Ada Example", email: newEmail() };
    const back = await linked(client, visitor);
    expect(back.href.split("?")[0]).toBe("http://127.0.0.1:3000/settings");
    const events = new AuthEvents(client);
    const { data, error } = await client.auth.exchangeCodeForSession(back.searchParams.get("code")!);
    expect(error).toBeNull();
    await events.waitFor("SIGNED_IN");
    events.end();
    expect(data.user).toMatchObject({ id, email, app_metadata: { provider: "email" } });
    expect(data.user?.app_metadata["providers"]).toEqual(expect.arrayContaining(["email", "google"]));
    expect(data.session?.provider_token).toBeTruthy();
    const identities = await identitiesOf(client);
    expect(identities.map(({ provider }) => provider).sort()).toEqual(["email", "google"]);
    expect(identities.find(({ provider }) => provider === "google")?.identity_data).toMatchObject({ email: visitor.email, full_name: "Ada Example" });
    expect((await emailTo(portico.status.MAILPIT_URL, email)).Text).toMatch(/google/i);

    expect((await withGoogle(visitor)).id).toBe(id);

    const gone = identities.find(({ provider }) => provider === "google")!;
    expect((await client.auth.unlinkIdentity(gone)).error).toBeNull();
    expect(await providersOf(client)).toEqual(["email"]);
    expect((await client.auth.getUser()).data.user?.app_metadata["providers"]).toEqual(["email"]);
    expect((await emailTo(portico.status.MAILPIT_URL, email, 1)).Subject).toMatch(/removed/i);
    expect((await client.auth.unlinkIdentity(gone)).error).not.toBeNull();
    // The identity now has an account of its own.
    expect((await withGoogle(visitor)).id).not.toBe(id);
  });

  test("an identity is linked by the implicit flow", async () => {
    const { client, id } = await signedUp(portico, { auth: { ...pageOptions, flowType: "implicit" } });
    const back = await linked(client, { name: "Ida Plicit", email: newEmail() });
    expect((await openPage(client, back)).error).toBeNull();
    expect((await client.auth.getUser()).data.user?.id).toBe(id);
    expect(await providersOf(client)).toEqual(["email", "google"]);
  });

  test("an identity is linked by an id_token of the provider's own library", async () => {
    const { client, email, id } = await signedUp(portico);
    const visitor = { name: "Ida Token", email: newEmail() };
    const nonce = "a nonce of this app";
    const { id_token, access_token } = await googleTokens(portico.url, visitor, nonce);
    const events = new AuthEvents(client);
    const { data, error } = await client.auth.linkIdentity({ provider: "google", token: id_token, access_token, nonce });
    expect(error).toBeNull();
    expect(data).toMatchObject({ user: { id, email } });
    await events.waitFor("USER_UPDATED");
    events.end();
    expect(await providersOf(client)).toEqual(["email", "google"]);
    const again = await client.auth.linkIdentity({ provider: "google", token: id_token, access_token, nonce });
    expect(again.error).toMatchObject({ status: 422, code: "identity_already_exists", message: "Identity is already linked" });
  });

  test("an identity belongs to one account", async () => {
    const visitor = { name: "Ada Example", email: newEmail() };
    const owner = await withGoogle(visitor);
    const { client, id } = await signedUp(portico, { auth: { ...pageOptions, flowType: "implicit" } });
    const back = await linked(client, visitor);
    expect(query(back)).toMatchObject({ error_code: "identity_already_exists", error_description: "Identity is already linked to another user" });
    const { error } = await openPage(client, back);
    expect(error).toMatchObject({ message: "Identity is already linked to another user", details: { code: "identity_already_exists" } });
    expect((await client.auth.getUser()).data.user?.id).toBe(id);
    expect(await providersOf(client)).toEqual(["email"]);
    expect(await providersOf(owner.client)).toEqual(["google"]);
  });

  test("declining at the provider changes nothing", async () => {
    const { client } = await signedUp(portico, { auth: { flowType: "pkce" } });
    expect(query(await linked(client, "cancel"))).toMatchObject({ error: "access_denied" });
    expect(await providersOf(client)).toEqual(["email"]);
  });

  test("the last identity and those of other accounts cannot be removed", async () => {
    const visitor = { name: "Ada Example", email: newEmail() };
    const { client } = await withGoogle(visitor);
    const [only] = await identitiesOf(client);
    expect((await client.auth.unlinkIdentity(only!)).error).toMatchObject({ status: 422, code: "single_identity_not_deletable", message: "User must have at least 1 identity after unlinking" });
    expect(await providersOf(client)).toEqual(["google"]);

    const other = await signedUp(portico, { auth: { flowType: "pkce" } });
    await other.client.auth.exchangeCodeForSession(query(await linked(other.client, { name: "O", email: newEmail() }))["code"]!);
    expect((await other.client.auth.unlinkIdentity(only!)).error).toMatchObject({ status: 422, code: "identity_not_found" });
    expect((await other.client.auth.unlinkIdentity({ ...only!, identity_id: "nonsense" })).error).toMatchObject({ status: 404, code: "validation_failed" });
    expect((await portico.client().auth.unlinkIdentity(only!)).error).not.toBeNull();
  });

  test("unlinking the email identity leaves the provider's address", async () => {
    const { client, email, id } = await signedUp(portico, { auth: { flowType: "pkce" } });
    const visitor = { name: "Ada Example", email: newEmail() };
    await client.auth.exchangeCodeForSession(query(await linked(client, visitor))["code"]!);
    const own = (await identitiesOf(client)).find(({ provider }) => provider === "email")!;
    expect((await client.auth.unlinkIdentity(own)).error).toBeNull();
    expect((await client.auth.getUser()).data.user).toMatchObject({ id, email: visitor.email, app_metadata: { providers: ["google"] } });
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toMatchObject({ code: "invalid_credentials" });
  });

  test("a provider that is not configured and a caller without a session are rejected", async () => {
    const { client } = await signedUp(portico);
    expect((await client.auth.linkIdentity({ ...google, provider: "github" })).error).toMatchObject({ status: 400, code: "validation_failed" });
    expect((await portico.client().auth.linkIdentity(google)).error).not.toBeNull();
  });

  test("a verified address signs in to the account that has it, without manual linking", async () => {
    const { client, email, id } = await signedUp(portico);
    expect((await withGoogle({ name: "Ada Example", email })).id).toBe(id);
    expect(await providersOf(client)).toEqual(["email", "google"]);
  });
});

describe("where identities may not be linked", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start();
  });
  afterAll(() => portico.dispose());

  test("linking, unlinking and anonymous accounts are rejected", async () => {
    const { client } = await signedUp(portico);
    const disabled = { code: "manual_linking_disabled", message: "Manual linking is disabled" };
    expect((await client.auth.linkIdentity(google)).error).toMatchObject(disabled);
    const { id_token, access_token } = await googleTokens(portico.url, { name: "Ada", email: newEmail() });
    expect((await client.auth.linkIdentity({ provider: "google", token: id_token, access_token })).error).toMatchObject(disabled);
    const [own] = await identitiesOf(client);
    expect((await client.auth.unlinkIdentity(own!)).error).toMatchObject(disabled);
    expect((await portico.client().auth.signInAnonymously()).error).toMatchObject({ status: 422, code: "anonymous_provider_disabled", message: "Anonymous sign-ins are disabled" });
  });
});
