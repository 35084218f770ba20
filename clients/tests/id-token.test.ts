// `signInWithIdToken`, with an id_token from the provider's own library.
import { afterAll, beforeAll, expect, test } from "vitest";

import { AuthEvents } from "../harness/events.ts";
import { googleTokens } from "../harness/google.ts";
import { newEmail, claims, signedUp } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start();
});
afterAll(() => portico.dispose());

const NONCE = "a nonce that the app made";

test("with a nonce it creates an account and signs in", async () => {
  const visitor = { name: "Ada Example", email: newEmail() };
  const { id_token: token, access_token } = await googleTokens(portico.url, visitor, NONCE);
  const client = portico.client();
  const events = new AuthEvents(client);
  const { data, error } = await client.auth.signInWithIdToken({ provider: "google", token, access_token, nonce: NONCE });
  expect(error).toBeNull();
  expect(data.user).toMatchObject({ email: visitor.email, app_metadata: { provider: "google", providers: ["google"] }, user_metadata: { full_name: "Ada Example", email_verified: true } });
  expect(data.user?.identities).toHaveLength(1);
  expect((await events.waitFor("SIGNED_IN"))?.user.id).toBe(data.user?.id);
  events.end();
  expect(await claims(client)).toMatchObject({ sub: data.user?.id, amr: [{ method: "oauth" }] });
  expect((await client.auth.refreshSession()).error).toBeNull();

  const later = await googleTokens(portico.url, visitor, "another nonce");
  const again = await portico.client().auth.signInWithIdToken({ provider: "google", token: later.id_token, nonce: "another nonce" });
  expect(again.data.user?.id).toBe(data.user?.id);
});

test("without a nonce on either side it signs in", async () => {
  const { id_token: token } = await googleTokens(portico.url, { name: "Ada", email: newEmail() });
  expect((await portico.client().auth.signInWithIdToken({ provider: "google", token })).error).toBeNull();
});

test("the nonce must be the one that the token carries", async () => {
  const visitor = { name: "Ada", email: newEmail() };
  const { id_token: token } = await googleTokens(portico.url, visitor, NONCE);
  const client = portico.client();
  const other = await client.auth.signInWithIdToken({ provider: "google", token, nonce: "a stranger's" });
  expect(other.error).toMatchObject({ status: 400, message: "Nonces mismatch" });
  const both = { status: 400, message: "Passed nonce and nonce in id_token should either both exist or not." };
  expect((await client.auth.signInWithIdToken({ provider: "google", token })).error).toMatchObject(both);
  const { id_token: bare } = await googleTokens(portico.url, visitor);
  expect((await client.auth.signInWithIdToken({ provider: "google", token: bare, nonce: NONCE })).error).toMatchObject(both);
  expect((await client.auth.getSession()).data.session).toBeNull();
});

test("a token that the provider did not sign is rejected", async () => {
  const { id_token: token } = await googleTokens(portico.url, { name: "Ada", email: newEmail() });
  const [header, , signature] = token.split(".");
  const payload = Buffer.from(JSON.stringify({ ...(JSON.parse(Buffer.from(token.split(".")[1]!, "base64url").toString()) as object), email: "owner@portico.test", sub: "1" })).toString("base64url");
  const none = Buffer.from(JSON.stringify({ alg: "none", typ: "JWT" })).toString("base64url");
  const { client: person } = await signedUp(portico);
  const { access_token: own } = (await person.auth.getSession()).data.session!;
  for (const forged of [`${header!}.${payload}.${signature!}`, `${none}.${payload}.`, own, "not.a.token", "nonsense"]) {
    const { data, error } = await portico.client().auth.signInWithIdToken({ provider: "google", token: forged });
    expect(error).toMatchObject({ status: 400, message: "Bad ID token" });
    expect(data).toEqual({ user: null, session: null });
  }
});

test("the access token must belong to the id_token", async () => {
  const [mine, other] = [await googleTokens(portico.url, { name: "Ada", email: newEmail() }), await googleTokens(portico.url, { name: "Eve", email: newEmail() })];
  const { error } = await portico.client().auth.signInWithIdToken({ provider: "google", token: mine.id_token, access_token: other.access_token });
  expect(error).toMatchObject({ status: 400, message: "Bad ID token" });
});

test("a disabled provider, an unknown one and a missing token are rejected", async () => {
  const { id_token: token } = await googleTokens(portico.url, { name: "Ada", email: newEmail() });
  const client = portico.client();
  expect((await client.auth.signInWithIdToken({ provider: "apple", token })).error).toMatchObject({ status: 400 });
  expect((await client.auth.signInWithIdToken({ provider: "kakao", token })).error).toMatchObject({ status: 400, code: "provider_disabled" });
  expect((await client.auth.signInWithIdToken({ provider: "carrier-pigeon", token })).error).toMatchObject({ status: 400, code: "validation_failed" });
  expect((await client.auth.signInWithIdToken({ provider: "google", token: "" })).error).toMatchObject({ status: 400, message: "id_token required" });
});
