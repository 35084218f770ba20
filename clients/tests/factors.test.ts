// Second factors with the official client: authenticator apps (codes of Debian's oathtool), phones,
// and recovery codes.
import { execFileSync } from "node:child_process";

import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { PASSWORD, claims, signedUp } from "../harness/accounts.ts";
import { emailTo } from "../harness/emails.ts";
import { Portico } from "../harness/portico.ts";
import { textTo } from "../harness/text-messages.ts";

const CONFIG = `
[auth.mfa.totp]
enroll_enabled = true
verify_enabled = true

[auth.mfa.phone]
enroll_enabled = true
verify_enabled = true
template = "{{ .Code }} is your second step"
max_frequency = "0s"

[auth.email.notification.mfa_factor_enrolled]
enabled = true

[auth.email.notification.recovery_code_used]
enabled = true
`;

const DIARY = `
create table public.diary (id int primary key, text text not null);
insert into public.diary values (1, 'a secret');
alter table public.diary enable row level security;
grant select on public.diary to authenticated;
create policy readers on public.diary for select to authenticated using (true);
create policy second_factor on public.diary as restrictive to authenticated using ((select auth.jwt() ->> 'aal') = 'aal2');
`;

/**
 * Returns the code of a secret: the current one, or that of the next step, which is accepted as
 * well.
 */
const codeOf = (secret: string, step: "now" | "next" = "now"): string =>
  execFileSync("oathtool", ["--totp", "--base32", "--now", step === "now" ? "now" : "now + 30 seconds", secret], { encoding: "utf8" }).trim();

const levels = async (client: SupabaseClient): Promise<[string | null, string | null]> => {
  const { data, error } = await client.auth.mfa.getAuthenticatorAssuranceLevel();
  expect(error).toBeNull();
  return [data!.currentLevel, data!.nextLevel];
};

