// A password change that requires a code: `reauthenticate` and `updateUser({ password, nonce })`.
import { afterAll, beforeAll, expect, test } from "vitest";

import { ageEmailsTo, ageSessionsOf } from "../harness/database.ts";
import { codeIn, emailTo, emailsTo } from "../harness/emails.ts";
import { PASSWORD, signedUp } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

const NEW = "an entirely new one";
const INVALID = { status: 422, code: "reauthentication_not_valid", message: "Nonce has expired or is invalid" };

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: '[auth.email]\nsecure_password_change = true\nmax_frequency = "0s"\n' });
});
afterAll(() => portico.dispose());

test("a recent sign-in needs no code", async () => {
  const { email, client } = await signedUp(portico);
  expect((await client.auth.updateUser({ password: NEW })).error).toBeNull();
  expect((await portico.client().auth.signInWithPassword({ email, password: NEW })).error).toBeNull();
});

test("an old sign-in needs the code of an email, which works once", async () => {
  const { email, client } = await signedUp(portico);
  await ageSessionsOf(portico.status.DB_URL, email);
  const needed = await client.auth.updateUser({ password: NEW });
  expect(needed.error).toMatchObject({ status: 400, code: "reauthentication_needed", message: "Password update requires reauthentication" });

  const { data, error } = await client.auth.reauthenticate();
  expect(error).toBeNull();
  expect(data).toEqual({ user: null, session: null });
  const nonce = codeIn(await emailTo(portico.status.MAILPIT_URL, email));
  const wrong = await client.auth.updateUser({ password: NEW, nonce: nonce === "000000" ? "000001" : "000000" });
  expect(wrong.error).toMatchObject(INVALID);
  expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();

  expect((await client.auth.updateUser({ password: NEW, nonce })).error).toBeNull();
  expect((await portico.client().auth.signInWithPassword({ email, password: NEW })).error).toBeNull();
  expect((await client.auth.updateUser({ password: "yet another one", nonce })).error).toMatchObject(INVALID);
});

test("the code expires, belongs to its account, and does not sign in", async () => {
  const [{ email, client }, other] = [await signedUp(portico), await signedUp(portico)];
  await ageSessionsOf(portico.status.DB_URL, email);
  await ageSessionsOf(portico.status.DB_URL, other.email);
  await client.auth.reauthenticate();
  const nonce = codeIn(await emailTo(portico.status.MAILPIT_URL, email));
  expect((await other.client.auth.updateUser({ password: NEW, nonce })).error).toMatchObject(INVALID);
  for (const type of ["email", "magiclink", "recovery", "signup", "email_change"] as const) {
    expect((await portico.client().auth.verifyOtp({ email, token: nonce, type })).error, type).toMatchObject({ status: 403, code: "otp_expired" });
  }
  await ageEmailsTo(portico.status.DB_URL, email);
  expect((await client.auth.updateUser({ password: NEW, nonce })).error).toMatchObject(INVALID);
});

test("a code is not sent without a session", async () => {
  const { data, error } = await portico.client().auth.reauthenticate();
  expect(error).toMatchObject({ name: "AuthSessionMissingError" });
  expect(data).toEqual({ user: null, session: null });
  const { email, client } = await signedUp(portico);
  expect(await emailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
  // Other changes need no code, however old the session is.
  await ageSessionsOf(portico.status.DB_URL, email);
  expect((await client.auth.updateUser({ data: { name: "Ada" } })).error).toBeNull();
});
