// Phone numbers with the official client: codes read from the mailbox, and codes of an emulated
// gateway.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { textTo, textsTo } from "../harness/text-messages.ts";
import { Portico } from "../harness/portico.ts";

const PASSWORD = "correct horse battery";
const SMS = "[auth.sms]\nenable_signup = true\nenable_confirmations = true\nmax_frequency = \"0s\"\n";

let count = 0;
const number = (): string => `1555000${String(++count).padStart(4, "0")}`;

describe("in development", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: `${SMS}[auth.sms.test_otp]\n15559990000 = "123456"\n` });
  });
  afterAll(() => portico.dispose());

  const codeTo = async (phone: string, after = 0): Promise<string> => (await textTo(portico.status.MAILPIT_URL, phone, after)).code;

  test("a sign-up is confirmed by the code in the mailbox", async () => {
    const phone = number();
    const client = portico.client();
    const { data, error } = await client.auth.signUp({ phone: `+${phone}`, password: PASSWORD, options: { data: { name: "Ada" } } });
    expect(error).toBeNull();
    expect(data.session).toBeNull();
    expect(data.user).toMatchObject({ phone, user_metadata: { name: "Ada" } });
    const early = await client.auth.signInWithPassword({ phone, password: PASSWORD });
    expect(early.error).toMatchObject({ status: 400, code: "phone_not_confirmed" });

    const token = await codeTo(phone);
    const verified = await client.auth.verifyOtp({ phone, token, type: "sms" });
    expect(verified.error).toBeNull();
    expect(verified.data.user?.phone_confirmed_at).toBeTruthy();
    const again = await portico.client().auth.verifyOtp({ phone, token, type: "sms" });
    expect(again.error).toMatchObject({ status: 403, code: "otp_expired" });
    expect((await portico.client().auth.signInWithPassword({ phone: `+${phone}`, password: PASSWORD })).error).toBeNull();
  });

  test("a code signs in to an existing account, and the response has the message's id", async () => {
    const phone = number();
    const client = portico.client();
    const first = await client.auth.signInWithOtp({ phone });
    expect(first.error).toBeNull();
    const { data } = await client.auth.verifyOtp({ phone, token: await codeTo(phone), type: "sms" });
    expect(data.user?.phone).toBe(phone);
    const second = await portico.client().auth.signInWithOtp({ phone });
    expect(second.error).toBeNull();
    expect(second.data.messageId).toBeTruthy();
    const other = portico.client();
    const { error } = await other.auth.verifyOtp({ phone, token: await codeTo(phone, 1), type: "sms" });
    expect(error).toBeNull();
    expect((await other.auth.getUser()).data.user?.id).toBe(data.user?.id);
  });

  test("an unknown number gets no code where no account may be created", async () => {
    const phone = number();
    const { error } = await portico.client().auth.signInWithOtp({ phone, options: { shouldCreateUser: false } });
    expect(error).toMatchObject({ status: 422, code: "otp_disabled" });
    expect(await textsTo(portico.status.MAILPIT_URL, phone)).toEqual([]);
  });

  test("a code sent again replaces the older one", async () => {
    const phone = number();
    const client = portico.client();
    await client.auth.signInWithOtp({ phone });
    const older = await codeTo(phone);
    expect((await client.auth.resend({ type: "sms", phone })).error).toBeNull();
    const newer = await codeTo(phone, 1);
    if (older !== newer) {
      expect((await client.auth.verifyOtp({ phone, token: older, type: "sms" })).error).toMatchObject({ status: 403 });
    }
    expect((await client.auth.verifyOtp({ phone, token: newer, type: "sms" })).error).toBeNull();
  });

  test("a number is added to an account, and changed", async () => {
    const client = portico.client();
    await client.auth.signUp({ email: `phone-${number()}@portico.test`, password: PASSWORD });
    for (const phone of [number(), number()]) {
      const { data, error } = await client.auth.updateUser({ phone: `+${phone}` });
      expect(error).toBeNull();
      expect(data.user?.new_phone).toBe(phone);
      const verified = await client.auth.verifyOtp({ phone, token: await codeTo(phone), type: "phone_change" });
      expect(verified.error).toBeNull();
      expect(verified.data.user?.phone).toBe(phone);
    }
    expect((await client.auth.getUser()).data.user?.app_metadata["providers"]).toEqual(["email", "phone"]);
  });

  test("a test number has its fixed code and gets no message", async () => {
    const phone = "15559990000";
    const client = portico.client();
    expect((await client.auth.signInWithOtp({ phone })).error).toBeNull();
    expect((await client.auth.verifyOtp({ phone, token: "123456", type: "sms" })).error).toBeNull();
    expect(await textsTo(portico.status.MAILPIT_URL, phone)).toEqual([]);
  });

  test("a malformed number and an unsupported channel are rejected", async () => {
    const bad = await portico.client().auth.signInWithOtp({ phone: "0123" });
    expect(bad.error).toMatchObject({ status: 400, code: "validation_failed", message: "Invalid phone number format (E.164 required)" });
    const channel = await portico.client().auth.signInWithOtp({ phone: number(), options: { channel: "whatsapp" } });
    expect(channel.error).toMatchObject({ status: 400, code: "validation_failed" });
  });
});