describe("with second factors switched on", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: CONFIG, files: { "supabase/migrations/20260101000000_diary.sql": DIARY } });
  });
  afterAll(() => portico.dispose());

  const enrolled = async (): Promise<{ client: SupabaseClient; email: string; factorId: string; secret: string }> => {
    const { client, email } = await signedUp(portico);
    const { data, error } = await client.auth.mfa.enroll({ factorType: "totp", friendlyName: "phone app", issuer: "Acme & Söhne" });
    expect(error).toBeNull();
    const factorId = data!.id;
    const secret = data!.totp.secret;
    const verified = await client.auth.mfa.challengeAndVerify({ factorId, code: codeOf(secret) });
    expect(verified.error).toBeNull();
    return { client, email, factorId, secret };
  };

  const signedIn = async (email: string): Promise<SupabaseClient> => {
    const client = portico.client();
    expect((await client.auth.signInWithPassword({ email, password: PASSWORD })).error).toBeNull();
    return client;
  };

  test("an authenticator app is enrolled, proved, used at the next sign-in, and removed", async () => {
    const { client, email } = await signedUp(portico);
    const events: string[] = [];
    client.auth.onAuthStateChange((event) => void events.push(event));
    expect(await levels(client)).toEqual(["aal1", "aal1"]);

    const { data, error } = await client.auth.mfa.enroll({ factorType: "totp", friendlyName: "phone app", issuer: "Acme & Söhne" });
    expect(error).toBeNull();
    expect(data).toMatchObject({ type: "totp", friendly_name: "phone app" });
    expect(data!.totp.uri).toMatch(/^otpauth:\/\/totp\/Acme%20%26%20S%C3%B6hne:person-\d+@portico\.test\?algorithm=SHA1&digits=6&issuer=/);
    expect(data!.totp.qr_code.startsWith("data:image/svg+xml;utf-8,<?xml")).toBe(true);
    expect(data!.totp.qr_code).not.toContain("#");
    const factorId = data!.id;
    const unverified = await client.auth.mfa.listFactors();
    expect(unverified.data?.all.map(({ id, status }) => [id, status])).toEqual([[factorId, "unverified"]]);
    expect(unverified.data?.totp).toEqual([]);

    const challenge = await client.auth.mfa.challenge({ factorId });
    expect(challenge.data).toMatchObject({ type: "totp" });
    expect(challenge.data!.expires_at).toBeGreaterThan(Date.now() / 1000 + 290);
    const code = codeOf(data!.totp.secret);
    const verified = await client.auth.mfa.verify({ factorId, challengeId: challenge.data!.id, code });
    expect(verified.error).toBeNull();
    expect(verified.data?.user.factors?.[0]).toMatchObject({ id: factorId, status: "verified", factor_type: "totp" });
    expect(events).toContain("MFA_CHALLENGE_VERIFIED");
    expect(await levels(client)).toEqual(["aal2", "aal2"]);
    expect((await client.auth.mfa.listFactors()).data?.totp).toHaveLength(1);
    expect((await client.auth.getUser()).error).toBeNull();
    expect((await emailTo(portico.status.MAILPIT_URL, email)).Subject).toBe("A new verification method was added to your account");

    const next = await signedIn(email);
    expect(await levels(next)).toEqual(["aal1", "aal2"]);
    expect((await next.from("diary").select()).data).toEqual([]);
    const replayed = await next.auth.mfa.challengeAndVerify({ factorId, code });
    expect(replayed.error).toMatchObject({ status: 422, code: "mfa_verification_failed", message: "Invalid TOTP code entered" });
    expect((await next.auth.mfa.challengeAndVerify({ factorId, code: codeOf(data!.totp.secret, "next") })).error).toBeNull();
    expect(await levels(next)).toEqual(["aal2", "aal2"]);
    expect((await next.from("diary").select()).data).toEqual([{ id: 1, text: "a secret" }]);
    expect((await next.auth.refreshSession()).error).toBeNull();
    expect(await levels(next)).toEqual(["aal2", "aal2"]);
    const methods = (await claims(next))["amr"] as { method: string }[];
    expect(methods.map(({ method }) => method)).toEqual(["totp", "password"]);

    const removed = await next.auth.mfa.unenroll({ factorId });
    expect(removed).toEqual({ data: { id: factorId }, error: null });
    expect((await next.auth.refreshSession()).error).toBeNull();
    expect(await levels(next)).toEqual(["aal1", "aal1"]);
  });

  test("a first proof signs out sessions without one", async () => {
    const { client, email } = await signedUp(portico);
    const other = await signedIn(email);
    const { data } = await client.auth.mfa.enroll({ factorType: "totp" });
    expect((await client.auth.mfa.challengeAndVerify({ factorId: data!.id, code: codeOf(data!.totp.secret) })).error).toBeNull();
    expect((await other.auth.refreshSession()).error).toMatchObject({ status: 400, code: "refresh_token_not_found" });
    expect((await client.auth.refreshSession()).error).toBeNull();
  });

  test("without the second factor an account cannot be taken over", async () => {
    const { email, factorId } = await enrolled();
    const thief = await signedIn(email);
    const password = await thief.auth.updateUser({ password: "an entirely new one" });
    expect(password.error).toMatchObject({ status: 401, code: "insufficient_aal" });
    expect((await thief.auth.updateUser({ email: "thief@portico.test" })).error).toMatchObject({ status: 401, code: "insufficient_aal" });
    const own = await thief.auth.mfa.enroll({ factorType: "totp", friendlyName: "mine" });
    expect(own.error).toMatchObject({ status: 403, code: "insufficient_aal", message: "AAL2 required to enroll a new factor" });
    expect((await thief.auth.mfa.unenroll({ factorId })).error).toMatchObject({ status: 422, code: "insufficient_aal" });
    expect((await recovery(thief, "POST", "factors/recovery-codes")).status).toBe(403);
    for (let guess = 0; guess < 10; guess += 1) {
      const { error } = await thief.auth.mfa.challengeAndVerify({ factorId, code: "00000x" });
      expect(error).toMatchObject({ status: 422, code: "mfa_verification_failed" });
    }
    expect((await thief.auth.mfa.challengeAndVerify({ factorId, code: "00000x" })).error).toMatchObject({ status: 429, code: "over_request_rate_limit" });
  });

  test("factors of other accounts do not exist", async () => {
    const { factorId } = await enrolled();
    const { client } = await signedUp(portico);
    const unknown = { status: 404, code: "mfa_factor_not_found", message: "Factor not found" };
    expect((await client.auth.mfa.challenge({ factorId })).error).toMatchObject(unknown);
    expect((await client.auth.mfa.verify({ factorId, challengeId: factorId, code: "123456" })).error).toMatchObject(unknown);
    expect((await client.auth.mfa.unenroll({ factorId })).error).toMatchObject(unknown);
  });

  test("a phone is a second factor", async () => {
    const { client } = await signedUp(portico);
    const { data, error } = await client.auth.mfa.enroll({ factorType: "phone", friendlyName: "mobile", phone: "+1 555 000 7777" });
    expect(error).toBeNull();
    expect(data).toMatchObject({ type: "phone", friendly_name: "mobile", phone: "+1 555 000 7777" });
    const factorId = data!.id;
    const challenge = await client.auth.mfa.challenge({ factorId, channel: "sms" });
    expect(challenge.data).toMatchObject({ type: "phone" });
    const text = await textTo(portico.status.MAILPIT_URL, "15550007777");
    expect(text.body).toBe(`${text.code} is your second step`);
    const wrong = await client.auth.mfa.verify({ factorId, challengeId: challenge.data!.id, code: text.code === "000000" ? "000001" : "000000" });
    expect(wrong.error).toMatchObject({ status: 422, code: "mfa_verification_failed", message: "Invalid MFA Phone code entered" });
    expect((await client.auth.mfa.verify({ factorId, challengeId: challenge.data!.id, code: text.code })).error).toBeNull();
    expect(await levels(client)).toEqual(["aal2", "aal2"]);
    expect((await client.auth.mfa.listFactors()).data?.phone).toHaveLength(1);
  });

  /** Calls a route of recovery codes, which the official client does not know. */
  const recovery = async (client: SupabaseClient, method: "GET" | "POST", path: string, body?: object): Promise<{ status: number; body: Record<string, unknown> }> => {
    const { data } = await client.auth.getSession();
    const response = await fetch(`${portico.url}/auth/v1/${path}`, {
      method,
      headers: { apikey: portico.status.PUBLISHABLE_KEY, authorization: `Bearer ${data.session!.access_token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };

  test("a recovery code replaces a lost factor once", async () => {
    const { client, email, factorId } = await enrolled();
    const made = await recovery(client, "POST", "factors/recovery-codes");
    expect(made.status).toBe(200);
    const codes = made.body["codes"] as string[];
    expect(codes).toHaveLength(10);
    expect(new Set(codes).size).toBe(10);

    const next = await signedIn(email);
    const used = await recovery(next, "POST", "factors/recovery-codes/verify", { code: codes[0] });
    expect(used.status).toBe(200);
    const tokens = used.body as { access_token: string; refresh_token: string };
    expect((await next.auth.setSession(tokens)).error).toBeNull();
    expect(await levels(next)).toEqual(["aal2", "aal2"]);
    expect((await next.auth.refreshSession()).error).toBeNull();
    expect(await levels(next)).toEqual(["aal2", "aal2"]);
    expect((await recovery(next, "GET", "factors/recovery-codes")).body).toMatchObject({ remaining: 9 });
    const mail = await emailTo(portico.status.MAILPIT_URL, email, 1);
    expect(mail.Text).toContain("Codes left: 9");
    const again = await recovery(next, "POST", "factors/recovery-codes/verify", { code: codes[0] });
    expect([again.status, again.body["error_code"]]).toEqual([422, "mfa_verification_failed"]);
    expect((await next.auth.mfa.unenroll({ factorId })).error).toBeNull();
    expect((await recovery(next, "GET", "factors/recovery-codes")).body).toEqual({ remaining: 0, created_at: null });
  });
});

test("second factors are off by default", async () => {
  const portico = await Portico.start();
  try {
    const { client } = await signedUp(portico);
    const { error } = await client.auth.mfa.enroll({ factorType: "totp" });
    expect(error).toMatchObject({ status: 422, code: "mfa_totp_enroll_not_enabled", message: "MFA enroll is disabled for TOTP" });
  } finally {
    await portico.dispose();
  }
});
