import type { User } from "@supabase/supabase-js";
import { screen, waitFor, within } from "@testing-library/react";
import { describe, expect, test } from "vitest";
import { ada, config, fakeServer, session, storeSession } from "./testing/fake-server";
import { renderApp } from "./testing/render-app";

const patient = { timeout: 20_000 };
const newAddress = "grace@portico.test";
const card = () => screen.findByRole("region", { name: "Email address" }, patient);

function withEmailChange(emailChange: "new" | "either" | "both") {
  return { ...config, accounts: { ...config.accounts, emailChange } };
}

describe("an email change", () => {
  test("is requested, waits for its confirmation, and is announced once it is made", async () => {
    let user = ada;
    const server = fakeServer({
      "PUT /auth/v1/user": () => {
        user = { ...ada, new_email: newAddress, email_change_sent_at: new Date().toISOString() };
        return { body: user };
      },
      "GET /auth/v1/user": () => ({ body: user }),
      "POST /auth/v1/token": () => ({ body: session({ user }) }),
    });
    storeSession(session());
    const { user: browser } = renderApp("/app", withEmailChange("both"));
    await browser.click(within(await card()).getByRole("button", { name: "Change email" }));
    const field = await screen.findByLabelText("New email address", {}, patient);
    expect(field).toHaveFocus();
    expect(field).toHaveAccessibleDescription(/one to ada@portico\.test\. Open both to make the change\./);
    await browser.type(field, newAddress);
    await browser.click(screen.getByRole("button", { name: "Send confirmation" }));
    expect(await screen.findByText(`Confirm ${newAddress}`, {}, patient)).toBeVisible();
    expect(within(await card()).getByText(/Open the links in both emails, there and at ada@portico\.test/)).toBeVisible();
    expect(within(await card()).getByRole("button", { name: /Resend in \d+ s/ })).toBeDisabled();
    const request = server.seen.find(({ method }) => method === "PUT");
    expect(request?.body.email).toBe(newAddress);
    expect(decodeURIComponent(request?.path ?? "")).toContain("redirect_to=http://portico.test/confirm-email-change");

    // Both links are opened on another device; this page requests the user when it becomes visible.
    user = { ...ada, email: newAddress };
    window.dispatchEvent(new Event("visibilitychange"));
    document.dispatchEvent(new Event("visibilitychange"));
    expect(await screen.findByText(/Your email address was changed/, {}, patient)).toBeVisible();
    expect(within(await card()).getByText(newAddress)).toBeVisible();
  });

  test.each([
    ["new", "ada@portico.test", /Open it to make the change/],
    ["either", "ada@portico.test", /Open either to make the change/],
    ["both", "", /Open it to make the change/],
  ] as const)("explains what follows: %s, from %j", async (emailChange, email, text) => {
    fakeServer();
    storeSession(session({ user: { ...ada, email } }));
    const { user: browser } = renderApp("/app", withEmailChange(emailChange));
    await browser.click(within(await card()).getByRole("button", { name: email === "" ? "Add email" : "Change email" }));
    expect(await screen.findByLabelText("New email address", {}, patient)).toHaveAccessibleDescription(text);
  });

  test("that is rejected shows the error at the field and keeps the input", async () => {
    let refusal = { status: 422, body: { code: "email_exists", message: "taken" } };
    fakeServer({ "PUT /auth/v1/user": () => refusal });
    storeSession(session());
    const { user: browser } = renderApp("/app", withEmailChange("both"));
    await browser.click(within(await card()).getByRole("button", { name: "Change email" }));
    const field = await screen.findByLabelText("New email address", {}, patient);
    const submit = () => browser.click(screen.getByRole("button", { name: "Send confirmation" }));
    await browser.type(field, "Ada@portico.test");
    await submit();
    await waitFor(() => expect(field).toHaveAccessibleDescription(/This is already your email address/), patient);
    await browser.clear(field);
    await browser.type(field, newAddress);
    await submit();
    await waitFor(() => expect(field).toHaveAccessibleDescription(/An account with this email address already exists/), patient);
    refusal = { status: 401, body: { code: "insufficient_aal", message: "AAL2" } };
    await submit();
    expect(await within(await card()).findByRole("alert", {}, patient)).toHaveTextContent("second factor");
    refusal = { status: 429, body: { code: "over_email_send_rate_limit", message: "slow" } };
    await submit();
    await waitFor(async () => expect(within(await card()).getByRole("alert")).toHaveTextContent("We just sent you an email."), patient);
    expect(field).toHaveValue(newAddress);
    await browser.click(screen.getByRole("button", { name: "Cancel" }));
    expect(within(await card()).getByRole("button", { name: "Change email" })).toHaveFocus();
  });

  test("that is pending shows after a reload, and its emails can be sent again", async () => {
    const pending = { ...ada, new_email: newAddress, email_change_sent_at: "2026-11-01T10:00:00Z" };
    const server = fakeServer({ "GET /auth/v1/user": { body: pending }, "PUT /auth/v1/user": { body: { ...pending, email_change_sent_at: new Date().toISOString() } } });
    storeSession(session({ user: pending }));
    const { user: browser } = renderApp("/app", withEmailChange("both"));
    await browser.click(await screen.findByRole("button", { name: "Resend both emails" }, patient));
    expect(await screen.findByRole("button", { name: /Resend in \d+ s/ }, patient)).toBeDisabled();
    expect(server.seen.find(({ method }) => method === "PUT")?.body.email).toBe(newAddress);
    await browser.click(within(await card()).getByRole("button", { name: "Change email" }));
    expect(await screen.findByLabelText("New email address", {}, patient)).toHaveValue(newAddress);
  });
});

