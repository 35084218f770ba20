// Servers with sign-up or some sign-in methods disabled.
import { isAuthWeakPasswordError } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { googleTokens, signInAtGoogle } from "../harness/google.ts";
import { emailsTo } from "../harness/emails.ts";
import { query } from "../harness/page.ts";
import { PASSWORD, newEmail } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

describe("with sign-up disabled", () => {
  const CLOSED = { status: 422, code: "signup_disabled", message: "Signups not allowed for this instance" };
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth]\nsite_url = "http://127.0.0.1:3000"\nenable_signup = false\nenable_anonymous_sign_ins = true\n' });
  });
  afterAll(() => portico.dispose());

  test("every kind of sign-up is rejected, and stores nothing", async () => {
    const client = portico.client({ auth: { flowType: "pkce" } });
    const email = newEmail();
    expect((await client.auth.signUp({ email, password: PASSWORD })).error).toMatchObject(CLOSED);
    expect((await client.auth.signInWithOtp({ email })).error).toMatchObject(CLOSED);
    expect((await client.auth.signInAnonymously()).error).toMatchObject(CLOSED);
    const { id_token: token } = await googleTokens(portico.url, { name: "Ada", email });
    expect((await client.auth.signInWithIdToken({ provider: "google", token })).error).toMatchObject(CLOSED);
    const { data } = await client.auth.signInWithOAuth({ provider: "google", options: { skipBrowserRedirect: true } });
    const back = await signInAtGoogle(data.url!, { name: "Ada", email });
    expect(query(back)).toMatchObject({ error: "access_denied", error_code: "signup_disabled", error_description: CLOSED.message });
    expect(await emailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
    expect(await sql(portico.status.DB_URL, "select id from auth.users")).toEqual([]);
    expect(await sql(portico.status.DB_URL, "select id from auth.identities")).toEqual([]);
  });
});

describe("with password rules", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth]\nminimum_password_length = 10\npassword_requirements = "lower_upper_letters_digits"\n' });
  });
  afterAll(() => portico.dispose());

  test.each([
    ["Short1", ["length"]],
    ["long enough but plain", ["characters"]],
    ["plain", ["length", "characters"]],
  ])("the password %j is refused with its reasons", async (password, reasons) => {
    const email = newEmail();
    const { data, error } = await portico.client().auth.signUp({ email, password });
    expect(isAuthWeakPasswordError(error)).toBe(true);
    expect(error).toMatchObject({ status: 422, code: "weak_password", reasons });
    expect(data).toEqual({ user: null, session: null });
  });

  test("a valid password is accepted; one that bcrypt would truncate is rejected", async () => {
    const email = newEmail();
    expect((await portico.client().auth.signUp({ email, password: "Long enough 1" })).error).toBeNull();
    expect((await portico.client().auth.signUp({ email: newEmail(), password: `Aa1${"x".repeat(100)}` })).error).toMatchObject({ status: 400, code: "validation_failed", message: expect.stringContaining("72") as string });
  });
});

describe("with email sign-in disabled", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: "[auth.email]\nenable_signup = false\n" });
  });
  afterAll(() => portico.dispose());

  test("passwords and codes are rejected", async () => {
    const client = portico.client();
    const off = { status: 422, code: "email_provider_disabled" };
    expect((await client.auth.signUp({ email: newEmail(), password: PASSWORD })).error).toMatchObject({ code: off.code });
    expect((await client.auth.signInWithPassword({ email: newEmail(), password: PASSWORD })).error).toMatchObject(off);
    expect((await client.auth.signInWithOtp({ email: newEmail() })).error).toMatchObject(off);
    expect((await client.auth.resetPasswordForEmail(newEmail())).error).toMatchObject({ code: off.code });
  });
});
