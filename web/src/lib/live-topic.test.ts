import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { config } from "../testing/fake-server";
import { FakeRealtime } from "../testing/fake-realtime";
import type { SessionSource } from "./backend";
import { FIRST_JOIN_AFTER_MS, type LiveTopic, openLiveTopic, pauseAfter } from "./live-topic";

let server: FakeRealtime;
let token: string;
let onReady: ReturnType<typeof vi.fn<() => void>>;
let onMessage: ReturnType<typeof vi.fn<() => void>>;
let topic: LiveTopic;

// The client reads nothing but the token.
const auth = { getSession: () => Promise.resolve({ data: { session: { access_token: token } }, error: null }) } as unknown as SessionSource;
const openOnNewPage = () => (topic = openLiveTopic(config, auth, "portico:account:1", { onReady, onMessage }));

/** Opens the topic on a page that has appeared. */
function open() {
  vi.useFakeTimers();
  openOnNewPage();
  vi.advanceTimersByTime(FIRST_JOIN_AFTER_MS);
  vi.useRealTimers();
}

beforeEach(() => {
  server = new FakeRealtime();
  token = "token-1";
  onReady = vi.fn<() => void>();
  onMessage = vi.fn<() => void>();
});
afterEach(() => {
  topic.close();
  vi.useRealTimers();
});

test("a private topic is joined with the session's token, and its messages are reported", async () => {
  open();
  await vi.waitFor(() => expect(onReady).toHaveBeenCalledOnce());
  expect(server.addresses.map(({ host, pathname, searchParams }) => [host, pathname, searchParams.get("apikey")])).toEqual([
    ["portico.test", "/realtime/v1/websocket", "anon-key"],
  ]);
  expect(server.joins).toMatchObject([{ access_token: "token-1", config: { private: true, broadcast: { replication_ready: true }, presence: { enabled: false } } }]);
  expect(onMessage).not.toHaveBeenCalled();
  server.broadcast("portico:account:1", "sessions_changed");
  server.broadcast("portico:account:2", "sessions_changed");
  expect(onMessage).toHaveBeenCalledOnce();
});

test("a new page appears before its topic is joined", async () => {
  vi.useFakeTimers();
  openOnNewPage();
  await vi.advanceTimersByTimeAsync(FIRST_JOIN_AFTER_MS - 1);
  expect(server.addresses).toEqual([]);
  topic.close();
  await vi.advanceTimersByTimeAsync(FIRST_JOIN_AFTER_MS);
  expect(server.addresses).toEqual([]);
});

test("messages are complete from the server's message about its database, after each of its losses", async () => {
  server.receivesFromDatabase = false;
  open();
  await vi.waitFor(() => expect(server.joins).toHaveLength(1));
  server.system("portico:account:1", "Another message");
  expect(onReady).not.toHaveBeenCalled();
  for (const times of [1, 2]) {
    server.system("portico:account:1", "Replication connection established");
    expect(onReady).toHaveBeenCalledTimes(times);
  }
  expect(onMessage).not.toHaveBeenCalled();
});

test("a renewed token is sent to the open channel", async () => {
  open();
  await vi.waitFor(() => expect(onReady).toHaveBeenCalledOnce());
  token = "token-2";
  topic.renewToken();
  await vi.waitFor(() =>
    expect(server.received.filter(([, , , event]) => event === "access_token").map((frame) => frame[4])).toEqual([{ access_token: "token-2" }]),
  );
  expect(server.joins).toHaveLength(1);
});

test("a closed topic is left with its socket, and reports nothing more", async () => {
  open();
  await vi.waitFor(() => expect(onReady).toHaveBeenCalledOnce());
  topic.close();
  server.broadcast("portico:account:1", "sessions_changed");
  await vi.waitFor(() => expect(server.openSockets).toBe(0));
  window.dispatchEvent(new Event("online"));
  expect(onMessage).not.toHaveBeenCalled();
  expect(server.addresses).toHaveLength(1);
});

describe("a topic that is lost", () => {
  beforeEach(() => {
    vi.spyOn(Math, "random").mockReturnValue(0);
  });

  test("is joined again after the server's restart, with the newest token", async () => {
    open();
    await vi.waitFor(() => expect(onReady).toHaveBeenCalledOnce());
    token = "token-2";
    server.restart();
    await vi.waitFor(() => expect(onReady).toHaveBeenCalledTimes(2));
    expect(server.joins.at(-1)).toMatchObject({ access_token: "token-2" });
    expect(server.openSockets).toBe(1);
    server.broadcast("portico:account:1", "sessions_changed");
    expect(onMessage).toHaveBeenCalledOnce();
  });

  test("is joined as soon as the browser is online", async () => {
    vi.mocked(Math.random).mockReturnValue(1);
    server.refusal = "Unauthorized";
    open();
    await vi.waitFor(() => expect(server.joins).toHaveLength(1));
    await vi.waitFor(() => expect(server.openSockets).toBe(0));
    server.refusal = null;
    window.dispatchEvent(new Event("online"));
    await vi.waitFor(() => expect(onReady).toHaveBeenCalledOnce());
  });
});

test("a server that never receives from its database is a failure, after which the pause grows", async () => {
  const random = vi.spyOn(Math, "random").mockReturnValue(0);
  server.receivesFromDatabase = false;
  const pauses = vi.spyOn(window, "setTimeout");
  open();
  for (const joins of [1, 2, 3]) {
    await vi.waitFor(() => expect(server.joins).toHaveLength(joins));
    if (joins === 3) random.mockReturnValue(1);
    server.end("portico:account:1");
  }
  await vi.waitFor(() => expect(pauses).toHaveBeenCalledWith(expect.any(Function), 8000));
});

test("the pause grows with the failures, up to five minutes", () => {
  vi.spyOn(Math, "random").mockReturnValue(1);
  expect([1, 2, 5, 8, 9, 100].map(pauseAfter)).toEqual([2000, 4000, 32_000, 256_000, 300_000, 300_000]);
  vi.mocked(Math.random).mockReturnValue(0);
  expect(pauseAfter(9)).toBe(0);
});
