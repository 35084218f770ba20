// The email change, `updateUser({ email })`, confirmed by both addresses or by the new one.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { ageEmailsTo } from "../harness/database.ts";
import { AuthEvents } from "../harness/events.ts";
import { codeIn, linkIn, emailTo, emailsTo, type Email } from "../harness/emails.ts";
import { redirectTarget, fragment, pageOptions, openPage, query } from "../harness/page.ts";
import { PASSWORD, newEmail, signedUp } from "../harness/accounts.ts";
import { Portico, memoryStorage } from "../harness/portico.ts";

const FIRST_OF_TWO = "Confirmation link accepted. Please proceed to confirm link sent to the other email";

/** Signs up and confirms an account, on a server that requires confirmation. */
async function confirmed(portico: Portico, options: Parameters<Portico["client"]>[0] = {}): Promise<{ client: SupabaseClient; email: string; id: string }> {
  const email = newEmail();
  const client = portico.client(options);
  await client.auth.signUp({ email, password: PASSWORD });
  const { data, error } = await client.auth.verifyOtp({ email, token: codeIn(await emailTo(portico.status.MAILPIT_URL, email)), type: "signup" });
  expect(error).toBeNull();
  return { client, email, id: data.user!.id };
}

describe("confirmed by both addresses", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth]\nsite_url = "http://127.0.0.1:3000"\n[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\n' });
  });
  afterAll(() => portico.dispose());

  /** Requests the change, and returns the emails to the old address and to the new one. */
  const requestChange = async (client: SupabaseClient, email: string, newAddress: string, emailRedirectTo?: string): Promise<[Email, Email]> => {
    const box = portico.status.MAILPIT_URL;
    const before = [(await emailsTo(box, email)).length, (await emailsTo(box, newAddress)).length] as const;
    const { data, error } = await client.auth.updateUser({ email: newAddress }, emailRedirectTo === undefined ? {} : { emailRedirectTo });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ email, new_email: newAddress });
    return [await emailTo(box, email, before[0]), await emailTo(box, newAddress, before[1])];
  };

  test.each([
    ["the old one first", [0, 1]],
    ["the new one first", [1, 0]],
  ] as const)("codes of both addresses complete the change, %s", async (_, [first, second]) => {
    const { client, email, id } = await confirmed(portico);
    const newAddress = newEmail();
    const mails = await requestChange(client, email, newAddress);
    const codes = [
      { email, token: codeIn(mails[0]) },
      { email: newAddress, token: codeIn(mails[1]) },
    ];
    const half = await client.auth.verifyOtp({ ...codes[first]!, type: "email_change" });
    expect(half.error).toBeNull();
    expect(half.data).toEqual({ user: null, session: null });
    expect((await client.auth.getUser()).data.user?.email).toBe(email);
    const replayed = await client.auth.verifyOtp({ ...codes[first]!, type: "email_change" });
    expect(replayed.error).toMatchObject({ status: 403, code: "otp_expired" });

    const events = new AuthEvents(client);
    const whole = await client.auth.verifyOtp({ ...codes[second]!, type: "email_change" });
    expect(whole.error).toBeNull();
    expect(whole.data.user).toMatchObject({ id, email: newAddress });
    expect(whole.data.user?.new_email ?? "").toBe("");
    expect((await events.waitFor("SIGNED_IN"))?.user.email).toBe(newAddress);
    events.end();
    expect((await client.auth.verifyOtp({ ...codes[second]!, type: "email_change" })).error).toMatchObject({ status: 403, code: "otp_expired" });
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toMatchObject({ code: "invalid_credentials" });
    expect((await portico.client().auth.signInWithPassword({ email: newAddress, password: PASSWORD })).data.user?.id).toBe(id);
    const { data } = await client.auth.getUserIdentities();
    expect(data?.identities.map(({ provider, identity_data }) => [provider, identity_data?.["email"] as string])).toEqual([["email", newAddress]]);
  });

  test("links of both addresses complete the change", async () => {
    const { client, email } = await confirmed(portico, { auth: { ...pageOptions, flowType: "implicit" } });
    const newAddress = newEmail();
    const [old, fresh] = await requestChange(client, email, newAddress, "http://127.0.0.1:3000/settings");
    const half = await redirectTarget(linkIn(old));
    expect(half.href.split("#")[0]).toBe("http://127.0.0.1:3000/settings");
    expect(fragment(half)).toMatchObject({ message: FIRST_OF_TWO });
    expect(fragment(half)).not.toHaveProperty("access_token");
    const whole = await redirectTarget(linkIn(fresh));
    expect(fragment(whole)).toMatchObject({ type: "email_change" });
    expect((await openPage(client, whole)).error).toBeNull();
    expect((await client.auth.getUser()).data.user?.email).toBe(newAddress);
    expect(fragment(await redirectTarget(linkIn(fresh)))).toMatchObject({ error_code: "otp_expired" });
  });

  test("links complete the change with a proof key", async () => {
    // The client drops its proof key when it stores the user whose change was requested; this app
    // keeps it.
    const kept = memoryStorage();
    const removeItem = (key: string): void => {
      if (!key.endsWith("-code-verifier")) kept.removeItem(key);
    };
    const storage = { ...kept, removeItem };
    const { client, email } = await confirmed(portico, { auth: { flowType: "pkce", storage } });
    const newAddress = newEmail();
    const [old, fresh] = await requestChange(client, email, newAddress);
    expect(query(await redirectTarget(linkIn(fresh)))).toMatchObject({ message: FIRST_OF_TWO });
    const whole = await redirectTarget(linkIn(old));
    const { data, error } = await client.auth.exchangeCodeForSession(whole.searchParams.get("code")!);
    expect(error).toBeNull();
    expect(data.user?.email).toBe(newAddress);
  });

  test("hashes of both addresses complete the change", async () => {
    const { client, email } = await confirmed(portico);
    const newAddress = newEmail();
    const mails = await requestChange(client, email, newAddress);
    const [old, fresh] = mails.map((mail) => new URL(linkIn(mail)).searchParams.get("token")!);
    expect((await client.auth.verifyOtp({ token_hash: old!, type: "email_change" })).data).toEqual({ user: null, session: null });
    expect((await client.auth.verifyOtp({ token_hash: fresh!, type: "email_change" })).data.user?.email).toBe(newAddress);
  });

  test("one address cannot confirm twice, and none too late", async () => {
    const { client, email } = await confirmed(portico);
    const newAddress = newEmail();
    const [old, fresh] = await requestChange(client, email, newAddress);
    const wrong = await client.auth.verifyOtp({ email, token: codeIn(fresh), type: "email_change" });
    if (codeIn(fresh) !== codeIn(old)) expect(wrong.error).toMatchObject({ status: 403, code: "otp_expired" });
    await ageEmailsTo(portico.status.DB_URL, email);
    for (const attempt of [{ email, token: codeIn(old) }, { email: newAddress, token: codeIn(fresh) }]) {
      expect((await client.auth.verifyOtp({ ...attempt, type: "email_change" })).error).toMatchObject({ status: 403, code: "otp_expired" });
    }
    expect((await client.auth.getUser()).data.user?.email).toBe(email);
  });

  test("the emails are sent again", async () => {
    const { client, email } = await confirmed(portico);
    const newAddress = newEmail();
    await requestChange(client, email, newAddress);
    const { error } = await client.auth.resend({ type: "email_change", email });
    expect(error).toBeNull();
    const token = codeIn(await emailTo(portico.status.MAILPIT_URL, newAddress, 1));
    const half = await client.auth.verifyOtp({ email: newAddress, token, type: "email_change" });
    expect(half.error).toBeNull();
    const other = codeIn(await emailTo(portico.status.MAILPIT_URL, email, 2));
    expect((await client.auth.verifyOtp({ email, token: other, type: "email_change" })).data.user?.email).toBe(newAddress);
  });

  test("a taken address and a malformed one are rejected", async () => {
    const [{ client, email }, other] = [await confirmed(portico), await confirmed(portico)];
    expect((await client.auth.updateUser({ email: other.email })).error).toMatchObject({ status: 422, code: "email_exists", message: "A user with this email address has already been registered" });
    expect((await client.auth.updateUser({ email: "not an address" })).error).toMatchObject({ status: 400, code: "validation_failed" });
    // The account's own address is no change.
    const same = await client.auth.updateUser({ email });
    expect(same.error).toBeNull();
    expect(same.data.user?.new_email ?? "").toBe("");
  });
});

