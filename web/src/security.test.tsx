import type { Factor, User } from "@supabase/supabase-js";
import { screen, waitFor, within } from "@testing-library/react";
import { describe, expect, test, vi } from "vitest";
import { ada, config, fakeServer, session, storeSession } from "./testing/fake-server";
import { renderApp } from "./testing/render-app";

const patient = { timeout: 20_000 };

const factor = (id: string, factor_type: Factor["factor_type"], options: Partial<Factor> = {}): Factor => ({
  id,
  factor_type,
  status: "verified",
  friendly_name: "",
  created_at: "2026-11-01T10:00:00Z",
  updated_at: "2026-11-01T10:00:00Z",
  ...options,
});
const withFactors = (...factors: Factor[]): User => ({ ...ada, factors });
const app = factor("totp-1", "totp", { last_challenged_at: "2026-11-20T10:00:00Z" });
const phone = factor("phone-1", "phone", { friendly_name: "+41 79 123 45 67" });
const full = {
  ...config,
  accounts: { ...config.accounts, factors: { totp: true, phone: true, securityKey: true } },
};

describe("the second step", () => {
  test("stands between a sign-in and the page that was asked for", async () => {
    const user = withFactors(app);
    const server = fakeServer({
      "POST /auth/v1/token": { body: session({ user }) },
      "POST /auth/v1/factors/totp-1/challenge": { body: { id: "c1", type: "totp", expires_at: 2_000_000_000 } },
      "POST /auth/v1/factors/totp-1/verify": ({ body }) =>
        body.code === "123456"
          ? { body: session({ user, aal: "aal2" }) }
          : { status: 422, body: { code: "mfa_verification_failed", message: "Invalid TOTP code entered" } },
    });
    const { user: actor } = renderApp("/app?tab=2");
    await actor.type(await screen.findByLabelText("Email", {}, patient), "ada@portico.test");
    await actor.type(screen.getByLabelText("Password"), "correct horse");
    await actor.click(screen.getByRole("button", { name: "Sign in" }));
    await screen.findByRole("heading", { name: "Confirm it’s you" }, patient);
    expect(window.location.pathname + window.location.search).toBe("/mfa?next=%2Fapp%3Ftab%3D2");
    expect(screen.getByText(/Signed in as ada@portico.test/)).toBeVisible();

    const input = screen.getByLabelText("Six-digit code");
    expect(input).toHaveFocus();
    expect(input).toHaveAttribute("autocomplete", "one-time-code");
    await actor.type(input, "000000");
    await screen.findByText("That code isn’t right. Try again with the newest one.", {}, patient);
    expect(input).toHaveValue("000000");
    expect(input).toHaveAccessibleDescription(/isn’t right/);
    await actor.clear(input);
    await actor.click(input);
    await actor.paste("123 456");
    expect(await screen.findByRole("heading", { name: /^Hello/ }, patient)).toBeVisible();
    expect(window.location.pathname + window.location.search).toBe("/app?tab=2");
    expect(server.paths().filter((path) => path.endsWith("/verify"))).toHaveLength(2);
  });

  test("also comes first on a link to /app with a session that lacks it", async () => {
    fakeServer();
    storeSession(session({ user: withFactors(app) }));
    renderApp("/app/security");
    await screen.findByRole("heading", { name: "Confirm it’s you" }, patient);
    expect(window.location.search).toBe("?next=%2Fapp%2Fsecurity");
  });

  test("is not asked of a session that has it, nor for factors whose set-up was not finished", async () => {
    fakeServer();
    storeSession(session({ user: withFactors(app), aal: "aal2" }));
    const { unmount } = renderApp("/mfa?next=%2Fapp%3Ftab%3D3");
    await screen.findByRole("heading", { name: /^Hello/ }, patient);
    expect(window.location.search).toBe("?tab=3");
    unmount();
    storeSession(session({ user: withFactors({ ...app, status: "unverified" }) }));
    renderApp("/app");
    await screen.findByRole("heading", { name: /^Hello/ }, patient);
  });

  test("sends a visitor to sign in, and keeps where they were going", async () => {
    fakeServer();
    renderApp("/mfa?next=%2Fapp%2Fsecurity");
    await screen.findByRole("heading", { name: "Welcome back" }, patient);
    expect(window.location.search).toBe("?next=%2Fapp%2Fsecurity");
  });

  test("takes a code by text message, which is sent on request, and keeps what was typed", async () => {
    const user = withFactors(app, phone);
    const server = fakeServer({
      "POST /auth/v1/factors/phone-1/challenge": { body: { id: "c2", type: "phone", expires_at: 2_000_000_000 } },
      "POST /auth/v1/factors/phone-1/verify": ({ body }) =>
        body.challenge_id === "c2" && body.code === "424242" ? { body: session({ user, aal: "aal2" }) } : { status: 500 },
    });
    storeSession(session({ user }));
    const { user: actor } = renderApp("/mfa");
    await actor.type(await screen.findByLabelText("Six-digit code", {}, patient), "12");
    await actor.click(screen.getByRole("button", { name: "Get a code by text message" }));
    expect(server.paths().some((path) => path.includes("phone-1/challenge"))).toBe(false);
    await actor.click(screen.getByRole("button", { name: "Use your authenticator app" }));
    expect(screen.getByLabelText("Six-digit code")).toHaveValue("12");
    expect(screen.getByLabelText("Six-digit code")).toHaveFocus();
    await actor.click(screen.getByRole("button", { name: "Get a code by text message" }));
    await actor.click(screen.getByRole("button", { name: "Text me a code" }));
    await screen.findByText("Enter the code we sent to +41 79 123 45 67.", {}, patient);
    const inputs = screen.getAllByLabelText("Six-digit code");
    const visible = inputs.find((input) => input.closest("[hidden]") === null);
    await actor.type(visible ?? document.body, "424242");
    expect(await screen.findByRole("heading", { name: /^Hello/ }, patient)).toBeVisible();
  });

  test("takes a recovery code", async () => {
    const user = withFactors(app);
    // The client reads this token, so its last part has the length of a base64url text.
    const confirmed = session({ user, aal: "aal2", id: "session-22" });
    fakeServer({
      "POST /auth/v1/factors/recovery-codes/verify": ({ body }) =>
        body.code === "abcd-efgh" ? { body: confirmed } : { status: 422, body: { code: "mfa_verification_failed", message: "Invalid recovery code entered" } },
      "GET /auth/v1/user": { body: user },
    });
    storeSession(session({ user }));
    const { user: actor } = renderApp("/mfa");
    await actor.click(await screen.findByRole("button", { name: "Use a recovery code" }, patient));
    const input = screen.getByLabelText("Recovery code");
    expect(input).toHaveFocus();
    await actor.type(input, "wrong{Enter}");
    await screen.findByText("That recovery code is wrong or was used before.", {}, patient);
    expect(input).toHaveValue("wrong");
    await actor.clear(input);
    await actor.type(input, " abcd-efgh {Enter}");
    expect(await screen.findByRole("heading", { name: /^Hello/ }, patient)).toBeVisible();
  });

  test("comes before a new password, and can be left by signing out", async () => {
    fakeServer();
    storeSession(session({ user: withFactors(app) }));
    const { user } = renderApp("/update-password");
    await screen.findByRole("heading", { name: "Confirm it’s you" }, patient);
    expect(window.location.pathname).toBe("/update-password");
    await user.click(screen.getByRole("button", { name: "Sign out" }));
    await screen.findByRole("heading", { name: "This link has expired" }, patient);
  });
});

