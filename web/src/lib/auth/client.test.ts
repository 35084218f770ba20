import { describe, expect, test, vi } from "vitest";
import { ada, config, fakeServer, session } from "../../testing/fake-server";
import { openAuth } from "./client";

test("sessions under earlier keys are deleted at the start, and nothing else", async () => {
  fakeServer();
  const keep = { "portico.session": JSON.stringify(session()), "portico.theme": "dark", "sb-theme": "x" };
  const drop = {
    "supabase.auth.token": "old",
    "sb-abcdef-auth-token": "old",
    "sb-127-auth-token-code-verifier": "old",
    "sb-abcdef-auth-token.0": "old",
  };
  for (const [key, value] of Object.entries({ ...keep, ...drop })) window.localStorage.setItem(key, value);
  await openAuth(config).redirectOutcome;
  expect(Object.keys(window.localStorage).toSorted()).toEqual(Object.keys(keep).toSorted());
});

test("the stored session has its five parts", async () => {
  fakeServer({ "POST /auth/v1/token": { body: session() } });
  const { client } = openAuth(config);
  await client.signInWithPassword({ email: "ada@portico.test", password: "correct horse" });
  const stored: unknown = JSON.parse(window.localStorage.getItem("portico.session") ?? "null");
  expect(stored).toMatchObject({
    access_token: expect.any(String) as string,
    refresh_token: "refresh-session-1",
    expires_at: expect.any(Number) as number,
    token_type: "bearer",
    user: { id: ada.id },
  });
});

test("a code in the address becomes a session and disappears", async () => {
  window.localStorage.setItem("portico.session-code-verifier", JSON.stringify("verifier"));
  window.history.replaceState(null, "", "/app?code=abc&tab=1");
  const server = fakeServer({ "POST /auth/v1/token": { body: session() } });
  const { redirectOutcome, client } = openAuth(config);
  expect(await redirectOutcome).toBeNull();
  expect(server.seen[0]).toMatchObject({ path: "/auth/v1/token?grant_type=pkce", body: { auth_code: "abc" } });
  expect((await client.getSession()).data.session?.user.id).toBe(ada.id);
  expect(window.location.search).toBe("?tab=1");
});

test("a code whose sign-in began in another browser explains itself", async () => {
  fakeServer();
  window.history.replaceState(null, "", "/app?code=abc");
  expect(await openAuth(config).redirectOutcome).toMatchObject({ kind: "other-browser" });
  expect(window.location.href).toBe("http://portico.test/app");
});

test.each([
  ["/app?error=access_denied&error_code=otp_expired&error_description=Email+link+is+invalid+or+has+expired"],
  ["/app#error=access_denied&error_code=otp_expired&error_description=Email+link+is+invalid+or+has+expired&sb="],
])("an error in the address is shown with its description and removed: %s", async (address) => {
  fakeServer();
  window.history.replaceState(null, "", address);
  const { redirectOutcome, client } = openAuth(config);
  expect(await redirectOutcome).toMatchObject({
    kind: "refused",
    message: "This code or link is wrong or has expired. Request a new one.",
    detail: "Email link is invalid or has expired",
  });
  expect(window.location.href).toBe("http://portico.test/app");
  const { error } = await client.initialize();
  expect(error?.message).toBe("Email link is invalid or has expired");
});

test("an implicit-flow address, which this flow does not accept, is an authentication error without tokens left behind", async () => {
  fakeServer();
  window.history.replaceState(null, "", "/app#access_token=a&refresh_token=r&expires_in=3600&token_type=bearer");
  expect(await openAuth(config).redirectOutcome).toMatchObject({ kind: "refused", message: "Not a valid PKCE flow url." });
  expect(window.location.hash).toBe("");
});

test("sign-up without address and phone has the specified message", async () => {
  fakeServer();
  const { client } = openAuth(config);
  // The types forbid it; a caller without them gets this error.
  const nothing = { password: "correct horse" } as { email: string; password: string };
  const words = "You must provide either an email or phone number and a password";
  expect((await client.signUp(nothing)).error?.message).toBe(words);
  expect((await client.signInWithPassword(nothing)).error?.message).toBe(words);
});

test("the first of two links of an email change is shown by its page", async () => {
  fakeServer();
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  window.history.replaceState(null, "", "/confirm-email-change#message=Confirmation+link+accepted&sb=");
  expect(await openAuth(config).redirectOutcome).toMatchObject({ kind: "change-half-done", shownIn: "page" });
  window.history.replaceState(null, "", "/app#message=Confirmation+link+accepted&sb=");
  expect(await openAuth(config).redirectOutcome).toMatchObject({ kind: "note", shownIn: "banner", message: "One more step: open the link in the email we sent to your other address." });
});

describe("a failure of the server in the address", () => {
  test.each(["?", "#sb=&"])("names its request, and is removed: %s", async (start) => {
    fakeServer();
    window.history.replaceState(null, "", `/app${start}error=server_error&error_code=unexpected_failure&error_id=0198-ab&error_description=Oops`);
    expect(await openAuth(config).redirectOutcome).toMatchObject({
      kind: "refused",
      message: "Something went wrong on our side. Try again later. Request ID: 0198-ab",
      detail: null,
    });
    expect(window.location.href).toBe("http://portico.test/app");
  });

  test.each(["Call-555-0100", "a".repeat(37), "a b", "", "0198-ab%0Acall"])("names no request by an id that cannot be one: %s", async (id) => {
    fakeServer();
    window.history.replaceState(null, "", `/app?error=temporarily_unavailable&error_id=${id}`);
    expect(await openAuth(config).redirectOutcome).toMatchObject({ message: "Something went wrong on our side. Try again later." });
    expect(window.location.href).toBe("http://portico.test/app");
  });
});

test.each([
  "error=access_denied&error_description=Call+555-0100",
  "error=Call+555-0100",
  "error_code=Call+555-0100&error=server_error",
  "error_code=toString&error_description=Call+555-0100",
  "error_code=unexpected_failure&error_description=Call+555-0100",
  "error_code=unexpected_failure&error_id=call",
  "error_code=full_moon&error_id=555-0100",
  "error_description=Unverified+email+with+call.+Verify+the+email+with+call+in+order+to+sign+in+555-0100",
  "error_description=Unverified+email+with+call_us.+Verify+the+email+with+call_us+in+order+to+sign+in",
  "message=Call+555-0100",
])("no text of the address is shown: %s", async (said) => {
  fakeServer();
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  for (const address of [`/app?${said}`, `/app#${said}&sb=`]) {
    window.history.replaceState(null, "", address);
    const redirectOutcome = await openAuth(config).redirectOutcome;
    expect(JSON.stringify(redirectOutcome)).not.toMatch(/555|call/i);
    if (said.startsWith("error")) expect(redirectOutcome).toMatchObject({ kind: "refused", message: expect.stringMatching(/^(The sign-in was|Something went)/) as string });
  }
});

test("a code on the page of an email change means that it is made, in every browser", async () => {
  fakeServer();
  window.history.replaceState(null, "", "/confirm-email-change?code=abc");
  expect(await openAuth(config).redirectOutcome).toMatchObject({ kind: "change-done", shownIn: "page" });
  expect(window.location.href).toBe("http://portico.test/confirm-email-change");
});