describe("a change that one of two addresses has confirmed", () => {
  const half = { ...ada, new_email: newAddress, email_change_sent_at: "2026-11-01T10:00:00Z", updated_at: "2026-11-01T10:01:00Z" };
  const text = `${newAddress} is confirmed. To make the change, open the link in the email to ada@portico.test`;

  test("shows after a reload which link or code is left", async () => {
    fakeServer({
      "GET /auth/v1/user": { body: half },
      "GET /auth/v1/user/email-change": { body: { new_email: newAddress, confirmed: "new" } },
    });
    storeSession(session({ user: half }));
    const { user: browser } = renderApp("/app", withEmailChange("both"));
    expect(await within(await card()).findByText(text, { exact: false }, patient)).toBeVisible();
    await browser.click(screen.getByRole("button", { name: "Enter a code instead" }));
    expect(screen.getByLabelText("Code sent to ada@portico.test")).toHaveFocus();
    expect(screen.queryByRole("button", { name: /^Use the code/ })).toBeNull();
  });

  test("is noticed while the page is open, and new emails need both again", async () => {
    let user: User = { ...half, updated_at: half.email_change_sent_at };
    let confirmed: string | null = null;
    fakeServer({
      "GET /auth/v1/user": () => ({ body: user }),
      "GET /auth/v1/user/email-change": () => ({ body: { new_email: newAddress, confirmed } }),
      "PUT /auth/v1/user": () => {
        const now = new Date().toISOString();
        [user, confirmed] = [{ ...user, email_change_sent_at: now, updated_at: now }, null];
        return { body: user };
      },
    });
    storeSession(session({ user }));
    const { user: browser } = renderApp("/app", withEmailChange("both"));
    expect(await within(await card()).findByText(/Open the links in both emails/, {}, patient)).toBeVisible();
    [user, confirmed] = [half, "new"];
    window.dispatchEvent(new Event("visibilitychange"));
    document.dispatchEvent(new Event("visibilitychange"));
    expect(await within(await card()).findByText(text, { exact: false }, patient)).toBeVisible();
    await browser.click(screen.getByRole("button", { name: "Resend both emails" }));
    expect(await within(await card()).findByText(/Open the links in both emails/, {}, patient)).toBeVisible();
  });

  test.each([
    ["of another change", { body: { new_email: "other@portico.test", confirmed: "new" } }],
    ["that failed", { status: 500, body: { message: "broken" } }],
    ["without an address", { body: { new_email: newAddress, confirmed: null } }],
  ])("explains both links after an answer %s", async (_, answer) => {
    const server = fakeServer({ "GET /auth/v1/user": { body: half }, "GET /auth/v1/user/email-change": answer });
    storeSession(session({ user: half }));
    renderApp("/app", withEmailChange("both"));
    expect(await within(await card()).findByText(/Open the links in both emails/, {}, patient)).toBeVisible();
    await waitFor(() => expect(server.paths()).toContain("GET /auth/v1/user/email-change"), patient);
    expect(within(await card()).getByText(/Open the links in both emails/)).toBeVisible();
  });
});

