// Hooks: the official client signs up and in, and a receiver verifies the signatures of the calls.
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import { claims, newEmail, PASSWORD } from "../harness/accounts.ts";
import { HookReceiver } from "../harness/hooks.ts";
import { Portico } from "../harness/portico.ts";

let hooks: HookReceiver;
let portico: Portico;
beforeAll(async () => {
  hooks = await HookReceiver.start();
  const points = ["custom_access_token", "send_email", "before_user_created", "password_verification_attempt"];
  portico = await Portico.start({ config: `[auth.email]\nenable_confirmations = true\n[auth.rate_limit]\nemail_sent = 1000\n${points.map((point) => hooks.section(point)).join("")}` });
});
afterAll(async () => {
  await portico.dispose();
  await hooks.dispose();
});
beforeEach(() => {
  hooks.inputs.length = 0;
  hooks.answers.clear();
  hooks.answers.set("customize-access-token", ({ claims }) => ({ claims: { ...claims, tenant: "acme" } }));
});

/** Sends a request without the client, which drops the message of a response with status 500. */
async function post(server: Portico, path: string, body: object): Promise<{ status: number; message: string }> {
  const response = await fetch(`${server.url}/auth/v1${path}`, {
    method: "POST",
    headers: { apikey: server.status.ANON_KEY, "content-type": "application/json", "x-supabase-api-version": "2024-01-01" },
    body: JSON.stringify(body),
  });
  const { message } = (await response.json()) as { message: string };
  return { status: response.status, message };
}

test("a person signs up with the code that the hook sent, and gets the hook's claims", async () => {
  const email = newEmail();
  const client = portico.client();
  const { data, error } = await client.auth.signUp({ email, password: PASSWORD, options: { data: { name: "Ada" } } });
  expect(error).toBeNull();
  expect(hooks.of("before-user-created")[0]?.user).toMatchObject({ id: data.user?.id, email });
  const [mail] = hooks.of("send-email");
  expect(mail?.user).toMatchObject({ id: data.user?.id, email, user_metadata: { name: "Ada" } });
  expect(mail?.email_data).toMatchObject({ email_action_type: "signup", site_url: `${portico.url}/auth/v1`, token_new: "" });

  const verified = await client.auth.verifyOtp({ email, token: mail!.email_data!["token"]!, type: "email" });
  expect(verified.error).toBeNull();
  expect(await claims(client)).toMatchObject({ sub: data.user?.id, tenant: "acme" });
  expect((await client.auth.refreshSession()).error).toBeNull();
  expect(await claims(client)).toMatchObject({ tenant: "acme" });
  expect(hooks.of("customize-access-token").map((input) => input.authentication_method)).toEqual(["otp", "token_refresh"]);

  const again = await portico.client().auth.signInWithPassword({ email, password: PASSWORD });
  expect(again.error).toBeNull();
  expect(hooks.of("password-verification")).toMatchObject([{ user_id: data.user?.id, valid: true }]);
  expect(hooks.rejected).toEqual([]);
});

test("a rejected sign-up has the hook's status and message", async () => {
  hooks.answers.set("before-user-created", () => ({ error: { http_code: 403, message: "Only members of the club" } }));
  const { data, error } = await portico.client().auth.signUp({ email: newEmail(), password: PASSWORD });
  expect(error).toMatchObject({ status: 403, message: "Only members of the club" });
  expect(data.user).toBeNull();
  expect(hooks.of("send-email")).toHaveLength(0);
});

test("a rejected password has the hook's message", async () => {
  const email = newEmail();
  const client = portico.client();
  await client.auth.signUp({ email, password: PASSWORD });
  await client.auth.verifyOtp({ email, token: hooks.of("send-email")[0]!.email_data!["token"]!, type: "email" });
  hooks.answers.set("password-verification", () => ({ decision: "reject", message: "Wait an hour", should_logout_user: true }));
  const { error } = await portico.client().auth.signInWithPassword({ email, password: PASSWORD });
  expect(error).toMatchObject({ status: 400, code: "invalid_credentials", message: "Wait an hour" });
  expect((await client.auth.getUser()).error).toMatchObject({ name: "AuthSessionMissingError" });
});

test("claims that clients could not use fail the sign-in", async () => {
  const email = newEmail();
  const client = portico.client();
  await client.auth.signUp({ email, password: PASSWORD });
  hooks.answers.set("customize-access-token", () => ({ claims: { sub: 5 } }));
  const token = hooks.of("send-email")[0]!.email_data!["token"]!;
  const { status, message } = await post(portico, "/verify", { email, token, type: "email" });
  expect(status).toBe(500);
  expect(message).toContain("output claims do not conform to the expected schema: \n- (root): aud is required");
  // The code was not used
  hooks.answers.set("customize-access-token", ({ claims }) => ({ claims }));
  expect((await client.auth.verifyOtp({ email, token, type: "email" })).error).toBeNull();
});

test("a receiver with another secret gets a signature that it rejects", async () => {
  const strict = await HookReceiver.start();
  const other = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
  const server = await Portico.start({ config: strict.section("before_user_created", [other]) });
  try {
    const rejection = await post(server, "/signup", { email: newEmail(), password: PASSWORD });
    expect(rejection).toMatchObject({ status: 500, message: "Hook requires authorization token" });
    expect(strict.inputs).toHaveLength(0);
    expect(strict.rejected).toHaveLength(1);
  } finally {
    await server.dispose();
    await strict.dispose();
  }
});

test("a function of a migration is a hook", async () => {
  const migration = `
    create function public.custom_claims(event jsonb) returns jsonb language plpgsql stable as $$
    begin
      return jsonb_set(event, '{claims,tenant}', to_jsonb(split_part(event #>> '{claims,email}', '@', 2)));
    end $$;
    grant usage on schema public to supabase_auth_admin;
    grant execute on function public.custom_claims to supabase_auth_admin;
    revoke execute on function public.custom_claims from authenticated, anon, public;`;
  const config = `[auth.email]\nenable_confirmations = false\n[auth.hook.custom_access_token]\nenabled = true\nuri = "pg-functions://postgres/public/custom_claims"\n`;
  const server = await Portico.start({ config, files: { "supabase/migrations/20240101000000_claims.sql": migration } });
  try {
    const client = server.client();
    expect((await client.auth.signUp({ email: newEmail(), password: PASSWORD })).error).toBeNull();
    expect(await claims(client)).toMatchObject({ tenant: "portico.test" });
  } finally {
    await server.dispose();
  }
});