describe("confirmed by the new address", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth]\nsite_url = "http://127.0.0.1:3000"\n[auth.email]\ndouble_confirm_changes = false\nmax_frequency = "0s"\n[auth.email.notification.email_changed]\nenabled = true\n' });
  });
  afterAll(() => portico.dispose());

  test("one code is enough, and the old address gets a notice", async () => {
    const { client, email, id } = await signedUp(portico);
    const newAddress = newEmail();
    const { data, error } = await client.auth.updateUser({ email: newAddress });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ email, new_email: newAddress });
    const token = codeIn(await emailTo(portico.status.MAILPIT_URL, newAddress));
    expect(await emailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
    const verified = await client.auth.verifyOtp({ email: newAddress, token, type: "email_change" });
    expect(verified.error).toBeNull();
    expect(verified.data.user).toMatchObject({ id, email: newAddress });
    expect(verified.data.session).not.toBeNull();
    expect((await emailTo(portico.status.MAILPIT_URL, email)).Text).toContain(newAddress);
  });

  test("one link is enough", async () => {
    const { client } = await signedUp(portico);
    const newAddress = newEmail();
    await client.auth.updateUser({ email: newAddress });
    const target = await redirectTarget(linkIn(await emailTo(portico.status.MAILPIT_URL, newAddress)));
    expect(fragment(target)).toMatchObject({ type: "email_change" });
    expect((await client.auth.getUser()).data.user?.email).toBe(newAddress);
  });

  test("the first confirmation gets the address", async () => {
    const [{ client: first }, { client: second }] = [await signedUp(portico), await signedUp(portico)];
    const newAddress = newEmail();
    await first.auth.updateUser({ email: newAddress });
    const early = codeIn(await emailTo(portico.status.MAILPIT_URL, newAddress));
    expect((await second.auth.updateUser({ email: newAddress })).error).toBeNull();
    const late = codeIn(await emailTo(portico.status.MAILPIT_URL, newAddress, 1));
    expect((await first.auth.verifyOtp({ email: newAddress, token: early, type: "email_change" })).error).toBeNull();
    expect((await second.auth.verifyOtp({ email: newAddress, token: late, type: "email_change" })).error).not.toBeNull();
    expect((await first.auth.getUser()).data.user?.email).toBe(newAddress);
    expect((await second.auth.getUser()).data.user?.email).not.toBe(newAddress);
  });
});
