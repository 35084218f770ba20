import { act, render, waitFor } from "@testing-library/react";
import { describe, expect, test, vi } from "vitest";
import { startAnalytics } from "../../analytics";
import { ada, config, fakeServer, session, storeSession } from "../../testing/fake-server";
import { watchBeacons } from "../../testing/render-app";
import { TabChannel } from "../../testing/tab-channel";
import { type AuthState, useAuth } from "./auth-context";
import { AuthProvider } from "./auth-provider";
import { openAuth } from "./client";

/** Renders the provider and records every state that it provides. */
function openProvider() {
  startAnalytics(config.analytics);
  const auth = openAuth(config);
  const states: AuthState[] = [];
  function StateRecorder() {
    const state = useAuth();
    states.push(state);
    return null;
  }
  render(
    <AuthProvider auth={auth}>
      <StateRecorder />
    </AuthProvider>,
  );
  const current = (): AuthState => {
    const last = states.at(-1);
    if (!last) throw new Error("Nothing was rendered");
    return last;
  };
  const ready = () => waitFor(() => expect(current().loading).toBe(false), { timeout: 20_000 });
  return { auth, states, current, ready };
}

const signIn = { email: "ada@portico.test", password: "correct horse" };

test("useAuth outside its provider throws the specified error", () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  function Outside() {
    useAuth();
    return null;
  }
  expect(() => render(<Outside />)).toThrow(/^useAuth must be used within an AuthProvider$/);
});

describe("loading", () => {
  test("lasts until the first event and then ends, for a visitor", async () => {
    fakeServer();
    const { states, current, ready } = openProvider();
    expect(states[0]).toMatchObject({ loading: true, user: null, session: null });
    await ready();
    expect(current()).toMatchObject({ loading: false, user: null, session: null, hasEnded: false });
  });

  test("never shows a signed-in user as a visitor", async () => {
    fakeServer();
    storeSession(session());
    const { states, current, ready } = openProvider();
    await ready();
    expect(current().user?.id).toBe(ada.id);
    expect(states.filter((state) => !state.loading && state.user === null)).toEqual([]);
  });
});

describe("signing in", () => {
  test("sets session and user and reports the provider as the method, once", async () => {
    fakeServer({ "POST /auth/v1/token": { body: session() } });
    const beacons = watchBeacons();
    const { auth, current, ready } = openProvider();
    await ready();
    await act(() => auth.client.signInWithPassword(signIn));
    expect(current()).toMatchObject({ loading: false, user: { id: ada.id }, session: { refresh_token: "refresh-session-1" } });
    expect(beacons).toEqual([expect.objectContaining({ name: "sign_in", properties: { method: "google" } })]);
  });

  test("reports email when the account names no provider", async () => {
    fakeServer({ "POST /auth/v1/token": { body: session({ user: { ...ada, app_metadata: {} } }) } });
    const beacons = watchBeacons();
    const { auth, ready } = openProvider();
    await ready();
    await act(() => auth.client.signInWithPassword(signIn));
    expect(beacons[0]?.properties).toEqual({ method: "email" });
  });

  test("is not reported again when the client repeats the event", async () => {
    fakeServer({ "POST /auth/v1/token": { body: session() } });
    const beacons = watchBeacons();
    const { auth, ready } = openProvider();
    await ready();
    await act(() => auth.client.signInWithPassword(signIn));
    vi.useFakeTimers();
    // The client does so when the tab becomes visible again, and in every other tab.
    const { data } = await act(() => auth.client.getSession());
    await act(async () => repeatSignedIn(await auth.opened, data.session));
    await act(() => vi.advanceTimersByTimeAsync(10_000));
    vi.useRealTimers();
    expect(beacons).toHaveLength(1);
  });

  test("is not reported for a session that was already there", async () => {
    fakeServer();
    storeSession(session());
    const beacons = watchBeacons();
    const { auth, ready } = openProvider();
    await ready();
    vi.useFakeTimers();
    const { data } = await act(() => auth.client.getSession());
    await act(async () => repeatSignedIn(await auth.opened, data.session));
    await act(() => vi.advanceTimersByTimeAsync(10_000));
    vi.useRealTimers();
    expect(beacons).toEqual([]);
  });

  test("of another tab is left to that tab to report, and reported here if it does not", async () => {
    fakeServer();
    const beacons = watchBeacons();
    const { auth, ready } = openProvider();
    await ready();
    vi.useFakeTimers();
    await act(async () => repeatSignedIn(await auth.opened, session({ id: "elsewhere" })));
    expect(beacons).toEqual([]);
    await act(() => vi.advanceTimersByTimeAsync(10_000));
    vi.useRealTimers();
    expect(beacons.map((event) => event.name)).toEqual(["sign_in"]);
  });

  test("with Google uses PKCE and returns to /app at our origin", async () => {
    fakeServer();
    const { auth, current, ready } = openProvider();
    await ready();
    const oauth = vi.spyOn(await auth.opened, "signInWithOAuth").mockResolvedValue({ data: { provider: "google", url: "x" }, error: null });
    await current().signInWithGoogle();
    expect(oauth).toHaveBeenCalledWith({ provider: "google", options: { redirectTo: "http://portico.test/app" } });
    oauth.mockRestore();
    const { data } = await auth.client.signInWithOAuth({
      provider: "google",
      options: { redirectTo: "http://portico.test/app", skipBrowserRedirect: true },
    });
    const address = new URL(data.url ?? "");
    expect(address.pathname).toBe("/auth/v1/authorize");
    expect(Object.fromEntries(address.searchParams)).toMatchObject({
      provider: "google",
      redirect_to: "http://portico.test/app",
      code_challenge_method: "s256",
    });
  });
});

