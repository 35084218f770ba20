// The rate limits as an app meets them. Limits by client address are off in development, so they
// need `portico serve`.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { codeIn, emailTo, emailsTo } from "../harness/emails.ts";
import { newEmail, signedUp } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: '[auth.email]\nmax_frequency = "1h"\n[auth.sms]\nenable_signup = true\nmax_frequency = "1h"\n' });
});
afterAll(() => portico.dispose());

/** A client, and the headers of its last response. */
const watched = (server = portico, headers: Record<string, string> = {}): { client: SupabaseClient; last: () => Headers } => {
  let last = new Headers();
  const watching: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    last = response.headers;
    return response;
  };
  return { client: server.client({ global: { fetch: watching, headers } }), last: () => last };
};

test("an email requested again too early is not sent, and the error has the time of the next one", async () => {
  const { email } = await signedUp(portico);
  const { client, last } = watched();
  expect((await client.auth.resetPasswordForEmail(email)).error).toBeNull();
  const tooEarly = /^For security purposes, you can only request this after \d+ seconds\.$/;
  for (const ask of [() => client.auth.resetPasswordForEmail(email), () => client.auth.signInWithOtp({ email })]) {
    const { error } = await ask();
    expect(error).toMatchObject({ status: 429, code: "over_email_send_rate_limit" });
    expect(error?.message).toMatch(tooEarly);
    expect(Number(last().get("retry-after"))).toBeGreaterThan(3000);
    expect(last().get("x-ratelimit-name")).toBeTruthy();
  }
  const mail = await emailTo(portico.status.MAILPIT_URL, email);
  expect(await emailsTo(portico.status.MAILPIT_URL, email)).toHaveLength(1);
  // The code that was sent still works.
  expect((await client.auth.verifyOtp({ email, token: codeIn(mail), type: "recovery" })).error).toBeNull();
});

test("a text message requested again too early is not sent", async () => {
  const { client, last } = watched();
  const phone = "15550001111";
  expect((await client.auth.signInWithOtp({ phone })).error).toBeNull();
  expect((await client.auth.signInWithOtp({ phone })).error).toMatchObject({ status: 429, code: "over_sms_send_rate_limit" });
  expect(Number(last().get("retry-after"))).toBeGreaterThan(3000);
});

test("a code cannot be guessed", async () => {
  const { email } = await signedUp(portico);
  const { client, last } = watched();
  expect((await client.auth.signInWithOtp({ email })).error).toBeNull();
  const token = codeIn(await emailTo(portico.status.MAILPIT_URL, email));
  const wrong = token === "000000" ? "000001" : "000000";
  let tries = 0;
  let refused;
  do {
    tries += 1;
    refused = (await client.auth.verifyOtp({ email, token: wrong, type: "email" })).error;
  } while (refused?.code === "otp_expired" && tries < 100);
  expect(refused).toMatchObject({ status: 429, code: "over_request_rate_limit", message: "Request rate limit reached" });
  expect(tries).toBeGreaterThan(10);
  expect(Number(last().get("retry-after"))).toBeGreaterThan(0);
  expect(last().get("x-ratelimit-name")).toBeTruthy();
  // Other addresses are not limited.
  const other = newEmail();
  expect((await client.auth.verifyOtp({ email: other, token, type: "email" })).error).toMatchObject({ code: "otp_expired" });
});

describe("by client address, in production", () => {
  let served: Portico;
  beforeAll(async () => {
    served = await Portico.serve({ config: "[auth]\nenable_anonymous_sign_ins = true\n" });
  });
  afterAll(() => served.dispose());

  const from = (ip: string): ReturnType<typeof watched> => watched(served, { "X-Forwarded-For": ip });

  test.each<[string, string, string, (client: SupabaseClient) => Promise<{ error: unknown }>]>([
    ["sign-up", "signup", "192.0.2.1", (client) => client.auth.signUp({ email: newEmail(), password: "short" })],
    ["sign-in without a name", "anonymous-signup", "192.0.2.2", (client) => client.auth.signInAnonymously()],
    ["a token of a provider", "token", "192.0.2.3", (client) => client.auth.signInWithIdToken({ provider: "google", token: "a.b.c" })],
    ["a code", "verify", "192.0.2.4", (client) => client.auth.verifyOtp({ email: newEmail(), token: "000000", type: "email" })],
    ["recovery", "recover", "192.0.2.5", (client) => client.auth.resetPasswordForEmail("nonsense")],
    ["sign-in by link", "otp", "192.0.2.6", (client) => client.auth.signInWithOtp({ email: "nonsense" })],
    ["a message once more", "resend", "192.0.2.7", (client) => client.auth.resend({ type: "signup", email: "nonsense" })],
  ])("%s is held up, and other addresses are not", async (_, limit, ip, ask) => {
    const { client, last } = from(ip);
    let response;
    let tries = 0;
    do {
      tries += 1;
      response = await ask(client);
    } while (last().get("x-ratelimit-name") !== limit && tries < 200);
    expect(response.error).toMatchObject({ status: 429, code: "over_request_rate_limit", message: "Request rate limit reached" });
    expect(tries).toBeGreaterThan(30);
    expect(Number(last().get("retry-after"))).toBeGreaterThan(0);
    const other = from("198.51.100.1");
    await ask(other.client);
    expect(other.last().get("x-ratelimit-name")).toBeNull();
  });

  test("a session is not affected", async () => {
    const { client } = from("192.0.2.8");
    expect((await client.auth.signInAnonymously()).error).toBeNull();
    const beginning = async (): Promise<Response> =>
      fetch(`${served.url}/auth/v1/authorize?provider=google`, { headers: { "X-Forwarded-For": "192.0.2.8" }, redirect: "manual" });
    let last = await beginning();
    for (let tries = 0; last.status !== 429 && tries < 200; tries += 1) last = await beginning();
    expect(last.headers.get("x-ratelimit-name")).toBe("authorize");
    expect((await client.auth.getUser()).error).toBeNull();
    expect((await client.auth.refreshSession()).error).toBeNull();
  });
});
