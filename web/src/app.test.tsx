import { act, screen, waitFor, within } from "@testing-library/react";
import { describe, expect, test, vi } from "vitest";
import { ada, config, fakeServer, session, storeSession } from "./testing/fake-server";
import { renderApp } from "./testing/render-app";
import { TabChannel } from "./testing/tab-channel";

const patient = { timeout: 20_000 };

describe("the landing page", () => {
  test("offers sign-in to visitors, and the account to signed-in users", async () => {
    fakeServer();
    const { unmount } = renderApp("/");
    expect(await screen.findByRole("button", { name: "Continue with Google" }, patient)).toBeEnabled();
    expect(screen.getByRole("link", { name: "Create an account" })).toHaveAttribute("href", "/sign-up");
    unmount();
    storeSession(session());
    renderApp("/");
    expect(await screen.findByRole("link", { name: "Open your account" }, patient)).toHaveAttribute("href", "/app");
    expect(screen.queryByRole("button", { name: "Continue with Google" })).toBeNull();
  });

  test("leads on without a page load", async () => {
    fakeServer();
    const { user, beacons } = renderApp("/");
    await user.click(await screen.findByRole("link", { name: "Create an account" }, patient));
    expect(await screen.findByRole("heading", { name: "Create your account" }, patient)).toBeVisible();
    await waitFor(() => expect(beacons.map(({ properties }) => properties.route)).toEqual(["/", "/sign-up"]));
  });

  test("has one title, and a heading for each thing that users can do", async () => {
    fakeServer();
    const headings = (level: number) => screen.getAllByRole("heading", { level }).map(({ textContent }) => textContent);
    const { unmount } = renderApp("/");
    await screen.findByRole("link", { name: "Create an account" }, patient);
    expect(headings(1)).toEqual(["Accounts and data for your app, in one program."]);
    expect(headings(2)).toEqual(["Sign in your way", "See every device", "Private by default"]);
    unmount();
    renderApp("/", { ...config, brand: { ...config.brand, name: "Harbour" } });
    await screen.findByRole("link", { name: "Create an account" }, patient);
    expect(headings(1)).toEqual(["Your Harbour account"]);
  });
});

describe("the focus", () => {
  test("moves to the start of the page after a navigation, and is the browser’s on the first page", async () => {
    fakeServer();
    const { user } = renderApp("/");
    const link = await screen.findByRole("link", { name: "Create an account" }, patient);
    expect(document.body).toHaveFocus();
    await user.click(link);
    await screen.findByRole("heading", { name: "Create your account" }, patient);
    expect(screen.getByRole("main")).toHaveFocus();
    await user.click(within(screen.getByRole("main")).getByRole("link", { name: "Sign in" }));
    await screen.findByRole("heading", { name: "Welcome back" }, patient);
    expect(screen.getByRole("main")).toHaveFocus();
  });
});

