// The two-step calls of passkeys (`auth.passkey`) and their administration, with an authenticator
// in software.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, expect, test } from "vitest";

import { claims, signedUp } from "../harness/accounts.ts";
import { SoftwareAuthenticator } from "../harness/authenticator.ts";
import { Portico } from "../harness/portico.ts";

const config = "[auth.passkey]\nenabled = true\n[auth.mfa.web_authn]\nenroll_enabled = true\nverify_enabled = true\n";
const options = { auth: { experimental: { passkey: true } } };
const ORIGIN = "http://localhost:3000";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config });
});
afterAll(() => portico.dispose());

/** Registers a passkey of the client's account by the two calls. */
async function register(client: SupabaseClient, authenticator: SoftwareAuthenticator): Promise<string> {
  const begun = await client.auth.passkey.startRegistration();
  expect(begun.error).toBeNull();
  const credential = authenticator.create(begun.data!.options);
  const registered = await client.auth.passkey.verifyRegistration({ challengeId: begun.data!.challenge_id, credential });
  expect(registered.error).toBeNull();
  expect(registered.data).toMatchObject({ friendly_name: "Passkey" });
  return registered.data!.id;
}

/** Signs in by the two calls. */
async function signIn(client: SupabaseClient, authenticator: SoftwareAuthenticator): Promise<Awaited<ReturnType<SupabaseClient["auth"]["passkey"]["verifyAuthentication"]>>> {
  const begun = await client.auth.passkey.startAuthentication();
  expect(begun.error).toBeNull();
  return client.auth.passkey.verifyAuthentication({ challengeId: begun.data!.challenge_id, credential: authenticator.get(begun.data!.options) });
}

test("a passkey is registered, signs in, is named, and is deleted", async () => {
  const { client, id } = await signedUp(portico, options);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  const passkeyId = await register(client, authenticator);

  const visitor = portico.client(options);
  const events: string[] = [];
  visitor.auth.onAuthStateChange((event) => void events.push(event));
  const signedIn = await signIn(visitor, authenticator);
  expect(signedIn.error).toBeNull();
  expect(signedIn.data?.user?.id).toBe(id);
  expect(events).toContain("SIGNED_IN");
  expect(await claims(visitor)).toMatchObject({ sub: id, aal: "aal1", amr: [{ method: "passkey" }] });
  expect((await visitor.auth.refreshSession()).error).toBeNull();

  const renamed = await visitor.auth.passkey.update({ passkeyId, friendlyName: "Blue key" });
  expect(renamed.data).toMatchObject({ id: passkeyId, friendly_name: "Blue key" });
  const { data: passkeys } = await visitor.auth.passkey.list();
  expect(passkeys).toMatchObject([{ id: passkeyId, friendly_name: "Blue key" }]);
  expect(passkeys?.[0]?.last_used_at).toBeTypeOf("string");
  expect(await visitor.auth.passkey.delete({ passkeyId })).toEqual({ data: null, error: null });
  expect((await signIn(portico.client(options), authenticator)).error).toMatchObject({ status: 400, code: "webauthn_verification_failed" });
});

test("an answer is accepted once, from its own page, and by the key of the account", async () => {
  const { client } = await signedUp(portico, options);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  await register(client, authenticator);
  const visitor = portico.client(options);
  const { data: begun } = await visitor.auth.passkey.startAuthentication();
  const answer = { challengeId: begun!.challenge_id, credential: authenticator.get(begun!.options) };
  expect((await visitor.auth.passkey.verifyAuthentication(answer)).error).toBeNull();
  expect((await visitor.auth.passkey.verifyAuthentication(answer)).error).toMatchObject({ status: 400, code: "webauthn_challenge_not_found" });

  const elsewhere = new SoftwareAuthenticator("https://evil.example");
  const { data: registration } = await client.auth.passkey.startRegistration();
  const foreign = { challengeId: registration!.challenge_id, credential: elsewhere.create(registration!.options) };
  expect((await client.auth.passkey.verifyRegistration(foreign)).error).toMatchObject({ status: 400, code: "webauthn_verification_failed" });
  expect((await signIn(visitor, elsewhere)).error).toMatchObject({ status: 400, code: "webauthn_verification_failed" });
  expect((await client.auth.passkey.list()).data).toHaveLength(1);
});

test("an administrator lists and deletes the passkeys of an account", async () => {
  const { client, id: userId } = await signedUp(portico, options);
  const passkeyId = await register(client, new SoftwareAuthenticator(ORIGIN));
  const admin = portico.client(options, portico.status.SECRET_KEY).auth.admin;
  expect((await admin.passkey.listPasskeys({ userId })).data).toMatchObject([{ id: passkeyId }]);
  expect(await admin.passkey.deletePasskey({ userId, passkeyId })).toEqual({ data: null, error: null });
  expect((await client.auth.passkey.list()).data).toEqual([]);
  expect((await client.auth.admin.passkey.listPasskeys({ userId })).error).toMatchObject({ status: 403, code: "not_admin" });
});

test("a security key is enrolled without a browser, and listed once it is proved", async () => {
  const { client } = await signedUp(portico, options);
  const { data, error } = await client.auth.mfa.webauthn.enroll({ friendlyName: "Blue key" });
  expect(error).toBeNull();
  const { data: factors } = await client.auth.mfa.listFactors();
  expect(factors).toMatchObject({ webauthn: [], all: [{ id: data!.id, factor_type: "webauthn", status: "unverified" }] });
  expect((await client.auth.mfa.unenroll({ factorId: data!.id })).error).toBeNull();
});
