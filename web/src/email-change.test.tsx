import { screen, waitFor, within } from "@testing-library/react";
import { describe, expect, test } from "vitest";
import { ada, config, fakeServer, session, storeSession } from "./testing/fake-server";
import { renderApp } from "./testing/render-app";

const patient = { timeout: 20_000 };
const wanted = "grace@portico.test";
const card = () => screen.findByRole("region", { name: "E-mail address" }, patient);

function changing(emailChange: "new" | "either" | "both") {
  return { ...config, accounts: { ...config.accounts, emailChange } };
}

describe("another address for the account", () => {
  test("is asked for, waited for, and told when it is there", async () => {
    let user = ada;
    const server = fakeServer({
      "PUT /auth/v1/user": () => {
        user = { ...ada, new_email: wanted, email_change_sent_at: new Date().toISOString() };
        return { body: user };
      },
      "GET /auth/v1/user": () => ({ body: user }),
      "POST /auth/v1/token": () => ({ body: session({ user }) }),
    });
    storeSession(session());
    const { user: person } = renderApp("/app", changing("both"));
    await person.click(within(await card()).getByRole("button", { name: "Change address" }));
    const field = await screen.findByLabelText("New e-mail address", {}, patient);
    expect(field).toHaveFocus();
    expect(field).toHaveAccessibleDescription(/one to ada@portico\.test\. The change is made when both are opened\./);
    await person.type(field, wanted);
    await person.click(screen.getByRole("button", { name: "Ask for the change" }));
    expect(await screen.findByText(`Waiting for ${wanted} to be confirmed`, {}, patient)).toBeVisible();
    expect(within(await card()).getByText(/Open the links in both mails, there and at ada@portico\.test/)).toBeVisible();
    expect(within(await card()).getByRole("button", { name: /Send again in \d+ s/ })).toBeDisabled();
    const asked = server.seen.find(({ method }) => method === "PUT");
    expect(asked?.body.email).toBe(wanted);
    expect(decodeURIComponent(asked?.path ?? "")).toContain("redirect_to=http://portico.test/confirm-email-change");

    // Both links are opened on another device; this page looks again when it comes back to the front.
    user = { ...ada, email: wanted };
    window.dispatchEvent(new Event("visibilitychange"));
    document.dispatchEvent(new Event("visibilitychange"));
    expect(await screen.findByText(/Your address is changed/, {}, patient)).toBeVisible();
    expect(within(await card()).getByText(wanted)).toBeVisible();
  });

  test.each([
    ["new", "ada@portico.test", /Opening it makes the change/],
    ["either", "ada@portico.test", /Opening either makes the change/],
    ["both", "", /Opening it makes the change/],
  ] as const)("says what happens next: %s, from %j", async (answering, email, text) => {
    fakeServer();
    storeSession(session({ user: { ...ada, email } }));
    const { user: person } = renderApp("/app", changing(answering));
    await person.click(within(await card()).getByRole("button", { name: email === "" ? "Add an address" : "Change address" }));
    expect(await screen.findByLabelText("New e-mail address", {}, patient)).toHaveAccessibleDescription(text);
  });

  test("that can not be is told at the field, and nothing typed is lost", async () => {
    let refusal = { status: 422, body: { code: "email_exists", message: "taken" } };
    fakeServer({ "PUT /auth/v1/user": () => refusal });
    storeSession(session());
    const { user: person } = renderApp("/app", changing("both"));
    await person.click(within(await card()).getByRole("button", { name: "Change address" }));
    const field = await screen.findByLabelText("New e-mail address", {}, patient);
    const ask = () => person.click(screen.getByRole("button", { name: "Ask for the change" }));
    await person.type(field, "Ada@portico.test");
    await ask();
    await waitFor(() => expect(field).toHaveAccessibleDescription(/That is your address already/), patient);
    await person.clear(field);
    await person.type(field, wanted);
    await ask();
    await waitFor(() => expect(field).toHaveAccessibleDescription(/There is already an account with this address/), patient);
    refusal = { status: 401, body: { code: "insufficient_aal", message: "AAL2" } };
    await ask();
    expect(await within(await card()).findByRole("alert", {}, patient)).toHaveTextContent("second factor");
    refusal = { status: 429, body: { code: "over_email_send_rate_limit", message: "slow" } };
    await ask();
    await waitFor(async () => expect(within(await card()).getByRole("alert")).toHaveTextContent("We just sent you a mail."), patient);
    expect(field).toHaveValue(wanted);
    await person.click(screen.getByRole("button", { name: "Cancel" }));
    expect(within(await card()).getByRole("button", { name: "Change address" })).toHaveFocus();
  });

  test("that is pending shows after a reload, and its mails can be sent again", async () => {
    const pending = { ...ada, new_email: wanted, email_change_sent_at: "2026-11-01T10:00:00Z" };
    const server = fakeServer({ "GET /auth/v1/user": { body: pending }, "PUT /auth/v1/user": { body: { ...pending, email_change_sent_at: new Date().toISOString() } } });
    storeSession(session({ user: pending }));
    const { user: person } = renderApp("/app", changing("both"));
    await person.click(await screen.findByRole("button", { name: "Send both mails again" }, patient));
    expect(await screen.findByRole("button", { name: /Send again in \d+ s/ }, patient)).toBeDisabled();
    expect(server.seen.find(({ method }) => method === "PUT")?.body.email).toBe(wanted);
    await person.click(within(await card()).getByRole("button", { name: "Change address" }));
    expect(await screen.findByLabelText("New e-mail address", {}, patient)).toHaveValue(wanted);
  });
});