describe("/app", () => {
  test("sends a visitor to sign in, and back to the same address after", async () => {
    fakeServer({
      "POST /auth/v1/token": ({ body }) =>
        body.password === "correct horse"
          ? { body: session() }
          : { status: 400, body: { code: "invalid_credentials", message: "Invalid login credentials" } },
    });
    const { user } = renderApp("/app?tab=sessions");
    await screen.findByRole("heading", { name: "Welcome back" }, patient);
    expect(window.location.search).toBe("?next=%2Fapp%3Ftab%3Dsessions");

    const email = await screen.findByLabelText("Email", {}, patient);
    expect(email).toBeRequired();
    expect(screen.getByLabelText("Password")).toBeRequired();
    await user.type(email, "ada@portico.test");
    await user.type(screen.getByLabelText("Password"), "wrong");
    await user.click(screen.getByRole("button", { name: "Sign in" }));
    expect(await screen.findByRole("alert", {}, patient)).toHaveTextContent("Wrong email or password.");
    // The input is kept.
    expect(screen.getByLabelText("Email")).toHaveValue("ada@portico.test");
    expect(screen.getByLabelText("Password")).toHaveValue("wrong");

    await user.clear(screen.getByLabelText("Password"));
    await user.type(screen.getByLabelText("Password"), "correct horse");
    await user.click(screen.getByRole("button", { name: "Sign in" }));
    expect(await screen.findByRole("heading", { name: "Hello, Ada Byron" }, patient)).toBeVisible();
    expect(window.location.pathname + window.location.search).toBe("/app?tab=sessions");
  });

  test("shows the user and every session, and ends sessions", async () => {
    let sessions = [
      { id: "a", created_at: "2026-11-01T10:00:00Z", user_agent: "Mozilla/5.0 (X11; Linux) Firefox/140.0", ip: "192.0.2.1", current: true },
      { id: "b", created_at: "2026-11-02T10:00:00Z", user_agent: "Mozilla/5.0 (iPhone) Version/18 Safari/604.1", ip: null, current: false },
    ];
    const server = fakeServer({
      "GET /auth/v1/sessions": () => ({ body: sessions }),
      "DELETE /auth/v1/sessions/b": () => {
        sessions = sessions.filter(({ id }) => id !== "b");
        return { status: 204 };
      },
    });
    storeSession(session());
    const { user } = renderApp("/app");
    const list = await screen.findByRole("region", { name: "Active sessions" }, patient);
    expect(await within(list).findByText("2 sessions", {}, patient)).toBeVisible();
    expect(within(list).getByText("Firefox on Linux")).toHaveTextContent("This device");
    await user.click(within(list).getByRole("button", { name: "Sign out Safari on iPhone" }));
    expect(await within(list).findByText("1 session", {}, patient)).toBeVisible();
    expect(server.paths()).toContain("DELETE /auth/v1/sessions/b");
  });

  test("offers a retry when the sessions cannot be loaded", async () => {
    fakeServer({ "GET /auth/v1/sessions": { status: 500, body: { message: "broken" } } });
    storeSession(session());
    renderApp("/app");
    expect(await screen.findByText(/could not be loaded/, {}, patient)).toBeVisible();
    expect(screen.getByRole("button", { name: "Try again" })).toBeEnabled();
  });

  test("shows that the session has ended, with a link to sign in again", async () => {
    fakeServer({ "POST /auth/v1/token": { status: 400, body: { code: "refresh_token_not_found", message: "gone" } } });
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    storeSession(session({ expiresIn: -10 }));
    renderApp("/app?tab=2");
    expect(await screen.findByRole("heading", { name: "You have been signed out" }, patient)).toBeVisible();
    expect(screen.getByRole("link", { name: "Sign in again" })).toHaveAttribute("href", "/sign-in?next=%2Fapp%3Ftab%3D2");
  });

  test("still shows it when the client reports it twice", async () => {
    fakeServer({ "GET /auth/v1/user": { status: 403, body: { code: "session_not_found", message: "gone" } } });
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    storeSession(session());
    const { auth } = renderApp("/app");
    const onSignedOut = vi.fn();
    (await auth.opened).onAuthStateChange((event) => {
      if (event === "SIGNED_OUT") onSignedOut();
    });
    // This happens when another tab signs out while this one requests the user.
    await act(async () => {
      await auth.client.getUser("a token");
      await auth.client.getUser("a token");
    });
    expect(onSignedOut.mock.calls.length).toBeGreaterThanOrEqual(2);
    expect(await screen.findByRole("heading", { name: "You have been signed out" }, patient)).toBeVisible();
    expect(window.location.pathname).toBe("/app");
  });

  test("shows it when another tab signs out, even before the storage changes", async () => {
    vi.stubGlobal("BroadcastChannel", TabChannel);
    fakeServer({});
    storeSession(session());
    renderApp("/app");
    await screen.findByRole("heading", { name: /^Hello/ }, patient);
    // The message of the other tab's client. The storage still holds the session that the tab
    // removes.
    act(() => new TabChannel("portico.session").postMessage({ event: "SIGNED_OUT", session: null }));
    expect(await screen.findByRole("heading", { name: "You have been signed out" }, patient)).toBeVisible();
    expect(window.location.pathname).toBe("/app");
  });

  test("goes to the landing page after signing out, and stays when that fails", async () => {
    let isBroken = true;
    fakeServer({ "POST /auth/v1/logout": () => (isBroken ? { status: 500, body: { message: "broken" } } : { status: 204 }) });
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    storeSession(session());
    const { user } = renderApp("/app");
    await user.click(await screen.findByRole("button", { name: "Sign out" }, patient));
    expect(await screen.findByText(/You are still signed in/, {}, patient)).toBeVisible();
    isBroken = false;
    await user.click(screen.getByRole("button", { name: "Sign out" }));
    expect(await screen.findByRole("button", { name: "Continue with Google" }, patient)).toBeVisible();
    expect(window.location.pathname).toBe("/");
  });
});

