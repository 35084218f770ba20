// The administration of accounts: `auth.admin` with the secret key.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { PASSWORD, newEmail } from "../harness/accounts.ts";
import { sql } from "../harness/database.ts";
import { emailTo, emailsTo, linkIn } from "../harness/emails.ts";
import { fragment, redirectTarget } from "../harness/page.ts";
import { Portico } from "../harness/portico.ts";

const SITE = "http://127.0.0.1:3000";
let portico: Portico;
let admin: SupabaseClient["auth"]["admin"];
beforeAll(async () => {
  portico = await Portico.start({ config: `[auth]\nsite_url = "${SITE}"\nadditional_redirect_urls = ["https://app.portico.test/**"]\n[auth.email]\nmax_frequency = "0s"\nenable_confirmations = true\n` });
  admin = portico.client({}, portico.status.SECRET_KEY).auth.admin;
});
afterAll(() => portico.dispose());

/** Creates a confirmed account. */
const person = async (): Promise<{ id: string; email: string }> => {
  const email = newEmail();
  const { data, error } = await admin.createUser({ email, password: PASSWORD, email_confirm: true });
  expect(error).toBeNull();
  return { id: data.user!.id, email };
};
const signIn = (email: string, password = PASSWORD): ReturnType<SupabaseClient["auth"]["signInWithPassword"]> => portico.client().auth.signInWithPassword({ email, password });

describe("the callers", () => {
  test("a key without the role is rejected", async () => {
    const { email } = await person();
    const member = portico.client();
    expect((await member.auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
    const rejected = { status: 403, code: "not_admin", message: "User not allowed" };
    for (const client of [portico.client(), portico.client({}, portico.status.ANON_KEY)]) {
      expect((await client.auth.admin.listUsers()).error).toMatchObject(rejected);
      expect((await client.auth.admin.createUser({ email: newEmail() })).error).toMatchObject(rejected);
    }
    const token = (await member.auth.getSession()).data.session!.access_token;
    const response = await fetch(`${portico.url}/auth/v1/admin/users`, { headers: { apikey: portico.status.SECRET_KEY, Authorization: `Bearer ${token}` } });
    expect(response.status).toBe(403);
    const bare = await fetch(`${portico.url}/auth/v1/admin/users`);
    expect([bare.status, await bare.json()]).toMatchObject([401, { error_code: "no_authorization", msg: "This endpoint requires a valid Bearer token" }]);
  });

  test("the legacy key of the service is accepted", async () => {
    const legacy = portico.client({}, portico.status.SERVICE_ROLE_KEY).auth.admin;
    expect((await legacy.listUsers()).error).toBeNull();
  });
});

describe("accounts", () => {
  test("createUser makes an account that can sign in at once", async () => {
    const email = newEmail();
    const { data, error } = await admin.createUser({ email, password: PASSWORD, email_confirm: true, user_metadata: { name: "Ada" }, app_metadata: { plan: "pro" } });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ email, user_metadata: { name: "Ada" }, app_metadata: { plan: "pro", provider: "email", providers: ["email"] } });
    expect(data.user!.identities).toHaveLength(1);
    expect((await signIn(email)).data.user?.id).toBe(data.user!.id);
    expect(await emailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
    expect((await admin.createUser({ email })).error).toMatchObject({ status: 422, code: "email_exists" });
  });

  test("listUsers returns pages, the newest first", async () => {
    const created = [await person(), await person(), await person()];
    const first = await admin.listUsers({ page: 1, perPage: 2 });
    expect(first.error).toBeNull();
    expect(first.data.users.map((user) => user.email)).toEqual([created[2]!.email, created[1]!.email]);
    const { total, nextPage, lastPage } = first.data as { total: number; nextPage: number | null; lastPage: number };
    expect(nextPage).toBe(2);
    expect(lastPage).toBe(Math.ceil(total / 2));
    expect((await admin.listUsers({ page: 2, perPage: 2 })).data.users[0]!.email).toBe(created[0]!.email);
    const all = await admin.listUsers();
    expect(all.error).toBeNull();
    expect(all.data.users).toHaveLength(Math.min(total, 50));
  });

  test("getUserById returns an account with its identities", async () => {
    const { id, email } = await person();
    const { data } = await admin.getUserById(id);
    expect(data.user).toMatchObject({ id, email });
    expect(data.user!.identities![0]).toMatchObject({ provider: "email", identity_data: { email } });
    expect((await admin.getUserById(crypto.randomUUID())).error).toMatchObject({ status: 404, code: "user_not_found" });
  });

  test("updateUserById changes an account without its owner", async () => {
    const { id, email } = await person();
    const session = portico.client();
    await session.auth.signInWithPassword({ email, password: PASSWORD });
    const next = newEmail();
    const { data, error } = await admin.updateUserById(id, { email: next, email_confirm: true, password: `${PASSWORD} 2`, app_metadata: { role: "editor" }, user_metadata: { name: "Ada" } });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ id, email: next, app_metadata: { role: "editor" }, user_metadata: { name: "Ada" } });
    expect((await session.auth.getUser()).error).toMatchObject({ name: "AuthSessionMissingError" });
    expect((await signIn(next, `${PASSWORD} 2`)).error).toBeNull();
    expect((await admin.updateUserById(id, { password: "abc" })).error).toMatchObject({ name: "AuthWeakPasswordError", status: 422 });
  });

  test("a ban refuses requests until it is lifted", async () => {
    const { id, email } = await person();
    const session = portico.client();
    await session.auth.signInWithPassword({ email, password: PASSWORD });
    expect((await admin.updateUserById(id, { ban_duration: "24h" })).data.user).toHaveProperty("banned_until");
    expect((await signIn(email)).error).toMatchObject({ code: "user_banned" });
    expect((await session.auth.getUser()).error).toMatchObject({ status: 403, code: "user_banned" });
    await admin.updateUserById(id, { ban_duration: "none" });
    expect((await session.auth.getUser()).error).toBeNull();
  });

  test("deleteUser removes an account, softly if asked", async () => {
    const gone = await person();
    expect((await admin.deleteUser(gone.id)).error).toBeNull();
    expect((await admin.getUserById(gone.id)).error).toMatchObject({ status: 404 });
    const hidden = await person();
    expect((await admin.deleteUser(hidden.id, true)).error).toBeNull();
    const { data } = await admin.getUserById(hidden.id);
    expect(data.user).toMatchObject({ id: hidden.id, user_metadata: {}, app_metadata: {} });
    expect(data.user!.email).not.toContain("@");
    expect((await signIn(hidden.email)).error).toMatchObject({ code: "invalid_credentials" });
    expect((await admin.createUser({ email: hidden.email })).error).toBeNull();
  });

  test("signOut ends the sessions of a token", async () => {
    const { email } = await person();
    const member = portico.client();
    const { data } = await member.auth.signInWithPassword({ email, password: PASSWORD });
    expect((await admin.signOut(data.session!.access_token, "global")).error).toBeNull();
    expect((await member.auth.getUser()).error).toMatchObject({ name: "AuthSessionMissingError" });
  });
});

