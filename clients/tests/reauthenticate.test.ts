// A password change that must be confirmed by a code: `reauthenticate` and `updateUser({ password, nonce })`.
import { afterAll, beforeAll, expect, test } from "vitest";

import { ageMailsTo, ageSessionsOf } from "../harness/database.ts";
import { codeIn, mailTo, mailsTo } from "../harness/mail.ts";
import { PASSWORD, signedUp } from "../harness/people.ts";
import { Portico } from "../harness/portico.ts";

const NEW = "an entirely new one";
const INVALID = { status: 422, code: "reauthentication_not_valid", message: "Nonce has expired or is invalid" };

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: '[auth.email]\nsecure_password_change = true\nmax_frequency = "0s"\n' });
});
afterAll(() => portico.dispose());

test("who signed in just now needs no code", async () => {
  const { email, client } = await signedUp(portico);
  expect((await client.auth.updateUser({ password: NEW })).error).toBeNull();
  expect((await portico.client().auth.signInWithPassword({ email, password: NEW })).error).toBeNull();
});

test("who signed in long ago needs the code of a mail, which works once", async () => {
  const { email, client } = await signedUp(portico);
  await ageSessionsOf(portico.status.DB_URL, email);
  const needed = await client.auth.updateUser({ password: NEW });
  expect(needed.error).toMatchObject({ status: 400, code: "reauthentication_needed", message: "Password update requires reauthentication" });

  const { data, error } = await client.auth.reauthenticate();
  expect(error).toBeNull();
  expect(data).toEqual({ user: null, session: null });
  const nonce = codeIn(await mailTo(portico.status.MAILPIT_URL, email));
  const wrong = await client.auth.updateUser({ password: NEW, nonce: nonce === "000000" ? "000001" : "000000" });
  expect(wrong.error).toMatchObject(INVALID);
  expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();

  expect((await client.auth.updateUser({ password: NEW, nonce })).error).toBeNull();
  expect((await portico.client().auth.signInWithPassword({ email, password: NEW })).error).toBeNull();
  expect((await client.auth.updateUser({ password: "yet another one", nonce })).error).toMatchObject(INVALID);
});

test("the code expires, is for its owner, and signs nobody in", async () => {
  const [{ email, client }, other] = [await signedUp(portico), await signedUp(portico)];
  await ageSessionsOf(portico.status.DB_URL, email);
  await ageSessionsOf(portico.status.DB_URL, other.email);
  await client.auth.reauthenticate();
  const nonce = codeIn(await mailTo(portico.status.MAILPIT_URL, email));
  expect((await other.client.auth.updateUser({ password: NEW, nonce })).error).toMatchObject(INVALID);
  for (const type of ["email", "magiclink", "recovery", "signup", "email_change"] as const) {
    expect((await portico.client().auth.verifyOtp({ email, token: nonce, type })).error, type).toMatchObject({ status: 403, code: "otp_expired" });
  }
  await ageMailsTo(portico.status.DB_URL, email);
  expect((await client.auth.updateUser({ password: NEW, nonce })).error).toMatchObject(INVALID);
});

test("nobody without a session is sent a code", async () => {
  const { data, error } = await portico.client().auth.reauthenticate();
  expect(error).toMatchObject({ name: "AuthSessionMissingError" });
  expect(data).toEqual({ user: null, session: null });
  const { email, client } = await signedUp(portico);
  expect(await mailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
  // Other changes need no code, however old the session is.
  await ageSessionsOf(portico.status.DB_URL, email);
  expect((await client.auth.updateUser({ data: { name: "Ada" } })).error).toBeNull();
});