describe("signing out", () => {
  test("is reported before it is requested, and clears session and user", async () => {
    const order: string[] = [];
    fakeServer({
      "POST /auth/v1/logout": () => {
        order.push("request");
        return { status: 204 };
      },
    });
    storeSession(session());
    watchBeacons((event) => order.push(event.name));
    const { current, ready } = openProvider();
    await ready();
    await act(() => current().signOut());
    expect(order).toEqual(["sign_out", "request"]);
    expect(current()).toMatchObject({ user: null, session: null, hasEnded: false });
    expect(window.localStorage.getItem("portico.session")).toBeNull();
  });

  test("that fails is logged as specified, thrown to the caller, and keeps the session", async () => {
    fakeServer({ "POST /auth/v1/logout": { status: 500, body: { code: "unexpected_failure", message: "broken" } } });
    storeSession(session());
    const log = vi.spyOn(console, "error").mockImplementation(() => undefined);
    const { current, ready } = openProvider();
    await ready();
    const failure: unknown = await act(() => current().signOut().catch((error: unknown) => error));
    expect(failure).toBeInstanceOf(Error);
    expect(log).toHaveBeenCalledWith("Error signing out", failure);
    expect(current().user?.id).toBe(ada.id);
  });
});

describe("a session that ends by itself", () => {
  test("at the start, because its refresh is rejected permanently", async () => {
    fakeServer({ "POST /auth/v1/token": { status: 400, body: { code: "refresh_token_not_found", message: "Invalid Refresh Token" } } });
    storeSession(session({ expiresIn: -10 }));
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    const { current, ready } = openProvider();
    await ready();
    await waitFor(() => expect(current().hasEnded).toBe(true));
    expect(current().user).toBeNull();
    expect(window.localStorage.getItem("portico.session")).toBeNull();
  });

  test("is refreshed with waits of 200 ms, doubling, while the server does not respond", async () => {
    vi.spyOn(console, "error").mockImplementation(() => undefined);
    vi.useFakeTimers({ shouldAdvanceTime: true });
    const at: number[] = [];
    fakeServer({
      "POST /auth/v1/token": () => {
        at.push(Date.now());
        return at.length < 4 ? new TypeError("Failed to fetch") : { body: session({ id: "renewed" }) };
      },
    });
    storeSession(session({ expiresIn: -10 }));
    const { current } = openProvider();
    await act(() => vi.advanceTimersByTimeAsync(2000));
    vi.useRealTimers();
    await waitFor(() => expect(current().session?.refresh_token).toBe("refresh-renewed"));
    const waits = at.slice(1).map((time, index) => time - (at[index] ?? 0));
    expect(waits).toHaveLength(3);
    // Timers are never early; how late they are depends on the machine.
    for (const [index, wait] of waits.entries()) expect(wait).toBeGreaterThanOrEqual(200 * 2 ** index - 5);
  });
});

test("another tab's sign-in and sign-out show in this one", async () => {
  vi.stubGlobal("BroadcastChannel", TabChannel);
  fakeServer({ "POST /auth/v1/token": { body: session() } });
  const here = openProvider();
  await here.ready();
  vi.spyOn(console, "warn").mockImplementation(() => undefined);
  const there = openAuth(config);
  await act(() => there.client.signInWithPassword(signIn));
  await waitFor(() => expect(here.current().user?.id).toBe(ada.id));
  await act(() => there.client.signOut({ scope: "local" }));
  await waitFor(() => expect(here.current().user).toBeNull());
  expect(here.current().hasEnded).toBe(true);
});

test("sign-in works with blocked storage, and is reported as not remembered", async () => {
  fakeServer({ "POST /auth/v1/token": { body: session() } });
  vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
    throw new DOMException("blocked", "SecurityError");
  });
  const { auth, current, ready } = openProvider();
  await ready();
  expect(current().isRemembered).toBe(false);
  await act(() => auth.client.signInWithPassword(signIn));
  expect(current().user?.id).toBe(ada.id);
});

/** Makes the client emit "signed in", as it does by itself when a tab becomes visible again. */
function repeatSignedIn(client: object, repeated: unknown): Promise<void> {
  const notify: unknown = Reflect.get(client, "_notifyAllSubscribers");
  if (typeof notify !== "function") throw new Error("The client has no such method any more");
  return Reflect.apply(notify, client, ["SIGNED_IN", repeated, false]) as Promise<void>;
}
