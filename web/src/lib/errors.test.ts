import { AuthApiError, AuthRetryableFetchError, AuthSessionMissingError, AuthWeakPasswordError } from "@supabase/auth-js";
import { describe, expect, test, vi } from "vitest";
import { fakeServer } from "../testing/fake-server";
import { describeError } from "./errors";
import { observedFetch } from "./http";

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

  test("on the server names the request, and no internals", async () => {
    fakeServer({ "POST /auth/v1/otp": { status: 500, body: {}, headers: { "X-Request-Id": "0198-ab" } } });
    await observedFetch("http://portico.test/auth/v1/otp", { method: "POST" });
    const failure = new AuthApiError("column users.x does not exist", 500, "unexpected_failure");
    // The client reports most of these statuses as failures of the network.
    for (const error of [failure, new AuthRetryableFetchError("{}", 500), new AuthRetryableFetchError("", 503)]) {
      expect(describeError(error).message).toBe("Something went wrong on our side. Try again later. Request ID: 0198-ab");
    }
  });

  test("in the program shows no internals", () => {
    const invalid = new Error('[{"code":"invalid_type","path":["id"]}]');
    for (const error of [invalid, new TypeError("x is not a function"), "odd", null]) {
      expect(describeError(error).message).toBe("Something went wrong. Try again.");
    }
    expect(describeError(new AuthApiError("invalid character 'x'", 400, "validation_failed")).message).toMatch(/Check what you entered/);
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