describe("messages", () => {
  test("inviteUserByEmail sends a link that confirms the account", async () => {
    const email = newEmail();
    const { data, error } = await admin.inviteUserByEmail(email, { data: { team: "red" }, redirectTo: "https://app.portico.test/welcome" });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ email, user_metadata: { team: "red" } });
    expect(data.user!.invited_at).toBeTruthy();
    const landed = await redirectTarget(linkIn(await emailTo(portico.status.MAILPIT_URL, email)));
    expect(landed.href).toMatch(/^https:\/\/app\.portico\.test\/welcome#/);
    expect(fragment(landed)).toMatchObject({ type: "invite" });
    expect((await admin.getUserById(data.user!.id)).data.user!.email_confirmed_at).toBeTruthy();
    expect((await admin.inviteUserByEmail(email)).error).toMatchObject({ status: 422, code: "email_exists" });
  });

  /** Follows a link, and returns the address of the account that it signs in. */
  const follow = async (link: string): Promise<string | undefined> => {
    const landed = await redirectTarget(link);
    const { access_token, refresh_token } = fragment(landed) as { access_token: string; refresh_token: string };
    const { data, error } = await portico.client().auth.setSession({ access_token, refresh_token });
    expect(error).toBeNull();
    return data.user?.email;
  };

  test("generateLink returns links of every type that work, and sends nothing", async () => {
    const fresh = newEmail();
    const signup = await admin.generateLink({ type: "signup", email: fresh, password: PASSWORD, options: { redirectTo: "https://app.portico.test/in", data: { name: "Ada" } } });
    expect(signup.error).toBeNull();
    expect(signup.data.properties).toMatchObject({ verification_type: "signup", redirect_to: "https://app.portico.test/in" });
    expect(signup.data.user).toMatchObject({ email: fresh, user_metadata: { name: "Ada" } });
    expect(await follow(signup.data.properties!.action_link)).toBe(fresh);

    const invited = newEmail();
    const invite = await admin.generateLink({ type: "invite", email: invited });
    expect(await follow(invite.data.properties!.action_link)).toBe(invited);

    for (const type of ["magiclink", "recovery"] as const) {
      const { data } = await admin.generateLink({ type, email: fresh });
      expect(data.properties).toMatchObject({ verification_type: type });
      expect(await follow(data.properties!.action_link)).toBe(fresh);
      const again = await admin.generateLink({ type, email: fresh });
      const { error } = await portico.client().auth.verifyOtp({ type, token_hash: again.data.properties!.hashed_token });
      expect(error).toBeNull();
      const typed = await admin.generateLink({ type, email: fresh });
      expect((await portico.client().auth.verifyOtp({ type, email: fresh, token: typed.data.properties!.email_otp })).error).toBeNull();
    }

    // Both links belong to one change
    const next = newEmail();
    const current = await admin.generateLink({ type: "email_change_current", email: fresh, newEmail: next });
    expect(current.error).toBeNull();
    const change = await admin.generateLink({ type: "email_change_new", email: fresh, newEmail: next });
    expect(change.error).toBeNull();
    const half = await redirectTarget(current.data.properties!.action_link);
    expect(fragment(half)).toMatchObject({ message: "Confirmation link accepted. Please proceed to confirm link sent to the other email" });
    expect(await follow(change.data.properties!.action_link)).toBe(next);
    for (const email of [fresh, invited, next]) expect(await emailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
  });

  test("generateLink for an unknown address becomes a sign-up or is rejected", async () => {
    const email = newEmail();
    const { data } = await admin.generateLink({ type: "magiclink", email });
    expect(data.properties).toMatchObject({ verification_type: "signup" });
    expect(await follow(data.properties!.action_link)).toBe(email);
    expect((await admin.generateLink({ type: "recovery", email: newEmail() })).error).toMatchObject({ status: 404, code: "user_not_found" });
  });
});

