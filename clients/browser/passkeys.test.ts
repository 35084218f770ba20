// Passkeys and security keys in Chromium with its virtual authenticator, by the official client in
// a page of the program.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

import type { createClient } from "@supabase/supabase-js";
import type { CDPSession, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";

import { password, serveApplicationPage, startSite, type ApplicationPage } from "./harness.ts";

// No more than the switches: the relying party of development needs no configuration.
const config = `
[auth.passkey]
enabled = true
[auth.mfa.web_authn]
enroll_enabled = true
verify_enabled = true
`;
const anyText = expect.any(String) as string;

const site = startSite({ config });
let clientSource: string;
/** The page of an app at another port of this machine. */
let app: ApplicationPage;

beforeAll(async () => {
  const folder = createRequire(import.meta.url).resolve("@supabase/supabase-js");
  clientSource = await readFile(new URL("umd/supabase.js", `file://${folder}`), "utf8");
  app = await serveApplicationPage();
});
afterAll(() => {
  app.close();
});

type OfficialClient = ReturnType<typeof createClient>;

declare global {
  interface Window {
    client: OfficialClient;
  }
}

interface Opened {
  page: Page;
  devtools: CDPSession;
  authenticator: string;
}

/** Opens a page with the official client and an authenticator. */
async function open(origin: string, transport: "internal" | "usb" = "internal", isUserVerified = true): Promise<Opened> {
  const page = await site.context.newPage();
  const devtools = await site.context.newCDPSession(page);
  await devtools.send("WebAuthn.enable");
  const { authenticatorId } = await devtools.send("WebAuthn.addVirtualAuthenticator", {
    options: { protocol: "ctap2", transport, hasResidentKey: true, hasUserVerification: true, isUserVerified, automaticPresenceSimulation: true },
  });
  await load(page, origin);
  return { page, devtools, authenticator: authenticatorId };
}

async function load(page: Page, origin: string): Promise<void> {
  await page.goto(origin);
  // By evaluation: the page's content security policy blocks a script element.
  await page.evaluate(clientSource);
  const api = new URL(site.portico.url);
  api.hostname = new URL(origin).hostname;
  await page.evaluate(
    ([url, key]) => {
      const { supabase } = window as unknown as { supabase: { createClient: typeof createClient } };
      window.client = supabase.createClient(url, key, { auth: { experimental: { passkey: true }, storageKey: "test", autoRefreshToken: false } });
    },
    [api.origin, site.portico.status.PUBLISHABLE_KEY] as const,
  );
}

const named = (name: string): string => {
  const url = new URL(site.portico.url);
  url.hostname = name;
  return url.origin;
};

let count = 0;
/** Creates an account that is signed in. Returns its address. */
async function signUp(page: Page): Promise<string> {
  const email = `owner-${++count}@portico.test`;
  const error = await page.evaluate(async ([email, password]) => (await window.client.auth.signUp({ email, password })).error, [email, password] as const);
  expect(error).toBeNull();
  return email;
}

test("a passkey is added, signs in without a name, is renamed and deleted", async () => {
  const { page, devtools, authenticator } = await open(named("localhost"));
  const email = await signUp(page);
  const added = await page.evaluate(() => window.client.auth.registerPasskey());
  expect(added.error).toBeNull();
  expect(added.data).toMatchObject({ id: anyText, friendly_name: anyText, created_at: anyText });
  const { credentials } = await devtools.send("WebAuthn.getCredentials", { authenticatorId: authenticator });
  expect(credentials).toMatchObject([{ isResidentCredential: true, rpId: "localhost" }]);

  await page.evaluate(() => window.client.auth.signOut());
  const events = await page.evaluate(async () => {
    const events: string[] = [];
    window.client.auth.onAuthStateChange((event) => events.push(event));
    const { data, error } = await window.client.auth.signInWithPasskey();
    return { events, error, email: data?.user?.email, session: (await window.client.auth.getSession()).data.session };
  });
  expect(events.error).toBeNull();
  expect(events.email).toBe(email);
  expect(events.events).toContain("SIGNED_IN");
  const claims = JSON.parse(Buffer.from(events.session?.access_token.split(".")[1] ?? "", "base64url").toString()) as Record<string, unknown>;
  expect(claims).toMatchObject({ aal: "aal1", amr: [{ method: "passkey" }] });

  const listed = await page.evaluate(() => window.client.auth.passkey.list());
  expect(listed.data).toMatchObject([{ id: added.data?.id, last_used_at: anyText }]);
  const id = listed.data?.[0]?.id ?? "";
  const renamed = await page.evaluate((passkeyId) => window.client.auth.passkey.update({ passkeyId, friendlyName: "Blue key" }), id);
  expect(renamed.data).toMatchObject({ id, friendly_name: "Blue key" });

  // The authenticator has a key for this account already.
  const again = await page.evaluate(async () => (await window.client.auth.registerPasskey()).error?.name);
  expect(again).toBeDefined();

  const admin = site.portico.client({ auth: { experimental: { passkey: true } } }, site.portico.status.SECRET_KEY).auth.admin;
  const userId = events.session?.user.id ?? "";
  const byAdmin = await admin.passkey.listPasskeys({ userId });
  expect(byAdmin.error).toBeNull();
  expect(byAdmin.data).toMatchObject([{ id, friendly_name: "Blue key" }]);

  expect(await page.evaluate((passkeyId) => window.client.auth.passkey.delete({ passkeyId }), id)).toEqual({ data: null, error: null });
  expect((await page.evaluate(() => window.client.auth.passkey.list())).data).toEqual([]);
  expect((await admin.passkey.deletePasskey({ userId, passkeyId: id })).error).toMatchObject({ status: 404, code: "validation_failed" });
  await page.evaluate(() => window.client.auth.signOut());
  // An error loses its code on the way out of the page.
  const gone = await page.evaluate(async () => (await window.client.auth.signInWithPasskey()).error?.code);
  expect(gone).toBe("webauthn_verification_failed");
});

test("an administrator deletes a passkey", async () => {
  const { page } = await open(named("localhost"));
  await signUp(page);
  const passkeyId = (await page.evaluate(() => window.client.auth.registerPasskey())).data?.id ?? "";
  const userId = (await page.evaluate(() => window.client.auth.getUser())).data.user?.id ?? "";
  const admin = site.portico.client({ auth: { experimental: { passkey: true } } }, site.portico.status.SECRET_KEY).auth.admin;
  expect((await admin.passkey.deletePasskey({ userId, passkeyId })).error).toBeNull();
  expect((await page.evaluate(() => window.client.auth.passkey.list())).data).toEqual([]);
});

test("an app at another port of localhost adds and uses passkeys", async () => {
  const { page } = await open(`http://localhost:${new URL(app.origin).port}`);
  const email = await signUp(page);
  expect((await page.evaluate(() => window.client.auth.registerPasskey())).error).toBeNull();
  await page.evaluate(() => window.client.auth.signOut());
  const signedIn = await page.evaluate(async () => (await window.client.auth.signInWithPasskey()).data?.user?.email);
  expect(signedIn).toBe(email);
});

test("browsers reject passkeys at an address without a name, as the server says at its start", async () => {
  const { page } = await open(named("127.0.0.1"));
  await signUp(page);
  const code = await page.evaluate(async () => ((await window.client.auth.registerPasskey()).error as unknown as { code: string }).code);
  expect(code).toBe("ERROR_INVALID_DOMAIN");
  expect(site.portico.log).toContain(`http://localhost:${new URL(site.portico.url).port}`);
});

test("a security key is a second factor", async () => {
  const { page } = await open(named("localhost"), "usb");
  const email = await signUp(page);
  const registered = await page.evaluate(async () => (await window.client.auth.mfa.webauthn.register({ friendlyName: "Blue key" })).error);
  expect(registered).toBeNull();
  const level = (): Promise<unknown> => page.evaluate(async () => (await window.client.auth.mfa.getAuthenticatorAssuranceLevel()).data);
  expect(await level()).toMatchObject({ currentLevel: "aal2", nextLevel: "aal2" });

  await page.evaluate(() => window.client.auth.signOut());
  await page.evaluate(([email, password]) => window.client.auth.signInWithPassword({ email, password }), [email, password] as const);
  expect(await level()).toMatchObject({ currentLevel: "aal1", nextLevel: "aal2" });
  const proved = await page.evaluate(async () => {
    const { data } = await window.client.auth.mfa.listFactors();
    const factor = data?.webauthn[0];
    const { error } = await window.client.auth.mfa.webauthn.authenticate({ factorId: factor?.id ?? "" });
    return { name: factor?.friendly_name, error };
  });
  expect(proved).toEqual({ name: "Blue key", error: null });
  expect(await level()).toMatchObject({ currentLevel: "aal2", currentAuthenticationMethods: expect.arrayContaining([expect.objectContaining({ method: "mfa/webauthn" })]) as unknown });

  // Passkeys are managed with the second factor.
  await page.evaluate(() => window.client.auth.signOut());
  await page.evaluate(([email, password]) => window.client.auth.signInWithPassword({ email, password }), [email, password] as const);
  const added = await page.evaluate(async () => (await window.client.auth.registerPasskey()).error?.code);
  expect(added).toBe("insufficient_aal");
});
