// One-time codes and links by email: `signInWithOtp`, `verifyOtp`, `resend`.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { ageEmailsTo, sql } from "../harness/database.ts";
import { AuthEvents } from "../harness/events.ts";
import { codeIn, linkIn, emailTo, emailsTo, type Email } from "../harness/emails.ts";
import { redirectTarget, fragment, pageOptions, openPage, query } from "../harness/page.ts";
import { PASSWORD, newEmail, claims, signedUp } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

const SITE = "http://127.0.0.1:3000";
const EXPIRED_CODE = { status: 403, code: "otp_expired", message: "Token has expired or is invalid" };
const EXPIRED_LINK = { status: 403, code: "otp_expired", message: "Email link is invalid or has expired" };

const hashIn = (mail: Email): string => new URL(linkIn(mail)).searchParams.get("token")!;

describe("without confirmation", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: `[auth]\nsite_url = "${SITE}"\nadditional_redirect_urls = ["https://app.portico.test/**"]\n[auth.email]\nmax_frequency = "0s"\n` });
  });
  afterAll(() => portico.dispose());

  /** Requests an email to `email` and reads it. */
  const asked = async (email: string, client: SupabaseClient = portico.client(), options: { emailRedirectTo?: string } = {}): Promise<Email> => {
    const before = (await emailsTo(portico.status.MAILPIT_URL, email)).length;
    const { data, error } = await client.auth.signInWithOtp({ email, options });
    expect(error).toBeNull();
    expect(data).toEqual({ user: null, session: null });
    return emailTo(portico.status.MAILPIT_URL, email, before);
  };

  test("a code creates an account and signs in", async () => {
    const email = newEmail();
    const client = portico.client();
    const events = new AuthEvents(client);
    const { error } = await client.auth.signInWithOtp({ email, options: { data: { name: "Ada" } } });
    expect(error).toBeNull();
    const verified = await client.auth.verifyOtp({ email, token: codeIn(await emailTo(portico.status.MAILPIT_URL, email)), type: "email" });
    expect(verified.error).toBeNull();
    expect(verified.data.user).toMatchObject({ email, user_metadata: { name: "Ada" }, app_metadata: { provider: "email", providers: ["email"] } });
    expect(verified.data.user?.email_confirmed_at).toBeTruthy();
    expect(verified.data.session).toMatchObject({ token_type: "bearer", expires_in: 3600 });
    expect((await events.waitFor("SIGNED_IN"))?.user.email).toBe(email);
    events.end();
    expect(await claims(client)).toMatchObject({ email, aal: "aal1", amr: [{ method: "otp" }] });
  });

  test("a code works once, with any type", async () => {
    const { email, id } = await signedUp(portico);
    const token = codeIn(await asked(email));
    const { data, error } = await portico.client().auth.verifyOtp({ email, token, type: "magiclink" });
    expect(error).toBeNull();
    expect(data.user?.id).toBe(id);
    for (const type of ["email", "magiclink", "recovery", "signup", "email_change"] as const) {
      const again = await portico.client().auth.verifyOtp({ email, token, type });
      expect(again.error, type).toMatchObject(EXPIRED_CODE);
      expect(again.data.session).toBeNull();
    }
  });

  test("a code verified twice at once signs in once", async () => {
    const { email } = await signedUp(portico);
    const token = codeIn(await asked(email));
    const responses = await Promise.all(Array.from({ length: 4 }, () => portico.client().auth.verifyOtp({ email, token, type: "email" })));
    expect(responses.filter(({ error }) => error === null)).toHaveLength(1);
    for (const { error } of responses) if (error !== null) expect(error).toMatchObject(EXPIRED_CODE);
  });

  test("a wrong code, one of another account and an unknown address have the same error", async () => {
    const [{ email }, { email: other }] = [await signedUp(portico), await signedUp(portico)];
    const token = codeIn(await asked(email));
    const wrong = token === "000000" ? "000001" : "000000";
    for (const attempt of [{ email, token: wrong }, { email: other, token }, { email: newEmail(), token }]) {
      const { error } = await portico.client().auth.verifyOtp({ ...attempt, type: "email" });
      expect(error).toMatchObject(EXPIRED_CODE);
    }
    expect((await portico.client().auth.verifyOtp({ email, token, type: "email" })).error).toBeNull();
  });

  test("a newer code replaces an older one", async () => {
    const { email } = await signedUp(portico);
    const first = codeIn(await asked(email));
    const second = codeIn(await asked(email));
    if (first !== second) expect((await portico.client().auth.verifyOtp({ email, token: first, type: "email" })).error).toMatchObject(EXPIRED_CODE);
    expect((await portico.client().auth.verifyOtp({ email, token: second, type: "email" })).error).toBeNull();
  });

  test("a code, its link and its hash expire", async () => {
    const { email } = await signedUp(portico);
    const mail = await asked(email);
    await ageEmailsTo(portico.status.DB_URL, email);
    const client = portico.client();
    expect((await client.auth.verifyOtp({ email, token: codeIn(mail), type: "email" })).error).toMatchObject(EXPIRED_CODE);
    expect((await client.auth.verifyOtp({ token_hash: hashIn(mail), type: "email" })).error).toMatchObject(EXPIRED_LINK);
    expect(fragment(await redirectTarget(linkIn(mail)))).toMatchObject({ error: "access_denied", error_code: "otp_expired", error_description: "Email link is invalid or has expired" });
  });

  test("the hash of an email signs in, once, on a server that renders pages", async () => {
    const { email, id } = await signedUp(portico);
    const token_hash = hashIn(await asked(email));
    const { data, error } = await portico.client().auth.verifyOtp({ token_hash, type: "email" });
    expect(error).toBeNull();
    expect(data.user?.id).toBe(id);
    for (const type of ["email", "magiclink"] as const) {
      expect((await portico.client().auth.verifyOtp({ token_hash, type })).error).toMatchObject(EXPIRED_LINK);
    }
  });

  test("the link of an email signs in, once, at the app that was named", async () => {
    const { email, id } = await signedUp(portico);
    const client = portico.client({ auth: { ...pageOptions, flowType: "implicit" } });
    const mail = await asked(email, client, { emailRedirectTo: "https://app.portico.test/welcome?from=mail" });
    const target = await redirectTarget(linkIn(mail));
    expect(target.href.split("#")[0]).toBe("https://app.portico.test/welcome?from=mail");
    expect(fragment(target)).toMatchObject({ token_type: "bearer", expires_in: "3600", type: "magiclink" });
    const events = new AuthEvents(client);
    const { error, left } = await openPage(client, target);
    expect(error).toBeNull();
    expect(left.hash).toBe("");
    expect((await events.waitFor("SIGNED_IN"))?.user.id).toBe(id);
    events.end();

    const again = await redirectTarget(linkIn(mail));
    expect(fragment(again)).not.toHaveProperty("access_token");
    const refused = portico.client({ auth: { ...pageOptions, flowType: "implicit" } });
    const landed = await openPage(refused, again);
    expect(landed.error).toMatchObject({ message: "Email link is invalid or has expired", details: { error: "access_denied", code: "otp_expired" } });
    expect((await refused.auth.getSession()).data.session).toBeNull();
  });

  test("the link of an email gives a code to an app with a proof key", async () => {
    const { email, id } = await signedUp(portico);
    const client = portico.client({ auth: { ...pageOptions, flowType: "pkce" } });
    const mail = await asked(email, client, { emailRedirectTo: "https://app.portico.test/callback" });
    const target = await redirectTarget(linkIn(mail));
    expect(target.href).toMatch(/^https:\/\/app\.portico\.test\/callback\?code=/);
    expect(target.hash).toBe("");
    const stranger = portico.client({ auth: { flowType: "pkce" } });
    const stolen = await stranger.auth.exchangeCodeForSession(query(target)["code"]!);
    expect(stolen.error).not.toBeNull();
    const { error, left } = await openPage(client, target);
    expect(error).toBeNull();
    expect(left.href).toBe("https://app.portico.test/callback");
    expect((await client.auth.getUser()).data.user?.id).toBe(id);

    const again = await redirectTarget(linkIn(mail));
    expect(query(again)).toMatchObject({ error: "access_denied", error_code: "otp_expired" });
    expect(again.searchParams.has("code")).toBe(false);
  });

  test("a redirect target that is not allowed is not used", async () => {
    const { email } = await signedUp(portico);
    const mail = await asked(email, portico.client(), { emailRedirectTo: "https://evil.portico.test/" });
    expect((await redirectTarget(linkIn(mail))).origin).toBe(SITE);
  });

  test("an unknown address gets an error where the app allows no sign-up", async () => {
    const email = newEmail();
    const { error } = await portico.client().auth.signInWithOtp({ email, options: { shouldCreateUser: false } });
    expect(error).toMatchObject({ status: 422, code: "otp_disabled", message: "Signups not allowed for otp" });
    expect(await emailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
    expect(await sql(portico.status.DB_URL, "select 1 as one from auth.users where email = $1", [email])).toEqual([]);

    const known = await signedUp(portico);
    const allowed = await portico.client().auth.signInWithOtp({ email: known.email, options: { shouldCreateUser: false } });
    expect(allowed.error).toBeNull();
    const token = codeIn(await emailTo(portico.status.MAILPIT_URL, known.email));
    expect((await portico.client().auth.verifyOtp({ email: known.email, token, type: "email" })).error).toBeNull();
  });

  test("a malformed address and a malformed request are rejected", async () => {
    const client = portico.client();
    expect((await client.auth.signInWithOtp({ email: "not an address" })).error).toMatchObject({ status: 400, code: "validation_failed" });
    expect((await client.auth.verifyOtp({ token_hash: "unknown", type: "email" })).error).toMatchObject(EXPIRED_LINK);
    expect((await client.auth.verifyOtp({ email: newEmail(), token: "", type: "email" })).error).toMatchObject({ status: 400, code: "validation_failed" });
    // A client of another version may have a type that this server does not.
    const unknown = await client.auth.verifyOtp({ token_hash: "unknown", type: "carrier_pigeon" as "email" });
    expect(unknown.error).toMatchObject({ status: 400, code: "validation_failed" });
    const response = await fetch(`${portico.url}/auth/v1/verify?type=magiclink`, { redirect: "manual" });
    expect(response.status).toBe(400);
  });

  test("a sign-in by code keeps the password", async () => {
    const { email } = await signedUp(portico);
    await portico.client().auth.verifyOtp({ email, token: codeIn(await asked(email)), type: "email" });
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
  });
});

