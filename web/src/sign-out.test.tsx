import { screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { ada, fakeServer, session, storeSession } from "./testing/fake-server";
import { renderApp } from "./testing/render-app";

const patient = { timeout: 20_000 };
type Actor = ReturnType<typeof renderApp>["user"];

const withSecondFactor = {
  ...ada,
  factors: [
    {
      id: "totp-1",
      factor_type: "totp" as const,
      status: "verified" as const,
      created_at: "2026-11-01T10:00:00Z",
      updated_at: "2026-11-01T10:00:00Z",
    },
  ],
};

async function signOutInMenu(user: Actor) {
  const header = within(screen.getByRole("banner"));
  await user.click(await header.findByRole("button", { name: "Account" }, patient));
  await user.click(header.getByRole("button", { name: "Sign out" }));
}

const failure = () => screen.findByText(/^You are still signed in\. Something went wrong on our side/, {}, patient);

describe("a sign-out that fails", () => {
  beforeEach(() => {
    fakeServer({ "POST /auth/v1/logout": { status: 500, body: { code: "unexpected_failure", message: "broken" } } });
    vi.spyOn(console, "error").mockImplementation(() => undefined);
  });

  test.each([
    ["/", session()],
    ["/app", session()],
    ["/app/security", session()],
    ["/mfa", session({ user: withSecondFactor })],
  ])("from the menu on %s is shown above the page, and can be completed on this device", async (path, stored) => {
    storeSession(stored);
    const { user } = renderApp(path);
    await screen.findByRole("heading", { level: 1 }, patient);
    await signOutInMenu(user);
    const alert = (await failure()).closest<HTMLElement>("[role=alert]");
    expect(alert).toHaveFocus();
    expect(screen.getByRole("main")).not.toContainElement(alert);
    expect(window.location.pathname).toBe(path);
    await user.tab();
    expect(screen.getByRole("button", { name: "Sign out on this device anyway" })).toHaveFocus();
    await user.keyboard("{Enter}");
    await waitFor(() => expect(window.location.pathname).toBe("/"), patient);
    expect(await screen.findByRole("button", { name: "Continue with Google" }, patient)).toBeVisible();
    expect(screen.queryByText(/You are still signed in/)).toBeNull();
    expect(window.localStorage.getItem("portico.session")).toBeNull();
  });

  test("in the second step is shown there, and can be completed on this device", async () => {
    storeSession(session({ user: withSecondFactor }));
    const { user } = renderApp("/mfa");
    const main = within(screen.getByRole("main"));
    await user.click(await main.findByRole("button", { name: "Sign out" }, patient));
    expect(screen.getByRole("main")).toContainElement(await failure());
    await user.click(main.getByRole("button", { name: "Sign out on this device anyway" }));
    await waitFor(() => expect(window.location.pathname).toBe("/"), patient);
    expect(window.localStorage.getItem("portico.session")).toBeNull();
  });

  test("is no longer shown on another page", async () => {
    storeSession(session());
    const { user } = renderApp("/app");
    await screen.findByRole("heading", { level: 1 }, patient);
    await signOutInMenu(user);
    await failure();
    await user.click(screen.getByRole("link", { name: "Manage security" }));
    await screen.findByRole("heading", { level: 1, name: "Security" }, patient);
    expect(screen.queryByText(/You are still signed in/)).toBeNull();
  });
});
