import { screen, waitFor, within } from "@testing-library/react";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { ada, config, fakeServer, session, storeSession } from "./testing/fake-server";
import { FakeRealtime } from "./testing/fake-realtime";
import { renderApp } from "./testing/render-app";

const patient = { timeout: 20_000 };
const topic = `portico:account:${ada.id}`;
const laptop = { id: "a", created_at: "2026-11-01T10:00:00Z", user_agent: "Mozilla/5.0 (X11; Linux) Firefox/140.0", ip: "192.0.2.1", current: true };
const phone = { id: "b", created_at: "2026-11-02T10:00:00Z", user_agent: "Mozilla/5.0 (iPhone) Version/18 Safari/604.1", ip: null, current: false };
const tablet = { id: "c", created_at: "2026-11-03T10:00:00Z", user_agent: "Mozilla/5.0 (iPad) Version/18 Safari/604.1", ip: null, current: false };

let live: FakeRealtime;
let sessions: (typeof laptop | typeof phone)[] | "revoked";
let server: ReturnType<typeof fakeServer>;

beforeEach(() => {
  live = new FakeRealtime();
  sessions = [laptop];
  const revoked = { status: 403, body: { code: "session_not_found", message: "Session from session_id claim in JWT does not exist" } };
  server = fakeServer({
    "GET /auth/v1/sessions": () => (sessions === "revoked" ? revoked : { body: sessions }),
    "GET /auth/v1/user": () => (sessions === "revoked" ? revoked : { body: ada }),
    "DELETE /auth/v1/sessions/b": () => {
      sessions = [laptop];
      live.broadcast(topic, "sessions_changed");
      return { status: 204 };
    },
  });
  storeSession(session());
});

const loads = () => server.paths().filter((path) => path === "GET /auth/v1/sessions").length;

/** Opens the account page, and waits until it follows the changes. */
async function openAccount() {
  const view = renderApp("/app", { ...config, realtime: true });
  const list = await screen.findByRole("region", { name: "Active sessions" }, patient);
  await within(list).findByText("This device", {}, patient);
  await waitFor(() => expect(live.joins).toHaveLength(1), patient);
  // The list is loaded again after the join.
  await waitFor(() => expect(loads()).toBeGreaterThanOrEqual(2), patient);
  return { ...view, list };
}

test("a sign-in elsewhere appears at once, marked as new, and is announced", async () => {
  const { list } = await openAccount();
  sessions = [laptop, phone];
  live.broadcast(topic, "sessions_changed");
  const row = await within(list).findByText("Safari on iPhone", {}, patient);
  expect(row).toHaveTextContent("New");
  expect(within(list).getByText("2 sessions")).toBeVisible();
  expect(within(list).getByRole("status")).toHaveTextContent("New sign-in: Safari on iPhone.");
  expect(within(list).getByText("Firefox on Linux")).not.toHaveTextContent("New");
});

test("a session that ends elsewhere disappears, and several changes are announced as one", async () => {
  sessions = [laptop, phone];
  const { list } = await openAccount();
  sessions = [laptop];
  live.broadcast(topic, "sessions_changed");
  await waitFor(() => expect(within(list).getByRole("status")).toHaveTextContent("Safari on iPhone is signed out."), patient);
  expect(within(list).queryByText("Safari on iPhone")).toBeNull();
  sessions = [laptop, phone, tablet];
  live.broadcast(topic, "sessions_changed");
  await waitFor(() => expect(within(list).getByRole("status")).toHaveTextContent("Your sessions have changed: 3 are active."), patient);
});

test("what was missed during a restart of the server is loaded after it", async () => {
  vi.spyOn(Math, "random").mockReturnValue(0);
  const { list } = await openAccount();
  sessions = [laptop, tablet];
  live.restart();
  expect(await within(list).findByText("Safari on iPad", {}, patient)).toHaveTextContent("New");
  expect(live.joins).toHaveLength(2);
});

test("the focus of a row that a change elsewhere removes goes to the list", async () => {
  sessions = [laptop, phone];
  const { list } = await openAccount();
  within(list).getByRole("button", { name: "Sign out Safari on iPhone" }).focus();
  sessions = [laptop];
  live.broadcast(topic, "sessions_changed");
  await waitFor(() => expect(within(list).queryByText("Safari on iPhone")).toBeNull(), patient);
  expect(within(list).getByRole("list")).toHaveFocus();
});

test("a session that this page ends is announced once", async () => {
  sessions = [laptop, phone];
  const { user, list } = await openAccount();
  await user.click(within(list).getByRole("button", { name: "Sign out Safari on iPhone" }));
  await waitFor(() => expect(within(list).getByRole("status")).toHaveTextContent("Safari on iPhone is signed out."), patient);
  expect(within(list).getByText("1 session")).toBeVisible();
});

test("a page whose own session ends elsewhere is signed out at once", async () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  await openAccount();
  sessions = "revoked";
  live.broadcast(topic, "sessions_changed");
  expect(await screen.findByRole("heading", { name: "You have been signed out" }, patient)).toBeVisible();
  expect(screen.getByText(/ended in another tab or on another device/)).toBeVisible();
  expect(screen.getByRole("link", { name: "Sign in again" })).toHaveAttribute("href", "/sign-in");
  expect(window.localStorage.getItem("portico.session")).toBeNull();
  expect(screen.getByRole("main")).toHaveFocus();
  await waitFor(() => expect(live.openSockets).toBe(0), patient);
});

describe("without the realtime service", () => {
  test("the page opens no socket", async () => {
    renderApp("/app", config);
    expect(await screen.findByText("This device", {}, patient)).toBeVisible();
    expect(live.addresses).toEqual([]);
  });
});

test("signing out closes the socket", async () => {
  const { user } = await openAccount();
  await user.click(within(screen.getByRole("main")).getByRole("button", { name: "Sign out" }));
  await waitFor(() => expect(live.openSockets).toBe(0), patient);
  await waitFor(() => expect(window.location.pathname).toBe("/"), patient);
});
