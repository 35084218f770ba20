// Anonymous accounts: `signInAnonymously`, and how they become permanent.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { signInAtGoogle } from "../harness/google.ts";
import { codeIn, linkIn, emailTo } from "../harness/emails.ts";
import { redirectTarget, fragment, pageOptions, openPage } from "../harness/page.ts";
import { PASSWORD, newEmail, claims, signedUp } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

const ALLOWED = '[auth]\nsite_url = "http://127.0.0.1:3000"\nenable_anonymous_sign_ins = true\nenable_manual_linking = true\n';

async function anonymousAccount(portico: Portico, options: Parameters<Portico["client"]>[0] = {}): Promise<{ client: SupabaseClient; id: string }> {
  const client = portico.client(options);
  const { data, error } = await client.auth.signInAnonymously();
  expect(error).toBeNull();
  return { client, id: data.user!.id };
}

describe("with confirmation", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: `${ALLOWED}[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\n` });
  });
  afterAll(() => portico.dispose());

  test("an anonymous account is a full account", async () => {
    const client = portico.client();
    const { data, error } = await client.auth.signInAnonymously({ options: { data: { theme: "dark" } } });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ is_anonymous: true, role: "authenticated", aud: "authenticated", email: "", user_metadata: { theme: "dark" }, identities: [] });
    expect(data.user?.app_metadata).toEqual({});
    expect(data.session?.access_token).toBeTruthy();
    expect(await claims(client)).toMatchObject({ is_anonymous: true, role: "authenticated", sub: data.user?.id, amr: [{ method: "anonymous" }] });
    expect((await client.auth.refreshSession()).data.user?.id).toBe(data.user?.id);
    expect((await client.auth.updateUser({ data: { theme: "light" } })).data.user?.user_metadata).toMatchObject({ theme: "light" });
    const other = await anonymousAccount(portico);
    expect(other.id).not.toBe(data.user?.id);
  });

  test("an address makes it permanent once it is confirmed; a password follows", async () => {
    const { client, id } = await anonymousAccount(portico);
    const email = newEmail();
    expect((await client.auth.updateUser({ password: PASSWORD })).error).toMatchObject({ status: 422, code: "validation_failed", message: "Updating password of an anonymous user without an email or phone is not allowed" });
    const asked = await client.auth.updateUser({ email });
    expect(asked.error).toBeNull();
    expect(asked.data.user).toMatchObject({ is_anonymous: true, new_email: email });
    const verified = await client.auth.verifyOtp({ email, token: codeIn(await emailTo(portico.status.MAILPIT_URL, email)), type: "email_change" });
    expect(verified.error).toBeNull();
    expect(verified.data.user).toMatchObject({ id, email, is_anonymous: false, app_metadata: { provider: "email", providers: ["email"] } });
    expect((await claims(client))["is_anonymous"]).toBe(false);
    expect((await client.auth.updateUser({ password: PASSWORD })).error).toBeNull();
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).data.user?.id).toBe(id);
  });

  test("the link of the email makes it permanent", async () => {
    const { client, id } = await anonymousAccount(portico, { auth: { ...pageOptions, flowType: "implicit" } });
    const email = newEmail();
    await client.auth.updateUser({ email });
    const target = await redirectTarget(linkIn(await emailTo(portico.status.MAILPIT_URL, email)));
    expect(fragment(target)).toMatchObject({ type: "email_change" });
    expect((await openPage(client, target)).error).toBeNull();
    expect((await client.auth.getUser()).data.user).toMatchObject({ id, email, is_anonymous: false });
  });

  test("an identity of a provider makes it permanent", async () => {
    const { client, id } = await anonymousAccount(portico, { auth: { flowType: "pkce" } });
    const email = newEmail();
    const { data, error } = await client.auth.linkIdentity({ provider: "google", options: { skipBrowserRedirect: true } });
    expect(error).toBeNull();
    const back = await signInAtGoogle(data.url!, { name: "Ada Example", email });
    const exchanged = await client.auth.exchangeCodeForSession(back.searchParams.get("code")!);
    expect(exchanged.error).toBeNull();
    expect(exchanged.data.user).toMatchObject({ id, email, is_anonymous: false, app_metadata: { provider: "google", providers: ["google"] } });
    expect((await claims(client))["is_anonymous"]).toBe(false);
  });

  test("the address of another account cannot be taken", async () => {
    const other = newEmail();
    await portico.client().auth.signUp({ email: other, password: PASSWORD });
    await portico.client().auth.verifyOtp({ email: other, token: codeIn(await emailTo(portico.status.MAILPIT_URL, other)), type: "signup" });
    const { client, id } = await anonymousAccount(portico, { auth: { flowType: "pkce" } });
    expect((await client.auth.updateUser({ email: other })).error).toMatchObject({ status: 422, code: "email_exists" });
    const { data } = await client.auth.linkIdentity({ provider: "google", options: { skipBrowserRedirect: true } });
    const back = await signInAtGoogle(data.url!, { name: "Ada Example", email: other });
    expect(back.searchParams.get("code")).toBeNull();
    expect(back.searchParams.get("error_code")).toBe("email_exists");
    expect((await client.auth.getUser()).data.user).toMatchObject({ id, is_anonymous: true, identities: [] });
  });
});

describe("without confirmation", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: ALLOWED });
  });
  afterAll(() => portico.dispose());

  test("an address and a password make it permanent at once", async () => {
    const { client, id } = await anonymousAccount(portico);
    const email = newEmail();
    const { data, error } = await client.auth.updateUser({ email, password: PASSWORD });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ id, email, is_anonymous: false });
    expect((await client.auth.refreshSession()).error).toBeNull();
    expect((await claims(client))["is_anonymous"]).toBe(false);
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).data.user?.id).toBe(id);
  });

  test("signing out abandons it", async () => {
    const { client, id } = await anonymousAccount(portico);
    expect((await client.auth.signOut()).error).toBeNull();
    expect((await anonymousAccount(portico)).id).not.toBe(id);
    const { id: named } = await signedUp(portico);
    expect(named).not.toBe(id);
  });
});
