// A forgotten password: `resetPasswordForEmail`, the event that the app hears, and the new password.
import { isAuthWeakPasswordError } from "@supabase/supabase-js";
import { afterAll, beforeAll, expect, test } from "vitest";

import { ageMailsTo } from "../harness/database.ts";
import { Events } from "../harness/events.ts";
import { codeIn, linkIn, mailTo, mailsTo } from "../harness/mail.ts";
import { follow, fragment, onPage, open } from "../harness/page.ts";
import { PASSWORD, address, signedUp } from "../harness/people.ts";
import { Portico } from "../harness/portico.ts";

const NEW = "an entirely new one";
const RESET = "http://127.0.0.1:3000/update-password";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: '[auth]\nsite_url = "http://127.0.0.1:3000"\n[auth.email]\nmax_frequency = "0s"\n[auth.email.notification.password_changed]\nenabled = true\n' });
});
afterAll(() => portico.dispose());

test("the code leads to a new password", async () => {
  const { email, id, client: signedIn } = await signedUp(portico);
  const client = portico.client();
  const events = new Events(client);
  const { data, error } = await client.auth.resetPasswordForEmail(email);
  expect(error).toBeNull();
  expect(data).toEqual({});
  const token = codeIn(await mailTo(portico.status.MAILPIT_URL, email));
  const verified = await client.auth.verifyOtp({ email, token, type: "recovery" });
  expect(verified.error).toBeNull();
  expect((await events.told("PASSWORD_RECOVERY"))?.user.id).toBe(id);
  expect(events.names).not.toContain("SIGNED_IN");

  const updated = await client.auth.updateUser({ password: NEW });
  expect(updated.error).toBeNull();
  expect((await events.told("USER_UPDATED"))?.user.id).toBe(id);
  events.end();
  expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toMatchObject({ code: "invalid_credentials" });
  expect((await portico.client().auth.signInWithPassword({ email, password: NEW })).error).toBeNull();
  // Whoever knew the old password is out.
  expect((await signedIn.auth.refreshSession()).error).not.toBeNull();
  expect((await client.auth.refreshSession()).error).toBeNull();
  expect((await mailTo(portico.status.MAILPIT_URL, email, 1)).Subject).toMatch(/password/i);
  expect((await client.auth.verifyOtp({ email, token, type: "recovery" })).error).toMatchObject({ status: 403, code: "otp_expired" });
});

test("the link leads to the app, which hears why", async () => {
  const { email, id } = await signedUp(portico);
  const client = portico.client({ auth: { ...onPage, flowType: "implicit" } });
  expect((await client.auth.resetPasswordForEmail(email, { redirectTo: RESET })).error).toBeNull();
  const mail = await mailTo(portico.status.MAILPIT_URL, email);
  const target = await follow(linkIn(mail));
  expect(target.href.split("#")[0]).toBe(RESET);
  expect(fragment(target)).toMatchObject({ type: "recovery" });
  const events = new Events(client);
  expect((await open(client, target)).error).toBeNull();
  expect((await events.told("PASSWORD_RECOVERY"))?.user.id).toBe(id);
  events.end();
  expect((await client.auth.updateUser({ password: NEW })).error).toBeNull();
  expect(fragment(await follow(linkIn(mail)))).toMatchObject({ error_code: "otp_expired" });
});

test("the link gives a code to an app with a proof key, which hears why", async () => {
  const { email, id } = await signedUp(portico);
  const client = portico.client({ auth: { flowType: "pkce" } });
  expect((await client.auth.resetPasswordForEmail(email, { redirectTo: RESET })).error).toBeNull();
  const target = await follow(linkIn(await mailTo(portico.status.MAILPIT_URL, email)));
  expect(target.href.split("?")[0]).toBe(RESET);
  const events = new Events(client);
  const { data, error } = await client.auth.exchangeCodeForSession(target.searchParams.get("code")!);
  expect(error).toBeNull();
  expect(data.user?.id).toBe(id);
  expect((data as { redirectType?: string }).redirectType).toBe("recovery");
  await events.told("PASSWORD_RECOVERY");
  events.end();
  expect((await client.auth.updateUser({ password: NEW })).error).toBeNull();
});

test("the hash of the mail leads there as well, and all of it expires", async () => {
  const { email } = await signedUp(portico);
  const client = portico.client();
  const asked = async (): Promise<{ token: string; token_hash: string }> => {
    const before = (await mailsTo(portico.status.MAILPIT_URL, email)).length;
    expect((await client.auth.resetPasswordForEmail(email)).error).toBeNull();
    const mail = await mailTo(portico.status.MAILPIT_URL, email, before);
    return { token: codeIn(mail), token_hash: new URL(linkIn(mail)).searchParams.get("token")! };
  };
  const first = await asked();
  expect((await client.auth.verifyOtp({ token_hash: first.token_hash, type: "recovery" })).error).toBeNull();
  const second = await asked();
  await ageMailsTo(portico.status.DB_URL, email);
  expect((await client.auth.verifyOtp({ token_hash: second.token_hash, type: "recovery" })).error).toMatchObject({ status: 403, code: "otp_expired" });
  expect((await client.auth.verifyOtp({ email, token: second.token, type: "recovery" })).error).toMatchObject({ status: 403, code: "otp_expired" });
});

test("an unknown address has the same answer, and what is none is refused", async () => {
  const email = address();
  const { data, error } = await portico.client().auth.resetPasswordForEmail(email);
  expect(error).toBeNull();
  expect(data).toEqual({});
  expect(await mailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
  const bad = await portico.client().auth.resetPasswordForEmail("not an address");
  expect(bad.error).toMatchObject({ status: 400, code: "validation_failed" });
});

test("the new password must be new and strong, and needs a session", async () => {
  const { email, client } = await signedUp(portico);
  expect((await client.auth.updateUser({ password: PASSWORD })).error).toMatchObject({ status: 422, code: "same_password", message: "New password should be different from the old password." });
  const weak = await client.auth.updateUser({ password: "abc" });
  expect(isAuthWeakPasswordError(weak.error)).toBe(true);
  expect(weak.error).toMatchObject({ status: 422, code: "weak_password", reasons: ["length"] });
  expect((await portico.client().auth.updateUser({ password: NEW })).error).toMatchObject({ name: "AuthSessionMissingError" });
  expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
});