describe("the codes of a change", () => {
  const second = { ...session({ id: "of-the-code" }), user: { ...ada, email: newAddress } };

  test("are typed one after the other, and leave the session of this browser as it is", async () => {
    let user: User = { ...ada, new_email: newAddress, email_change_sent_at: "2026-11-01T10:00:00Z" };
    const server = fakeServer({
      "GET /auth/v1/user": () => ({ body: user }),
      "POST /auth/v1/token": () => ({ body: session({ user }) }),
      "POST /auth/v1/verify": ({ body }) => {
        if (body.token === "111111" && body.email === newAddress) return { body: { code: "200", msg: "Confirmation link accepted" } };
        if (body.token !== "222222" || body.email !== "ada@portico.test") {
          return { status: 403, body: { code: "otp_expired", message: "Token has expired or is invalid" } };
        }
        user = { ...ada, email: newAddress };
        return { body: second };
      },
    });
    storeSession(session({ user }));
    const { user: browser } = renderApp("/app", withEmailChange("both"));
    await browser.click(await screen.findByRole("button", { name: "Enter the codes instead" }, patient));
    const first = screen.getByLabelText(`Code sent to ${newAddress}`);
    expect(first).toHaveFocus();
    await browser.type(first, "999999");
    await waitFor(() => expect(first).toHaveAccessibleDescription(/wrong or has expired/), patient);
    await browser.clear(first);
    await browser.type(first, "111111");
    expect(await screen.findByText(`${newAddress} is confirmed.`, {}, patient)).toBeVisible();
    // The other code follows by itself.
    const other = screen.getByLabelText("Code sent to ada@portico.test");
    expect(other).toHaveFocus();
    await browser.type(other, "222222");
    expect(await screen.findByText(/Your email address was changed/, {}, patient)).toBeVisible();

    const logout = server.seen.find(({ path }) => path.startsWith("/auth/v1/logout"));
    expect([logout?.path, logout?.headers.get("Authorization")]).toEqual(["/auth/v1/logout?scope=local", `Bearer ${second.access_token}`]);
    expect(JSON.parse(window.localStorage.getItem("portico.session") ?? "{}")).toMatchObject({ refresh_token: "refresh-session-1", user: { email: newAddress } });
    const types = server.seen.filter(({ path }) => path.startsWith("/auth/v1/verify")).map(({ body }) => body.type);
    expect(types).toEqual(["email_change", "email_change", "email_change"]);
  });

  test("are one where only the new address confirms", async () => {
    const user = { ...ada, new_email: newAddress, email_change_sent_at: "2026-11-01T10:00:00Z" };
    fakeServer({ "GET /auth/v1/user": { body: user } });
    storeSession(session({ user }));
    const { user: browser } = renderApp("/app", withEmailChange("new"));
    await browser.click(await screen.findByRole("button", { name: "Enter a code instead" }, patient));
    expect(screen.getByLabelText(`Code sent to ${newAddress}`)).toHaveFocus();
    expect(screen.queryByRole("button", { name: /^Use the code/ })).toBeNull();
  });
});