describe("creating an account", () => {
  test("requires the code from the email, and submits it on the sixth digit", async () => {
    const server = fakeServer({
      "POST /auth/v1/signup": { body: { id: "1", email: "grace@portico.test", identities: [] } },
      "POST /auth/v1/verify": ({ body }) =>
        body.token === "123456"
          ? { body: session() }
          : { status: 403, body: { code: "otp_expired", message: "Token has expired or is invalid" } },
    });
    const { user, beacons } = renderApp("/sign-up?next=/app/files");
    await user.type(await screen.findByLabelText("Email", {}, patient), "grace@portico.test");
    await user.type(screen.getByLabelText("Password"), "a long enough one");
    await user.click(screen.getByRole("button", { name: "Create account" }));
    const code = await screen.findByLabelText("Six-digit code", {}, patient);
    expect(code).toHaveAttribute("autocomplete", "one-time-code");
    expect(code).toHaveFocus();
    expect(screen.getByRole("button", { name: /Resend in \d+ s/ })).toBeDisabled();
    // The address may have an account, whose owner gets no code.
    const signIn = within(screen.getByRole("main")).getByRole("link", { name: "Sign in" });
    expect(signIn.parentElement).toHaveTextContent("Already have an account? Sign in");
    expect(signIn).toHaveAttribute("href", "/sign-in?next=%2Fapp%2Ffiles");
    await user.click(code);
    await user.paste("999 999");
    expect(await screen.findByText(/wrong or has expired/, {}, patient)).toBeVisible();
    await user.clear(code);
    await user.paste("123 456");
    await waitFor(() => expect(window.location.pathname).toBe("/app/files"), patient);
    const verified = server.seen.filter(({ path }) => path.startsWith("/auth/v1/verify"));
    expect(verified.map(({ body }) => [body.type, body.token])).toEqual([
      ["signup", "999999"],
      ["signup", "123456"],
    ]);
    expect(beacons.map(({ name }) => name)).toContain("sign_up");
  });

  test("validates the form, and lists the server's reasons", async () => {
    fakeServer({
      "POST /auth/v1/signup": {
        status: 422,
        body: { code: "weak_password", message: "Password is weak", weak_password: { reasons: ["pwned"] } },
      },
    });
    const { user } = renderApp("/sign-up");
    const email = await screen.findByLabelText("Email", {}, patient);
    expect(email).toBeRequired();
    expect(screen.getByLabelText("Password")).toBeRequired();
    expect(screen.getByLabelText("Password")).toHaveAttribute("minlength", "6");
    await user.type(email, "grace");
    await user.type(screen.getByLabelText("Password"), "short");
    await user.click(screen.getByRole("button", { name: "Create account" }));
    expect(await screen.findByText("This isn’t a valid email address.", {}, patient)).toBeVisible();
    expect(screen.getByLabelText("Password")).toHaveAccessibleDescription(/Use at least 6 characters/);
    await user.type(screen.getByLabelText("Email"), "@portico.test");
    await user.type(screen.getByLabelText("Password"), " but longer");
    await user.click(screen.getByRole("button", { name: "Create account" }));
    expect(await screen.findByRole("alert", {}, patient)).toHaveTextContent("It appeared in a data breach");
  });
});