describe("second factors", () => {
  test("mfa lists and removes the factors of an account", async () => {
    const { id, email } = await person();
    const member = portico.client();
    await member.auth.signInWithPassword({ email, password: PASSWORD });
    expect((await admin.mfa.listFactors({ userId: id })).data).toMatchObject({ factors: [] });
    const factor = crypto.randomUUID();
    await sql(portico.status.DB_URL, "insert into auth.mfa_factors (id, user_id, friendly_name, factor_type, status, created_at, updated_at, secret) values ($1, $2, 'app', 'totp', 'verified', now(), now(), 'x')", [factor, id]);
    const { data, error } = await admin.mfa.listFactors({ userId: id });
    expect(error).toBeNull();
    expect(data!.factors).toMatchObject([{ id: factor, friendly_name: "app", status: "verified" }]);
    const removed = await admin.mfa.deleteFactor({ userId: id, id: factor });
    expect(removed.error).toBeNull();
    // The client returns the factor inside a second `data`
    expect(JSON.stringify(removed.data)).toContain(factor);
    expect((await admin.mfa.listFactors({ userId: id })).data).toMatchObject({ factors: [] });
    expect((await admin.mfa.deleteFactor({ userId: id, id: factor })).error).toMatchObject({ status: 404, code: "mfa_factor_not_found" });
  });
});

describe("custom providers", () => {
  const acme = {
    provider_type: "oauth2" as const,
    identifier: "custom:acme",
    name: "Acme",
    client_id: "portico",
    client_secret: "secret",
    authorization_url: "https://8.8.8.8/authorize",
    token_url: "https://8.8.8.8/token",
    userinfo_url: "https://8.8.8.8/userinfo",
    scopes: ["profile"],
  };

  test("they are created, used, changed and deleted while the server runs", async () => {
    const { customProviders } = admin;
    const created = await customProviders.createProvider(acme);
    expect(created.error).toBeNull();
    expect(created.data).toMatchObject({ identifier: "custom:acme", enabled: true, pkce_enabled: true, scopes: ["profile"] });
    expect(JSON.stringify(created.data)).not.toContain("secret\"");
    expect((await customProviders.createProvider(acme)).error).toMatchObject({ status: 400, code: "conflict" });
    const start = `${portico.url}/auth/v1/authorize?provider=custom:acme`;
    expect((await redirectTarget(start)).href).toMatch(/^https:\/\/8\.8\.8\.8\/authorize\?.*client_id=portico/);
    expect((await customProviders.updateProvider("custom:acme", { name: "Acme 2", enabled: false })).data).toMatchObject({ name: "Acme 2", enabled: false, client_id: "portico" });
    expect((await fetch(start, { redirect: "manual" })).status).toBe(400);
    expect((await customProviders.listProviders({ type: "oauth2" })).data.providers).toMatchObject([{ identifier: "custom:acme" }]);
    expect((await customProviders.listProviders({ type: "oidc" })).data.providers).toEqual([]);
    expect((await customProviders.getProvider("custom:acme")).data).toMatchObject({ name: "Acme 2" });
    expect((await customProviders.deleteProvider("custom:acme")).error).toBeNull();
    expect((await customProviders.getProvider("custom:acme")).error).toMatchObject({ status: 404, code: "custom_provider_not_found" });
  });

  test("an address inside a private network is rejected", async () => {
    const { error } = await admin.customProviders.createProvider({ ...acme, token_url: "https://10.0.0.1/token" });
    expect(error).toMatchObject({ status: 400, code: "validation_failed", message: "URL cannot resolve to private network addresses" });
  });
});
