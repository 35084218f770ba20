// A forgotten password: `resetPasswordForEmail`, its event, and the new password.
import { isAuthWeakPasswordError } from "@supabase/supabase-js";
import { afterAll, beforeAll, expect, test } from "vitest";

import { ageEmailsTo } from "../harness/database.ts";
import { AuthEvents } from "../harness/events.ts";
import { codeIn, linkIn, emailTo, emailsTo } from "../harness/emails.ts";
import { redirectTarget, fragment, pageOptions, openPage } from "../harness/page.ts";
import { PASSWORD, newEmail, signedUp } from "../harness/accounts.ts";
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
  const events = new AuthEvents(client);
  const { data, error } = await client.auth.resetPasswordForEmail(email);
  expect(error).toBeNull();
  expect(data).toEqual({});
  const token = codeIn(await emailTo(portico.status.MAILPIT_URL, email));
  const verified = await client.auth.verifyOtp({ email, token, type: "recovery" });
  expect(verified.error).toBeNull();
  expect((await events.waitFor("PASSWORD_RECOVERY"))?.user.id).toBe(id);
  expect(events.names).not.toContain("SIGNED_IN");

  const updated = await client.auth.updateUser({ password: NEW });
  expect(updated.error).toBeNull();
  expect((await events.waitFor("USER_UPDATED"))?.user.id).toBe(id);
  events.end();
  expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toMatchObject({ code: "invalid_credentials" });
  expect((await portico.client().auth.signInWithPassword({ email, password: NEW })).error).toBeNull();
  // Sessions of the old password have ended.
  expect((await signedIn.auth.refreshSession()).error).not.toBeNull();
  expect((await client.auth.refreshSession()).error).toBeNull();
  expect((await emailTo(portico.status.MAILPIT_URL, email, 1)).Subject).toMatch(/password/i);
  expect((await client.auth.verifyOtp({ email, token, type: "recovery" })).error).toMatchObject({ status: 403, code: "otp_expired" });
});

test("the link leads to the app, which gets the recovery event", async () => {
  const { email, id } = await signedUp(portico);
  const client = portico.client({ auth: { ...pageOptions, flowType: "implicit" } });
  expect((await client.auth.resetPasswordForEmail(email, { redirectTo: RESET })).error).toBeNull();
  const mail = await emailTo(portico.status.MAILPIT_URL, email);
  const target = await redirectTarget(linkIn(mail));
  expect(target.href.split("#")[0]).toBe(RESET);
  expect(fragment(target)).toMatchObject({ type: "recovery" });
  const events = new AuthEvents(client);
  expect((await openPage(client, target)).error).toBeNull();
  expect((await events.waitFor("PASSWORD_RECOVERY"))?.user.id).toBe(id);
  events.end();
  expect((await client.auth.updateUser({ password: NEW })).error).toBeNull();
  expect(fragment(await redirectTarget(linkIn(mail)))).toMatchObject({ error_code: "otp_expired" });
});

test("the link gives a code to an app with a proof key, which gets the recovery event", async () => {
  const { email, id } = await signedUp(portico);
  const client = portico.client({ auth: { flowType: "pkce" } });
  expect((await client.auth.resetPasswordForEmail(email, { redirectTo: RESET })).error).toBeNull();
  const target = await redirectTarget(linkIn(await emailTo(portico.status.MAILPIT_URL, email)));
  expect(target.href.split("?")[0]).toBe(RESET);
  const events = new AuthEvents(client);
  const { data, error } = await client.auth.exchangeCodeForSession(target.searchParams.get("code")!);
  expect(error).toBeNull();
  expect(data.user?.id).toBe(id);
  expect((data as { redirectType?: string }).redirectType).toBe("recovery");
  await events.waitFor("PASSWORD_RECOVERY");
  events.end();
  expect((await client.auth.updateUser({ password: NEW })).error).toBeNull();
});

test("the hash of the email signs in too, and all of them expire", async () => {
  const { email } = await signedUp(portico);
  const client = portico.client();
  const asked = async (): Promise<{ token: string; token_hash: string }> => {
    const before = (await emailsTo(portico.status.MAILPIT_URL, email)).length;
    expect((await client.auth.resetPasswordForEmail(email)).error).toBeNull();
    const mail = await emailTo(portico.status.MAILPIT_URL, email, before);
    return { token: codeIn(mail), token_hash: new URL(linkIn(mail)).searchParams.get("token")! };
  };
  const first = await asked();
  expect((await client.auth.verifyOtp({ token_hash: first.token_hash, type: "recovery" })).error).toBeNull();
  const second = await asked();
  await ageEmailsTo(portico.status.DB_URL, email);
  expect((await client.auth.verifyOtp({ token_hash: second.token_hash, type: "recovery" })).error).toMatchObject({ status: 403, code: "otp_expired" });
  expect((await client.auth.verifyOtp({ email, token: second.token, type: "recovery" })).error).toMatchObject({ status: 403, code: "otp_expired" });
});

test("an unknown address gets the same response, and a malformed one is rejected", async () => {
  const email = newEmail();
  const { data, error } = await portico.client().auth.resetPasswordForEmail(email);
  expect(error).toBeNull();
  expect(data).toEqual({});
  expect(await emailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
  const bad = await portico.client().auth.resetPasswordForEmail("not an address");
  expect(bad.error).toMatchObject({ status: 400, code: "validation_failed" });
});

test("the new password must differ and be strong, and needs a session", async () => {
  const { email, client } = await signedUp(portico);
  expect((await client.auth.updateUser({ password: PASSWORD })).error).toMatchObject({ status: 422, code: "same_password", message: "New password should be different from the old password." });
  const weak = await client.auth.updateUser({ password: "abc" });
  expect(isAuthWeakPasswordError(weak.error)).toBe(true);
  expect(weak.error).toMatchObject({ status: 422, code: "weak_password", reasons: ["length"] });
  expect((await portico.client().auth.updateUser({ password: NEW })).error).toMatchObject({ name: "AuthSessionMissingError" });
  expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
});