test("a forgotten password is replaced with a code from an email", async () => {
  const server = fakeServer({
    "POST /auth/v1/recover": {},
    "POST /auth/v1/verify": { body: session() },
    "PUT /auth/v1/user": { body: session().user },
  });
  const { user } = renderApp("/forgot-password");
  await user.type(await screen.findByLabelText("Email", {}, patient), "ada@portico.test");
  await user.click(screen.getByRole("button", { name: "Send email" }));
  await user.type(await screen.findByLabelText("Six-digit code", {}, patient), "123456");
  await user.type(await screen.findByLabelText("New password", {}, patient), "a new long password");
  await user.click(screen.getByRole("button", { name: "Save password" }));
  expect(await screen.findByRole("heading", { name: "Password changed" }, patient)).toBeVisible();
  expect(server.seen.find(({ method }) => method === "PUT")?.body).toMatchObject({ password: "a new long password" });
});

test("the sign-in form waits neither for the client's code nor for its first event", async () => {
  const server = fakeServer({ "POST /auth/v1/token": { body: session() } });
  const { user } = renderApp("/sign-in?next=/app/files", config, new Promise(() => undefined));
  await user.type(await screen.findByLabelText("Email", {}, patient), "ada@portico.test");
  await user.type(screen.getByLabelText("Password"), "correct horse");
  expect(server.paths()).toEqual(["GET /auth/v1/settings"]);
  // Submitting is the first call of the client, which is then loaded whatever else is pending.
  await user.click(screen.getByRole("button", { name: "Sign in" }));
  await waitFor(() => expect(server.paths()).toContain("POST /auth/v1/token?grant_type=password"), patient);
  await waitFor(() => expect(window.location.pathname).toBe("/app/files"), patient);
});

describe("codes of the configured length", () => {
  const own = { ...config, accounts: { ...config.accounts, codeLength: { email: 8, phone: 7, factor: 6 } as const } };

  test("are required, and submitted on the last digit", async () => {
    const server = fakeServer({ "POST /auth/v1/otp": { body: {} }, "POST /auth/v1/verify": { body: session() } });
    const { user } = renderApp("/verify", own);
    expect(await screen.findByText(/Get an eight-digit code by email/, {}, patient)).toBeVisible();
    await user.type(screen.getByLabelText("Email"), "ada@portico.test");
    await user.click(screen.getByRole("button", { name: "Send code" }));
    const code = await screen.findByLabelText("Eight-digit code", {}, patient);
    await user.type(code, "1234567");
    await user.click(screen.getByRole("button", { name: "Continue" }));
    expect(await screen.findByText("The code has eight digits.", {}, patient)).toBeVisible();
    await user.type(code, "8");
    await waitFor(() => expect(window.location.pathname).toBe("/app"), patient);
    const verified = server.seen.filter(({ path }) => path.startsWith("/auth/v1/verify"));
    expect(verified.map(({ body }) => body.token)).toEqual(["12345678"]);
  });

  test.each([
    [ada, "Eight-digit code", "87654321"],
    [{ ...ada, email: "", phone: "41791234567" }, "Seven-digit code", "7654321"],
  ])("save a password whose change has to be confirmed, user %#", async (person, label, nonce) => {
    storeSession(session({ user: person }));
    const server = fakeServer({
      "GET /auth/v1/user/password": { body: { is_set: false } },
      "GET /auth/v1/reauthenticate": { body: {} },
      "PUT /auth/v1/user": ({ body }) =>
        body.nonce === nonce ? { body: person } : { status: 400, body: { code: "reauthentication_needed", message: "no" } },
    });
    const { user } = renderApp("/update-password", own);
    await user.type(await screen.findByLabelText("New password", {}, patient), "a new long password");
    await user.click(screen.getByRole("button", { name: "Save password" }));
    await user.type(await screen.findByLabelText(label, {}, patient), nonce);
    expect(await screen.findByRole("heading", { name: "Password changed" }, patient)).toBeVisible();
    expect(server.seen.filter(({ method }) => method === "PUT")).toHaveLength(2);
  });
});