describe("with confirmation", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: `[auth]\nsite_url = "${SITE}"\n[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\n` });
  });
  afterAll(() => portico.dispose());

  const waiting = async (email: string): Promise<Email> => {
    const { data, error } = await portico.client().auth.signUp({ email, password: PASSWORD });
    expect(error).toBeNull();
    expect(data.session).toBeNull();
    expect(data.user).toMatchObject({ email });
    return emailTo(portico.status.MAILPIT_URL, email);
  };

  test.each(["signup", "email", "invite"] as const)("the code of a sign-up confirms it as %s, once", async (type) => {
    const email = newEmail();
    const token = codeIn(await waiting(email));
    const { data, error } = await portico.client().auth.verifyOtp({ email, token, type });
    expect(error).toBeNull();
    expect(data.user?.email_confirmed_at).toBeTruthy();
    expect((await portico.client().auth.verifyOtp({ email, token, type })).error).toMatchObject(EXPIRED_CODE);
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
  });

  test.each(["signup", "email", "invite"] as const)("the hash of a sign-up confirms it as %s, once", async (type) => {
    const email = newEmail();
    const token_hash = hashIn(await waiting(email));
    expect((await portico.client().auth.verifyOtp({ token_hash, type: "recovery" })).error).toMatchObject(EXPIRED_LINK);
    expect((await portico.client().auth.verifyOtp({ token_hash, type })).error).toBeNull();
    expect((await portico.client().auth.verifyOtp({ token_hash, type })).error).toMatchObject(EXPIRED_LINK);
  });

  test("a confirmation expires, and is sent again", async () => {
    const email = newEmail();
    const mail = await waiting(email);
    await ageEmailsTo(portico.status.DB_URL, email);
    expect((await portico.client().auth.verifyOtp({ email, token: codeIn(mail), type: "signup" })).error).toMatchObject(EXPIRED_CODE);
    const { error } = await portico.client().auth.resend({ email, type: "signup", options: { emailRedirectTo: `${SITE}/welcome` } });
    expect(error).toBeNull();
    const target = await redirectTarget(linkIn(await emailTo(portico.status.MAILPIT_URL, email, 1)));
    expect(target.pathname).toBe("/welcome");
    expect(fragment(target)).toMatchObject({ type: "signup" });
    expect(fragment(target)["access_token"]).toBeTruthy();
  });

  test("nothing is resent to an unknown or confirmed address, and the response is the same", async () => {
    const confirmed = newEmail();
    await portico.client().auth.verifyOtp({ email: confirmed, token: codeIn(await waiting(confirmed)), type: "signup" });
    for (const email of [confirmed, newEmail()]) {
      const { data, error } = await portico.client().auth.resend({ email, type: "signup" });
      expect(error).toBeNull();
      expect(data).toMatchObject({ user: null, session: null });
    }
    expect(await emailsTo(portico.status.MAILPIT_URL, confirmed)).toHaveLength(1);
  });

  test("a code signs up a new account with a confirmation email", async () => {
    const email = newEmail();
    const client = portico.client();
    expect((await client.auth.signInWithOtp({ email })).error).toBeNull();
    const { data, error } = await client.auth.verifyOtp({ email, token: codeIn(await emailTo(portico.status.MAILPIT_URL, email)), type: "email" });
    expect(error).toBeNull();
    expect(data.user?.email_confirmed_at).toBeTruthy();
    // The second email is for a sign-in.
    expect((await portico.client().auth.signInWithOtp({ email })).error).toBeNull();
    const mail = await emailTo(portico.status.MAILPIT_URL, email, 1);
    expect(fragment(await redirectTarget(linkIn(mail)))).toMatchObject({ type: "magiclink" });
  });
});