describe("the links of a change", () => {
  const pending = { ...ada, new_email: wanted };

  test("the last one shows the new address, though the stored session knew the old one", async () => {
    const changed = { ...ada, email: wanted };
    fakeServer({ "GET /auth/v1/user": { body: changed }, "POST /auth/v1/token": { body: session({ user: changed }) } });
    storeSession(session({ user: pending }));
    renderApp("/confirm-email-change?code=abc");
    expect(await screen.findByRole("heading", { name: "Your address is confirmed" }, patient)).toBeVisible();
    expect(screen.getByText(`From now on it is ${wanted}.`)).toBeVisible();
    expect(window.location.search).toBe("");
  });

  test("the first one of two asks for the other", async () => {
    fakeServer({ "GET /auth/v1/user": { body: pending } });
    storeSession(session({ user: pending }));
    renderApp("/confirm-email-change?message=Confirmation+link+accepted#message=Confirmation+link+accepted&sb=");
    expect(await screen.findByRole("heading", { name: "One more to go" }, patient)).toBeVisible();
    expect(screen.getByText(/once the links in both mails are opened/)).toBeVisible();
    expect(screen.queryByText("Confirmation link accepted")).toBeNull();
  });

  test.each([
    ["?code=abc", "Your address is changed", /sign in with the new one/],
    ["#message=Confirmation+link+accepted&sb=", "One more to go", /Open the link in the mail to the other one too/],
  ])("in a browser that nobody is signed in to: %s", async (end, title, text) => {
    fakeServer();
    renderApp(`/confirm-email-change${end}`);
    expect(await screen.findByRole("heading", { name: title }, patient)).toBeVisible();
    expect(screen.getByText(text)).toBeVisible();
    expect(within(screen.getByRole("main")).getByRole("link", { name: "Sign in" })).toHaveAttribute("href", "/sign-in");
    expect(screen.queryByText(/another browser/)).toBeNull();
  });

  test("one that was used up says what to do", async () => {
    fakeServer({ "GET /auth/v1/user": { body: pending } });
    storeSession(session({ user: pending }));
    renderApp("/confirm-email-change#error=access_denied&error_code=otp_expired&error_description=Email+link+is+invalid+or+has+expired&sb=");
    expect(await screen.findByRole("heading", { name: "The change was not confirmed" }, patient)).toBeVisible();
    expect(screen.getByText(new RegExp(`Ask for the change to ${wanted} again`))).toBeVisible();
  });
});

describe("further ways in", () => {
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
    await screen.findByText("Your ways in");
    await waitFor(() => expect(screen.queryAllByRole("button", { name: "Add Google" })).toHaveLength(count), patient);
    expect(screen.queryAllByRole("button", { name: /^Remove/ })).toHaveLength(2 * count);
  });
});

describe("a link that was opened in another browser", () => {
  test("of a sign-in leads to a new code", async () => {
    fakeServer();
    renderApp("/app?code=abc");
    expect(await screen.findByText(/opened this link in another browser/, {}, patient)).toBeVisible();
    expect(screen.getByRole("link", { name: "Sign in with a new code" })).toHaveAttribute("href", "/verify");
  });

  test("of a recovery leads to a new mail, told once", async () => {
    fakeServer();
    renderApp("/update-password?code=abc");
    expect(await screen.findByRole("heading", { name: "This is another browser" }, patient)).toBeVisible();
    expect(screen.getByRole("link", { name: "Send a new one" })).toHaveAttribute("href", "/forgot-password");
    expect(screen.queryByText(/opened this link in another browser/)).toBeNull();
  });

  test("leaves the code of its mail spent, and the page says how to go on", async () => {
    window.sessionStorage.setItem("portico.pending-code", JSON.stringify({ address: "ada@portico.test", kind: "signup", sentAt: 0, next: "/app/files" }));
    fakeServer({ "POST /auth/v1/verify": { status: 403, body: { code: "otp_expired", message: "Token has expired or is invalid" } } });
    const { user: person } = renderApp("/verify");
    await person.type(await screen.findByLabelText("Six-digit code", {}, patient), "123456");
    expect(await screen.findByText(/Opened the link in that mail elsewhere\?/, {}, patient)).toBeVisible();
    expect(screen.getByRole("link", { name: "sign in" })).toHaveAttribute("href", "/sign-in?next=%2Fapp%2Ffiles");
  });
});
