// Another address for an account: `updateUser({ email })`, confirmed by both addresses or by the new one.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { ageMailsTo } from "../harness/database.ts";
import { Events } from "../harness/events.ts";
import { codeIn, linkIn, mailTo, mailsTo, type Mail } from "../harness/mail.ts";
import { follow, fragment, onPage, open, query } from "../harness/page.ts";
import { PASSWORD, address, signedUp } from "../harness/people.ts";
import { Portico, memoryStorage } from "../harness/portico.ts";

const FIRST_OF_TWO = "Confirmation link accepted. Please proceed to confirm link sent to the other email";

/** Someone whose address is confirmed, on a server that wants that. */
async function confirmed(portico: Portico, options: Parameters<Portico["client"]>[0] = {}): Promise<{ client: SupabaseClient; email: string; id: string }> {
  const email = address();
  const client = portico.client(options);
  await client.auth.signUp({ email, password: PASSWORD });
  const { data, error } = await client.auth.verifyOtp({ email, token: codeIn(await mailTo(portico.status.MAILPIT_URL, email)), type: "signup" });
  expect(error).toBeNull();
  return { client, email, id: data.user!.id };
}

describe("confirmed by both addresses", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth]\nsite_url = "http://127.0.0.1:3000"\n[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\n' });
  });
  afterAll(() => portico.dispose());

  /** Asks for the change; the mails to the old address and to the new one. */
  const asked = async (client: SupabaseClient, email: string, wanted: string, emailRedirectTo?: string): Promise<[Mail, Mail]> => {
    const box = portico.status.MAILPIT_URL;
    const before = [(await mailsTo(box, email)).length, (await mailsTo(box, wanted)).length] as const;
    const { data, error } = await client.auth.updateUser({ email: wanted }, emailRedirectTo === undefined ? {} : { emailRedirectTo });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ email, new_email: wanted });
    return [await mailTo(box, email, before[0]), await mailTo(box, wanted, before[1])];
  };

  test.each([
    ["the old one first", [0, 1]],
    ["the new one first", [1, 0]],
  ] as const)("by code, %s", async (_, [first, second]) => {
    const { client, email, id } = await confirmed(portico);
    const wanted = address();
    const mails = await asked(client, email, wanted);
    const codes = [
      { email, token: codeIn(mails[0]) },
      { email: wanted, token: codeIn(mails[1]) },
    ];
    const half = await client.auth.verifyOtp({ ...codes[first]!, type: "email_change" });
    expect(half.error).toBeNull();
    expect(half.data).toEqual({ user: null, session: null });
    expect((await client.auth.getUser()).data.user?.email).toBe(email);
    const replayed = await client.auth.verifyOtp({ ...codes[first]!, type: "email_change" });
    expect(replayed.error).toMatchObject({ status: 403, code: "otp_expired" });

    const events = new Events(client);
    const whole = await client.auth.verifyOtp({ ...codes[second]!, type: "email_change" });
    expect(whole.error).toBeNull();
    expect(whole.data.user).toMatchObject({ id, email: wanted });
    expect(whole.data.user?.new_email ?? "").toBe("");
    expect((await events.told("SIGNED_IN"))?.user.email).toBe(wanted);
    events.end();
    expect((await client.auth.verifyOtp({ ...codes[second]!, type: "email_change" })).error).toMatchObject({ status: 403, code: "otp_expired" });
    expect((await portico.client().auth.signInWithPassword({ email, password: PASSWORD })).error).toMatchObject({ code: "invalid_credentials" });
    expect((await portico.client().auth.signInWithPassword({ email: wanted, password: PASSWORD })).data.user?.id).toBe(id);
    const { data } = await client.auth.getUserIdentities();
    expect(data?.identities.map(({ provider, identity_data }) => [provider, identity_data?.["email"] as string])).toEqual([["email", wanted]]);
  });

  test("by link", async () => {
    const { client, email } = await confirmed(portico, { auth: { ...onPage, flowType: "implicit" } });
    const wanted = address();
    const [old, fresh] = await asked(client, email, wanted, "http://127.0.0.1:3000/settings");
    const half = await follow(linkIn(old));
    expect(half.href.split("#")[0]).toBe("http://127.0.0.1:3000/settings");
    expect(fragment(half)).toMatchObject({ message: FIRST_OF_TWO });
    expect(fragment(half)).not.toHaveProperty("access_token");
    const whole = await follow(linkIn(fresh));
    expect(fragment(whole)).toMatchObject({ type: "email_change" });
    expect((await open(client, whole)).error).toBeNull();
    expect((await client.auth.getUser()).data.user?.email).toBe(wanted);
    expect(fragment(await follow(linkIn(fresh)))).toMatchObject({ error_code: "otp_expired" });
  });

  test("by link, with a proof key", async () => {
    // The client forgets its proof key as soon as it saves the user that the change was asked for; this app keeps it.
    const kept = memoryStorage();
    const removeItem = (key: string): void => {
      if (!key.endsWith("-code-verifier")) kept.removeItem(key);
    };
    const storage = { ...kept, removeItem };
    const { client, email } = await confirmed(portico, { auth: { flowType: "pkce", storage } });
    const wanted = address();
    const [old, fresh] = await asked(client, email, wanted);
    expect(query(await follow(linkIn(fresh)))).toMatchObject({ message: FIRST_OF_TWO });
    const whole = await follow(linkIn(old));
    const { data, error } = await client.auth.exchangeCodeForSession(whole.searchParams.get("code")!);
    expect(error).toBeNull();
    expect(data.user?.email).toBe(wanted);
  });

  test("by hash", async () => {
    const { client, email } = await confirmed(portico);
    const wanted = address();
    const mails = await asked(client, email, wanted);
    const [old, fresh] = mails.map((mail) => new URL(linkIn(mail)).searchParams.get("token")!);
    expect((await client.auth.verifyOtp({ token_hash: old!, type: "email_change" })).data).toEqual({ user: null, session: null });
    expect((await client.auth.verifyOtp({ token_hash: fresh!, type: "email_change" })).data.user?.email).toBe(wanted);
  });

  test("not by one address twice, nor too late", async () => {
    const { client, email } = await confirmed(portico);
    const wanted = address();
    const [old, fresh] = await asked(client, email, wanted);
    const wrong = await client.auth.verifyOtp({ email, token: codeIn(fresh), type: "email_change" });
    if (codeIn(fresh) !== codeIn(old)) expect(wrong.error).toMatchObject({ status: 403, code: "otp_expired" });
    await ageMailsTo(portico.status.DB_URL, email);
    for (const attempt of [{ email, token: codeIn(old) }, { email: wanted, token: codeIn(fresh) }]) {
      expect((await client.auth.verifyOtp({ ...attempt, type: "email_change" })).error).toMatchObject({ status: 403, code: "otp_expired" });
    }
    expect((await client.auth.getUser()).data.user?.email).toBe(email);
  });

  test("the mails are sent again", async () => {
    const { client, email } = await confirmed(portico);
    const wanted = address();
    await asked(client, email, wanted);
    const { error } = await client.auth.resend({ type: "email_change", email });
    expect(error).toBeNull();
    const token = codeIn(await mailTo(portico.status.MAILPIT_URL, wanted, 1));
    const half = await client.auth.verifyOtp({ email: wanted, token, type: "email_change" });
    expect(half.error).toBeNull();
    const other = codeIn(await mailTo(portico.status.MAILPIT_URL, email, 2));
    expect((await client.auth.verifyOtp({ email, token: other, type: "email_change" })).data.user?.email).toBe(wanted);
  });

  test("not to an address that somebody has, nor to none", async () => {
    const [{ client, email }, other] = [await confirmed(portico), await confirmed(portico)];
    expect((await client.auth.updateUser({ email: other.email })).error).toMatchObject({ status: 422, code: "email_exists", message: "A user with this email address has already been registered" });
    expect((await client.auth.updateUser({ email: "not an address" })).error).toMatchObject({ status: 400, code: "validation_failed" });
    // The own address is no change.
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

  test("one code is enough, and the old address is told", async () => {
    const { client, email, id } = await signedUp(portico);
    const wanted = address();
    const { data, error } = await client.auth.updateUser({ email: wanted });
    expect(error).toBeNull();
    expect(data.user).toMatchObject({ email, new_email: wanted });
    const token = codeIn(await mailTo(portico.status.MAILPIT_URL, wanted));
    expect(await mailsTo(portico.status.MAILPIT_URL, email)).toEqual([]);
    const verified = await client.auth.verifyOtp({ email: wanted, token, type: "email_change" });
    expect(verified.error).toBeNull();
    expect(verified.data.user).toMatchObject({ id, email: wanted });
    expect(verified.data.session).not.toBeNull();
    expect((await mailTo(portico.status.MAILPIT_URL, email)).Text).toContain(wanted);
  });

  test("one link is enough", async () => {
    const { client } = await signedUp(portico);
    const wanted = address();
    await client.auth.updateUser({ email: wanted });
    const target = await follow(linkIn(await mailTo(portico.status.MAILPIT_URL, wanted)));
    expect(fragment(target)).toMatchObject({ type: "email_change" });
    expect((await client.auth.getUser()).data.user?.email).toBe(wanted);
  });

  test("whoever confirms first has the address", async () => {
    const [{ client: first }, { client: second }] = [await signedUp(portico), await signedUp(portico)];
    const wanted = address();
    await first.auth.updateUser({ email: wanted });
    const early = codeIn(await mailTo(portico.status.MAILPIT_URL, wanted));
    expect((await second.auth.updateUser({ email: wanted })).error).toBeNull();
    const late = codeIn(await mailTo(portico.status.MAILPIT_URL, wanted, 1));
    expect((await first.auth.verifyOtp({ email: wanted, token: early, type: "email_change" })).error).toBeNull();
    expect((await second.auth.verifyOtp({ email: wanted, token: late, type: "email_change" })).error).not.toBeNull();
    expect((await first.auth.getUser()).data.user?.email).toBe(wanted);
    expect((await second.auth.getUser()).data.user?.email).not.toBe(wanted);
  });
});