describe("/app/security", () => {
  const signedIn = (user: User = ada) => storeSession(session({ user, aal: (user.factors ?? []).length > 0 ? "aal2" : "aal1" }));

  test("shows what the server has, and nothing else", async () => {
    fakeServer({ "GET /auth/v1/user/password": { body: { is_set: true } } });
    signedIn();
    const { unmount } = renderApp("/app/security");
    expect(await screen.findByRole("button", { name: "Change password" }, patient)).toBeVisible();
    expect(screen.queryByRole("heading", { name: "Passkeys" })).toBeNull();
    expect(screen.queryByRole("heading", { name: "Two-step verification" })).toBeNull();
    unmount();
    fakeServer({
      "GET /auth/v1/settings": { body: { external: { email: true }, passkeys_enabled: true } },
      "GET /auth/v1/user/password": { body: { is_set: true } },
      "GET /auth/v1/passkeys": { body: [] },
      "GET /auth/v1/user": { body: ada },
    });
    const totpOnly = { ...full, accounts: { ...full.accounts, factors: { totp: true, phone: false, securityKey: false } } };
    renderApp("/app/security", totpOnly);
    expect(await screen.findByRole("heading", { name: "Passkeys" }, patient)).toBeVisible();
    expect(await screen.findByRole("button", { name: "Set up: Authenticator app" }, patient)).toBeVisible();
    expect(screen.queryByText("Text message")).toBeNull();
  });

  test("changes a password with the current one, and sets the first without", async () => {
    let isSet = true;
    const server = fakeServer({
      "GET /auth/v1/user/password": () => ({ body: { is_set: isSet } }),
      "PUT /auth/v1/user": ({ body }) =>
        body.current_password === "wrong" ? { status: 400, body: { code: "current_password_invalid", message: "no" } } : { body: ada },
    });
    signedIn();
    const { user, unmount } = renderApp("/app/security");
    await user.click(await screen.findByRole("button", { name: "Change password" }, patient));
    expect(screen.getByText("Your other devices will be signed out.")).toBeVisible();
    const current = screen.getByLabelText("Current password");
    expect(current).toHaveAttribute("autocomplete", "current-password");
    await user.type(current, "wrong");
    await user.type(screen.getByLabelText("New password"), "a new long password");
    await user.click(screen.getByRole("button", { name: "Save password" }));
    await waitFor(() => expect(current).toHaveAccessibleDescription(/isn’t right|incorrect|wrong/i), patient);
    expect(screen.getByLabelText("New password")).toHaveValue("a new long password");
    await user.clear(current);
    await user.type(current, "right");
    await user.click(screen.getByRole("button", { name: "Save password" }));
    expect(await screen.findByText(/^Your password is changed\./, {}, patient)).toBeVisible();
    unmount();

    isSet = false;
    const again = renderApp("/app/security");
    await again.user.click(await screen.findByRole("button", { name: "Set a password" }, patient));
    expect(screen.queryByLabelText("Current password")).toBeNull();
    await again.user.type(screen.getByLabelText("New password"), "a first long password");
    await again.user.click(screen.getByRole("button", { name: "Save password" }));
    expect(await screen.findByText(/^Your password is set\./, {}, patient)).toBeVisible();
    expect(server.seen.filter(({ method }) => method === "PUT").at(-1)?.body).toMatchObject({ password: "a first long password" });
    expect(server.seen.filter(({ method }) => method === "PUT").at(-1)?.body).not.toHaveProperty("current_password");
  });

  test("adds an authenticator app, and shows the recovery codes once", async () => {
    let factors: Factor[] = [factor("old", "totp", { status: "unverified" })];
    let codes = 0;
    const server = fakeServer({
      "GET /auth/v1/user/password": { body: { is_set: true } },
      "GET /auth/v1/user": () => ({ body: withFactors(...factors) }),
      "DELETE /auth/v1/factors/old": { body: { id: "old" } },
      "POST /auth/v1/factors": ({ body }) => ({
        body: {
          id: "new",
          type: "totp",
          friendly_name: body.friendly_name,
          totp: { qr_code: "<svg xmlns='http://www.w3.org/2000/svg'/>", secret: "ABCDEFGHIJKLMNOP", uri: "otpauth://totp/x" },
        },
      }),
      "POST /auth/v1/factors/new/challenge": { body: { id: "c1", type: "totp", expires_at: 2_000_000_000 } },
      "POST /auth/v1/factors/new/verify": () => {
        factors = [factor("new", "totp", { friendly_name: "Authenticator app" })];
        return { body: session({ user: withFactors(...factors), aal: "aal2" }) };
      },
      "GET /auth/v1/factors/recovery-codes": () => ({ body: { remaining: codes, created_at: null } }),
      "POST /auth/v1/factors/recovery-codes": () => {
        codes = 10;
        return { body: { codes: Array.from({ length: 10 }, (_, index) => `code-${index}`) } };
      },
    });
    signedIn();
    const { user } = renderApp("/app/security", full);
    const write = vi.spyOn(navigator.clipboard, "writeText");
    const section = await screen.findByRole("region", { name: "Two-step verification" }, patient);
    await user.click(await within(section).findByRole("button", { name: "Set up: Authenticator app" }, patient));
    expect(await within(section).findByText("ABCD EFGH IJKL MNOP", {}, patient)).toBeVisible();
    expect(within(section).getByAltText(/QR code/)).toHaveAttribute("src", expect.stringContaining("data:image/svg+xml"));
    expect(server.paths()).toContain("DELETE /auth/v1/factors/old");
    expect(server.seen.find(({ method, path }) => method === "POST" && path === "/auth/v1/factors")?.body).toMatchObject({
      factor_type: "totp",
      issuer: "Portico",
      friendly_name: "Authenticator app",
    });
    await user.click(within(section).getByRole("button", { name: "Copy" }));
    expect(write).toHaveBeenCalledWith("ABCDEFGHIJKLMNOP");
    await user.type(within(section).getByLabelText("Six-digit code"), "123456");
    const list = await within(section).findByRole("list", { name: "Recovery codes" }, patient);
    expect(within(list).getAllByRole("listitem")).toHaveLength(10);
    expect(within(section).getByText("On")).toBeVisible();
    await user.click(within(section).getByRole("button", { name: "I have saved them" }));
    expect(within(section).queryByText("code-0")).toBeNull();
    expect(await within(section).findByText("10 codes left", {}, patient)).toBeVisible();
  });

  test("replaces the recovery codes once that was confirmed, and shows the new ones", async () => {
    let remaining = 2;
    const server = fakeServer({
      "GET /auth/v1/user/password": { body: { is_set: true } },
      "GET /auth/v1/user": { body: withFactors(app) },
      "GET /auth/v1/factors/recovery-codes": () => ({ body: { remaining, created_at: null } }),
      "POST /auth/v1/factors/recovery-codes": () => {
        remaining = 10;
        return { body: { codes: Array.from({ length: 10 }, (_, index) => `fresh-${index}`) } };
      },
    });
    signedIn(withFactors(app));
    const { user } = renderApp("/app/security", full);
    const section = await screen.findByRole("region", { name: "Two-step verification" }, patient);
    expect(await within(section).findByText("2 codes left", {}, patient)).toBeVisible();
    const opener = within(section).getByRole("button", { name: "Create new codes" });
    await user.click(opener);
    const dialog = screen.getByRole("dialog", { name: "Create new recovery codes?" });
    expect(dialog).toHaveTextContent("The codes that you have now stop working.");
    await user.click(within(dialog).getByRole("button", { name: "Cancel" }));
    expect(server.paths()).not.toContain("POST /auth/v1/factors/recovery-codes");
    await user.click(opener);
    await user.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Create new codes" }));
    const list = await within(section).findByRole("list", { name: "Recovery codes" }, patient);
    expect(within(list).getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual(
      Array.from({ length: 10 }, (_, index) => `fresh-${index}`),
    );
    expect(within(section).getByRole("heading", { name: "Save your recovery codes" })).toHaveFocus();
    expect(await within(section).findByText("10 codes left", {}, patient)).toBeVisible();
    await user.click(within(section).getByRole("button", { name: "I have saved them" }));
    expect(within(section).queryByText("fresh-0")).toBeNull();
  });

  test("removes a factor after the second step was confirmed in place", async () => {
    let isConfirmed = false;
    let factors = [app];
    fakeServer({
      "GET /auth/v1/user/password": { body: { is_set: true } },
      "GET /auth/v1/user": () => ({ body: withFactors(...factors) }),
      "GET /auth/v1/factors/recovery-codes": { body: { remaining: 1, created_at: null } },
      "DELETE /auth/v1/factors/totp-1": () => {
        if (!isConfirmed) return { status: 422, body: { code: "insufficient_aal", message: "AAL2 required to unenroll verified factor" } };
        factors = [];
        return { body: { id: "totp-1" } };
      },
      "POST /auth/v1/factors/totp-1/challenge": { body: { id: "c1", type: "totp", expires_at: 2_000_000_000 } },
      "POST /auth/v1/factors/totp-1/verify": () => {
        isConfirmed = true;
        return { body: session({ user: withFactors(app), aal: "aal2" }) };
      },
      "POST /auth/v1/token": () => ({ body: session({ user: withFactors(...factors) }) }),
    });
    signedIn(withFactors(app));
    const { user } = renderApp("/app/security", full);
    await user.click(await screen.findByRole("button", { name: "Remove Authenticator app" }, patient));
    expect(screen.getByText(/This is your only second step/)).toBeVisible();
    await user.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Remove" }));
    const dialog = await screen.findByRole("dialog", { name: "Confirm it’s you" }, patient);
    await user.type(within(dialog).getByLabelText("Six-digit code"), "123456");
    expect(await screen.findByText("Off", {}, patient)).toBeVisible();
    expect(screen.queryByText("Recovery codes")).toBeNull();
  });

  test("renames and removes passkeys", async () => {
    vi.stubGlobal("PublicKeyCredential", {});
    let passkeys = [{ id: "p1", friendly_name: "Laptop", created_at: "2026-11-01T10:00:00Z", last_used_at: "2026-11-20T10:00:00Z" }];
    const server = fakeServer({
      "GET /auth/v1/settings": { body: { external: { email: true }, passkeys_enabled: true } },
      "GET /auth/v1/user/password": { body: { is_set: true } },
      "GET /auth/v1/passkeys": () => ({ body: passkeys }),
      "PATCH /auth/v1/passkeys/p1": ({ body }) => {
        passkeys = passkeys.map((passkey) => ({ ...passkey, friendly_name: String(body.friendly_name) }));
        return { body: passkeys[0] };
      },
      "DELETE /auth/v1/passkeys/p1": () => {
        passkeys = [];
        return { status: 204 };
      },
    });
    signedIn();
    const { user } = renderApp("/app/security");
    await user.click(await screen.findByRole("button", { name: "Rename Laptop" }, patient));
    const name = screen.getByLabelText("Name of the passkey");
    expect(name).toHaveFocus();
    await user.clear(name);
    await user.type(name, "{Enter}");
    expect(await screen.findByText("Enter a name.", {}, patient)).toBeVisible();
    await user.type(name, "Work laptop{Enter}");
    expect(await screen.findByRole("button", { name: "Rename Work laptop" }, patient)).toHaveFocus();
    await user.click(screen.getByRole("button", { name: "Remove Work laptop" }));
    await user.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Remove" }));
    expect(await screen.findByText("You have no passkeys yet.", {}, patient)).toBeVisible();
    expect(server.paths()).toContain("DELETE /auth/v1/passkeys/p1");
  });
});

describe("the offer of a passkey", () => {
  const server = (passkeys: unknown[]) =>
    fakeServer({
      "GET /auth/v1/settings": { body: { external: { email: true }, passkeys_enabled: true } },
      "GET /auth/v1/passkeys": { body: passkeys },
    });

  test("is made once, to users who have none", async () => {
    vi.stubGlobal("PublicKeyCredential", {});
    server([]);
    storeSession(session());
    const { user, unmount } = renderApp("/app");
    await user.click(await screen.findByRole("button", { name: "Not now" }, patient));
    expect(screen.queryByText("Sign in faster next time")).toBeNull();
    unmount();
    renderApp("/app");
    await screen.findByRole("heading", { name: /^Hello/ }, patient);
    expect(screen.queryByText("Sign in faster next time")).toBeNull();
  });

  test("is not made to users who have one", async () => {
    vi.stubGlobal("PublicKeyCredential", {});
    const fake = server([{ id: "p1", created_at: "2026-11-01T10:00:00Z" }]);
    storeSession(session());
    renderApp("/app");
    await waitFor(() => expect(fake.paths()).toContain("GET /auth/v1/passkeys"), patient);
    await screen.findByRole("heading", { name: /^Hello/ }, patient);
    expect(screen.queryByText("Sign in faster next time")).toBeNull();
  });
});