interface Call {
  path: string;
  authorization: string | undefined;
  form: Record<string, string>;
}

describe("with Twilio Verify", () => {
  const calls: Call[] = [];
  let standIn: Server;
  let portico: Portico;

  beforeAll(async () => {
    standIn = createServer((request, response) => {
      let body = "";
      request.setEncoding("utf8").on("data", (text: string) => (body += text));
      request.on("end", () => {
        const form = Object.fromEntries(new URLSearchParams(body));
        calls.push({ path: request.url!, authorization: request.headers.authorization, form });
        const respond = (status: number, value: unknown): void => {
          response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
        };
        if (form["To"] === "+15558880000") respond(400, { code: 60200, message: "Invalid parameter `To`", status: 400 });
        else if (request.url!.endsWith("/VerificationCheck")) respond(200, { sid: "VE1", status: form["Code"] === "424242" ? "approved" : "pending" });
        else respond(201, { sid: "VE1", status: "pending" });
      });
    });
    await new Promise<void>((done) => standIn.listen(0, "127.0.0.1", done));
    const { port } = standIn.address() as AddressInfo;
    const account = "[auth.sms.twilio_verify]\nenabled = true\naccount_sid = \"AC1\"\nmessage_service_sid = \"VA1\"\nauth_token = \"t0ken\"\n";
    portico = await Portico.start({ config: SMS + account, files: { "supabase/portico.toml": `[texts]\ngateway_url = "http://127.0.0.1:${String(port)}"\n` } });
  });
  afterAll(async () => {
    await portico.dispose();
    standIn.close();
  });

  test("the gateway creates and verifies the code", async () => {
    const phone = number();
    const client = portico.client();
    const { error } = await client.auth.signInWithOtp({ phone, options: { channel: "whatsapp" } });
    expect(error).toBeNull();
    const wrong = await client.auth.verifyOtp({ phone, token: "111111", type: "sms" });
    expect(wrong.error).toMatchObject({ status: 403, code: "otp_expired" });
    const right = await client.auth.verifyOtp({ phone, token: "424242", type: "sms" });
    expect(right.error).toBeNull();
    expect(right.data.user?.phone).toBe(phone);
    const authorization = `Basic ${Buffer.from("AC1:t0ken").toString("base64")}`;
    const check = (code: string): Call => ({ path: "/v2/Services/VA1/VerificationCheck", authorization, form: { To: `+${phone}`, Code: code } });
    expect(calls.filter(({ form }) => form["To"] === `+${phone}`)).toEqual([
      { path: "/v2/Services/VA1/Verifications", authorization, form: { To: `+${phone}`, Channel: "whatsapp" } },
      check("111111"),
      check("424242"),
    ]);
  });

  test("the gateway's rejection is reported, and nothing is stored", async () => {
    const phone = "15558880000";
    const { error } = await portico.client().auth.signUp({ phone, password: PASSWORD });
    expect(error).toMatchObject({ status: 422, code: "sms_send_failed", message: "Error sending confirmation OTP to provider: Invalid parameter `To`" });
    const later = await portico.client().auth.signInWithPassword({ phone, password: PASSWORD });
    expect(later.error).toMatchObject({ status: 400, code: "invalid_credentials" });
  });
});
