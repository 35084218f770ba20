import { AuthApiError, AuthRetryableFetchError, AuthSessionMissingError, AuthWeakPasswordError } from "@supabase/auth-js";
import { describe, expect, test, vi } from "vitest";
import { knownError } from "../features/account/avatar/changes";
import { config, fakeServer } from "../testing/fake-server";
import { openApi } from "./api";
import { openAuth } from "./auth/client";
import { openBackend } from "./backend";
import { describeError } from "./errors";
import { observedFetch } from "./http";
import { z } from "./zod";

describe("a failure is described by its code", () => {
  test.each([
    ["invalid_credentials", "Wrong email or password."],
    ["email_not_confirmed", "This email address isn’t confirmed yet. Enter the code we sent you first."],
    ["signup_disabled", "New accounts can’t be created at the moment."],
    ["bad_oauth_state", "This sign-in took too long or was started elsewhere. Try again."],
  ])("%s", (code, message) => {
    expect(describeError(new AuthApiError("raw", 400, code)).message).toBe(message);
  });

  test("with the field that it belongs to", () => {
    expect(describeError(new AuthApiError("raw", 403, "otp_expired")).field).toBe("code");
    expect(describeError(new AuthApiError("raw", 422, "email_exists")).field).toBe("email");
  });

  test("an unknown code shows the server's message", () => {
    expect(describeError(new AuthApiError("The moon is full", 400, "full_moon")).message).toBe("The moon is full");
  });

  test("a weak password lists the server's reasons", () => {
    const described = describeError(new AuthWeakPasswordError("weak", 422, ["length", "pwned"]));
    expect(described.reasons).toEqual([
      "It’s too short.",
      "It appeared in a data breach, so others may guess it.",
    ]);
  });

  test("no response, and no session", () => {
    expect(describeError(new AuthRetryableFetchError("Failed to fetch", 0)).message).toMatch(/can’t reach the server/);
    expect(describeError(new AuthSessionMissingError()).message).toMatch(/signed out/);
  });

  test.each(["unexpected_failure", "server_error", "temporarily_unavailable"])("of a redirect, %s", (code) => {
    expect(describeError({ code, message: "", requestId: null }).message).toBe("Something went wrong on our side. Try again later.");
    expect(describeError({ code, message: "", requestId: "0198-ab" }).message).toBe(
      "Something went wrong on our side. Try again later. Request ID: 0198-ab",
    );
  });

  test("in the program shows no internals", () => {
    const invalid = new Error('[{"code":"invalid_type","path":["id"]}]');
    for (const error of [invalid, new TypeError("x is not a function"), "odd", null]) {
      expect(describeError(error).message).toBe("Something went wrong. Try again.");
    }
    expect(describeError(new AuthApiError("invalid character 'x'", 400, "validation_failed")).message).toMatch(/Check what you entered/);
  });
});

describe("a failure on the server names its own request, and no internals", () => {
  const { client } = openAuth(config);
  const requests: [string, () => Promise<unknown>][] = [
    ["the authentication client", async () => (await client.signInWithPassword({ email: "ada@portico.test", password: "x" })).error],
    ["our own calls", () => openApi(config, client).get("/own", z.unknown()).catch((error: unknown) => error)],
    ["the storage client", async () => knownError((await (await openBackend(config, client)).storage.from("files").upload("a", new Blob(["b"]))).error)],
  ];

  test.each(requests)("by %s", async (_name, fail) => {
    // The client reports the first of these statuses as a failure of the network.
    for (const status of [500, 507]) {
      let id: string | null = "0198-ab";
      const respond = () => ({
        status,
        body: { code: "unexpected_failure", message: "column users.x does not exist" },
        ...(id !== null && { headers: { "X-Request-Id": id } }),
      });
      fakeServer({ "POST /auth/v1/token": respond, "GET /own": respond, "POST /storage/v1/object/files/a": respond });
      const first = await fail();
      id = "0198-cd";
      const second = await fail();
      id = null;
      const third = await fail();
      expect([first, second, third].map((error) => describeError(error).message)).toEqual([
        "Something went wrong on our side. Try again later. Request ID: 0198-ab",
        "Something went wrong on our side. Try again later. Request ID: 0198-cd",
        "Something went wrong on our side. Try again later.",
      ]);
    }
  });
});

test("a rate limit names the time of the next try when the server did", async () => {
  const limited = new AuthApiError("slow down", 429, "over_email_send_rate_limit");
  expect(describeError(limited).message).toMatch(/Wait a moment/);
  vi.useFakeTimers({ now: 0 });
  fakeServer({ "POST /auth/v1/otp": { status: 429, body: {}, headers: { "Retry-After": "42" } } });
  await observedFetch("http://portico.test/auth/v1/otp", { method: "POST" });
  expect(describeError(limited).message).toBe("We just sent you an email. Try again in 42 seconds.");
  vi.useRealTimers();
});