describe("the links of a change", () => {
  const pending = { ...ada, new_email: newAddress };

  test("the last one shows the new address, although the stored session has the old one", async () => {
    const changed = { ...ada, email: newAddress };
    fakeServer({ "GET /auth/v1/user": { body: changed }, "POST /auth/v1/token": { body: session({ user: changed }) } });
    storeSession(session({ user: pending }));
    renderApp("/confirm-email-change?code=abc");
    expect(await screen.findByRole("heading", { name: "Email address confirmed" }, patient)).toBeVisible();
    expect(screen.getByText(`Your email address is now ${newAddress}.`)).toBeVisible();
    expect(window.location.search).toBe("");
  });

  test("the first one of two requires the other", async () => {
    fakeServer({ "GET /auth/v1/user": { body: pending } });
    storeSession(session({ user: pending }));
    renderApp("/confirm-email-change?message=Confirmation+link+accepted#message=Confirmation+link+accepted&sb=");
    expect(await screen.findByRole("heading", { name: "One more step" }, patient)).toBeVisible();
    expect(screen.getByText(/once you open the links in both emails/)).toBeVisible();
    expect(screen.queryByText("Confirmation link accepted")).toBeNull();
  });

  test.each([
    ["?code=abc", "Email address changed", /Use the new address to sign in/],
    ["#message=Confirmation+link+accepted&sb=", "One more step", /open the link in the email we sent to your other address/],
  ])("in a browser without a session: %s", async (end, title, text) => {
    fakeServer();
    renderApp(`/confirm-email-change${end}`);
    expect(await screen.findByRole("heading", { name: title }, patient)).toBeVisible();
    expect(screen.getByText(text)).toBeVisible();
    expect(within(screen.getByRole("main")).getByRole("link", { name: "Sign in" })).toHaveAttribute("href", "/sign-in");
    expect(screen.queryByText(/another browser/)).toBeNull();
  });

  test("a spent one explains what to do", async () => {
    fakeServer({ "GET /auth/v1/user": { body: pending } });
    storeSession(session({ user: pending }));
    renderApp("/confirm-email-change#error=access_denied&error_code=otp_expired&error_description=Email+link+is+invalid+or+has+expired&sb=");
    expect(await screen.findByRole("heading", { name: "The change was not confirmed" }, patient)).toBeVisible();
    expect(screen.getByText(new RegExp(`change your address to ${newAddress} again`))).toBeVisible();
  });
});

describe("further identities", () => {
  const google = { id: "g", identity_id: "g", user_id: ada.id, provider: "google", identity_data: { email: "ada@gmail.test" } };
  const email = { ...google, id: "e", identity_id: "e", provider: "email" };

  test.each([
    [false, 0],
    [true, 1],
  ])("are added and removed only where the server allows it: %s", async (manualLinking, count) => {
    fakeServer();
    storeSession(session({ user: { ...ada, identities: [email, { ...google, id: "h", identity_id: "h", provider: "github" }] } }));
    renderApp("/app", { ...config, accounts: { ...config.accounts, manualLinking } });
    expect(await screen.findByText("GitHub", {}, patient)).toBeVisible();
    await screen.findByText("Sign-in methods");
    await waitFor(() => expect(screen.queryAllByRole("button", { name: "Add Google" })).toHaveLength(count), patient);
    expect(screen.queryAllByRole("button", { name: /^Remove/ })).toHaveLength(2 * count);
  });
});

describe("a link that was opened in another browser", () => {
  test("of a sign-in leads to a new code", async () => {
    fakeServer();
    renderApp("/app?code=abc");
    expect(await screen.findByText(/opened in a different browser/, {}, patient)).toBeVisible();
    expect(screen.getByRole("link", { name: "Sign in with a new code" })).toHaveAttribute("href", "/verify");
  });

  test("of a recovery leads to a new email, and is explained once", async () => {
    fakeServer();
    renderApp("/update-password?code=abc");
    expect(await screen.findByRole("heading", { name: "Different browser" }, patient)).toBeVisible();
    expect(screen.getByRole("link", { name: "Request a new one" })).toHaveAttribute("href", "/forgot-password");
    expect(screen.queryByText(/opened in a different browser/)).toBeNull();
  });

  test("spends the code of its email, and the page links to the sign-in", async () => {
    window.sessionStorage.setItem("portico.pending-code", JSON.stringify({ address: "ada@portico.test", kind: "signup", sentAt: 0, next: "/app/files" }));
    fakeServer({ "POST /auth/v1/verify": { status: 403, body: { code: "otp_expired", message: "Token has expired or is invalid" } } });
    const { user: browser } = renderApp("/verify");
    await browser.type(await screen.findByLabelText("Six-digit code", {}, patient), "123456");
    expect(await screen.findByText(/Already opened the link in that email\?/, {}, patient)).toBeVisible();
    expect(screen.getByRole("link", { name: "sign in" })).toHaveAttribute("href", "/sign-in?next=%2Fapp%2Ffiles");
  });
});