describe("a new password without a recovery", () => {
  test("requires the current one, and keeps the input when that is wrong", async () => {
    storeSession(session());
    const server = fakeServer({
      "GET /auth/v1/user/password": { body: { is_set: true } },
      "PUT /auth/v1/user": ({ body }) =>
        body.current_password === "right" ? { body: ada } : { status: 400, body: { code: "current_password_invalid", message: "no" } },
    });
    const { user } = renderApp("/update-password");
    await user.type(await screen.findByLabelText("New password", {}, patient), "a new long password");
    await user.click(screen.getByRole("button", { name: "Save password" }));
    const current = screen.getByLabelText("Current password");
    await waitFor(() => expect(current).toHaveAccessibleDescription("Enter your current password."), patient);
    await user.type(current, "wrong");
    await user.click(screen.getByRole("button", { name: "Save password" }));
    await waitFor(() => expect(current).toHaveAccessibleDescription("Your current password is wrong."), patient);
    await user.clear(current);
    await user.type(current, "right");
    await user.click(screen.getByRole("button", { name: "Save password" }));
    expect(await screen.findByRole("heading", { name: "Password changed" }, patient)).toBeVisible();
    expect(server.seen.filter(({ method }) => method === "PUT")).toHaveLength(2);
  });

  test("can be tried again when the server cannot say whether there is a password", async () => {
    storeSession(session());
    let isBroken = true;
    fakeServer({
      "GET /auth/v1/user/password": () => (isBroken ? { status: 400, body: { message: "broken" } } : { body: { is_set: true } }),
    });
    const { user } = renderApp("/update-password");
    const retry = await screen.findByRole("button", { name: "Try again" }, patient);
    expect(screen.queryByLabelText("New password")).toBeNull();
    isBroken = false;
    await user.click(retry);
    expect(await screen.findByLabelText("Current password", {}, patient)).toBeVisible();
  });
});

test("only the sign-in methods that the server offers are shown", async () => {
  fakeServer({ "GET /auth/v1/settings": { body: { external: { google: false, email: true, github: true }, disable_signup: true } } });
  renderApp("/sign-in");
  expect(await screen.findByRole("button", { name: "Continue with GitHub" }, patient)).toBeVisible();
  expect(screen.queryByRole("button", { name: "Continue with Google" })).toBeNull();
  expect(screen.queryByRole("link", { name: "Create an account" })).toBeNull();
});

test("the sign-in methods of the configuration are shown until the server's own are there", async () => {
  let respond: (response: { body: unknown }) => void = () => undefined;
  const pending = new Promise<{ body: unknown }>((resolve) => (respond = resolve));
  fakeServer({ "GET /auth/v1/settings": () => pending });
  renderApp("/sign-in", { ...config, settings: { external: { google: false, email: true, github: true } } });
  expect(await screen.findByRole("button", { name: "Continue with GitHub" }, patient)).toBeVisible();
  expect(screen.queryByRole("button", { name: "Continue with Google" })).toBeNull();
  respond({ body: { external: { google: true, email: true } } });
  expect(await screen.findByRole("button", { name: "Continue with Google" }, patient)).toBeVisible();
  expect(screen.queryByRole("button", { name: "Continue with GitHub" })).toBeNull();
});

test("a provider's error is shown in our own words and removed from the address", async () => {
  fakeServer();
  renderApp("/app?error=access_denied&error_description=Your+account+is+locked.+Call+555-0100");
  const alert = await screen.findByRole("alert", {}, patient);
  expect(alert).toHaveTextContent("The sign-in was cancelled or denied.");
  expect(alert).not.toHaveTextContent("555-0100");
  await waitFor(() => expect(window.location.href).toBe("http://portico.test/sign-in"), patient);
});

test("an unknown address shows the page for it, and so does the mailbox in production", async () => {
  fakeServer();
  const { unmount } = renderApp("/no/such/page");
  expect(await screen.findByRole("heading", { name: "Page not found" }, patient)).toBeVisible();
  unmount();
  renderApp("/mailbox");
  expect(await screen.findByRole("heading", { name: "Page not found" }, patient)).toBeVisible();
});
