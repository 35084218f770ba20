// The protocol frame by frame: handshakes, joins, leaves, tokens, limits, and input of every wrong
// shape. What clients of other languages send, and what the official client never sends.
import { createHmac } from "node:crypto";

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import { Portico } from "../harness/portico.ts";
import { disconnect, refused, subscribed, type WireMessage, WireSocket } from "../harness/realtime.ts";

let portico: Portico;
let url: string;
const sockets: WireSocket[] = [];

beforeAll(async () => {
  portico = await Portico.start();
  url = `${portico.status.API_URL.replace("http", "ws")}/realtime/v1/websocket`;
});
afterAll(async () => {
  for (const socket of sockets) socket.close();
  await portico.dispose();
});

async function open(version: "1.0.0" | "2.0.0" = "2.0.0", key?: string): Promise<WireSocket> {
  const socket = await WireSocket.open(portico, version, key);
  sockets.push(socket);
  return socket;
}

/** A token with these claims, signed with the server's secret or another one. */
function token(claims: Record<string, unknown>, secret = portico.status.JWT_SECRET): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

const later = (seconds = 3600): number => Math.floor(Date.now() / 1000) + seconds;

const reply = (joinRef: string | null, ref: string, topic: string, status: string, response: unknown): WireMessage => [joinRef, ref, topic, "phx_reply", { status, response }];
const granted = { postgres_changes: [] };

describe("a handshake", () => {
  test("is refused with the reason", async () => {
    const body = (error: string): string => JSON.stringify({ error });
    expect(await refused(url)).toEqual([401, body("API key is missing")]);
    expect(await refused(`${url}?apikey=x`)).toEqual([401, body("The token provided is not a valid JWT")]);
    expect(await refused(`${url}?apikey=${token({ role: "anon", exp: 1 })}`)).toEqual([401, body("Token has expired")]);
    expect(await refused(`${url}?apikey=${token({ role: "anon" })}`)).toEqual([401, body("Fields `role` and `exp` are required in JWT")]);
    expect(await refused(`${url}?apikey=${token({ exp: later() })}`)).toEqual([401, body("Fields `role` and `exp` are required in JWT")]);
    expect(await refused(`${url}?apikey=${token({ role: "anon", exp: later() }, "another secret of thirty-two bytes!")}`)).toEqual([401, body("Failed to validate JWT signature")]);
    expect(await refused(`${url}?apikey=${portico.status.ANON_KEY}&vsn=3.0.0`)).toEqual([403, ""]);
    expect((await fetch(url.replace("ws", "http"), { method: "POST" })).status).toBe(400);
    expect((await fetch(url.replace("ws", "http"))).status).toBe(400);
  });

  test("is accepted with every kind of key, in the query or a header", async () => {
    const { ANON_KEY, PUBLISHABLE_KEY, SECRET_KEY, SERVICE_ROLE_KEY } = portico.status;
    for (const key of [ANON_KEY, PUBLISHABLE_KEY, SECRET_KEY, SERVICE_ROLE_KEY, token({ role: "authenticated", exp: later(), sub: "a" })]) {
      const socket = await open("2.0.0", key);
      expect(await socket.ask("1", "1", "realtime:a", "phx_join", { config: {} })).toEqual(reply("1", "1", "realtime:a", "ok", granted));
    }
  });

  test("is not accepted by secret keys from another site's page", async () => {
    const origin = { origin: "https://elsewhere.test" };
    expect((await refused(`${url}?apikey=${portico.status.SECRET_KEY}`, origin))[0]).toBe(403);
    expect((await refused(`${url}?apikey=${portico.status.SERVICE_ROLE_KEY}`, origin))[0]).toBe(403);
  });
});

describe.each(["1.0.0", "2.0.0"] as const)("version %s", (version) => {
  /** A reply as this version shows it: version 1.0.0 has no `join_ref`. */
  const answer = (message: WireMessage): WireMessage => (version === "1.0.0" ? [null, message[1], message[2], message[3], message[4]] : message);

  test("heartbeats are answered, and topics without a channel refused", async () => {
    const socket = await open(version);
    expect(await socket.ask(null, "5", "phoenix", "heartbeat", {})).toEqual(reply(null, "5", "phoenix", "ok", {}));
    const unmatched = { reason: "unmatched topic" };
    expect(await socket.ask("1", "6", "room", "phx_join", { config: {} })).toEqual(reply(null, "6", "room", "error", unmatched));
    expect(await socket.ask("1", "7", "realtime:room", "broadcast", {})).toEqual(reply(null, "7", "realtime:room", "error", unmatched));
    expect(await socket.ask("1", "8", "realtime:room", "phx_leave", {})).toEqual(answer(reply("1", "8", "realtime:room", "ok", {})));
    expect(await socket.ask("1", "9", "realtime:", "phx_join", { config: {} })).toEqual(answer(reply("1", "9", "realtime:", "error", { reason: "TopicNameRequired: You must provide a topic name" })));
  });

  test("a channel is joined, joined again and left", async () => {
    const socket = await open(version);
    const topic = "realtime:room";
    expect(await socket.ask("3", "4", topic, "phx_join", { config: {} })).toEqual(answer(reply("3", "4", topic, "ok", granted)));
    socket.send("5", "6", topic, "phx_join", { config: { presence: { enabled: true } } });
    expect(await socket.messages.takes(3)).toEqual([
      answer(["3", "3", topic, "phx_close", {}]),
      answer(reply("5", "6", topic, "ok", granted)),
      answer(["5", null, topic, "presence_state", {}]),
    ]);
    socket.send("3", "7", topic, "phx_leave", {});
    socket.send("5", "8", topic, "phx_leave", {});
    expect(await socket.messages.takes(2)).toEqual([answer(reply("5", "8", topic, "ok", {})), answer(["5", "5", topic, "phx_close", {}])]);
  });

  test("messages of a wrong shape are dropped, and the socket stays", async () => {
    const socket = await open(version);
    await socket.ask("1", "1", "realtime:a", "phx_join", { config: {} });
    const wrong = ["", "x", "1", "null", "{}", "[]", "[1,2,3]", '["1","2",3,"e",{}]', '{"topic":1,"event":"e","payload":{},"ref":"1"}', '{"topic":"t"}', "[".repeat(10_000)];
    for (const text of wrong) socket.socket.send(text);
    for (const bytes of [[], [3], [3, 255, 255, 255, 255, 255, 1, 0], [9, 1, 1, 1], [4, 1, 1, 0, 1]]) socket.socket.send(Buffer.from(bytes));
    expect(await socket.ask(null, "2", "phoenix", "heartbeat", {})).toEqual(reply(null, "2", "phoenix", "ok", {}));
    expect(socket.binary.received).toEqual([]);
  });
});

test("a stale or missing join reference is accepted, and the reply has the real one", async () => {
  const socket = await open();
  const config = { broadcast: { ack: true } };
  await socket.ask("1", "1", "realtime:a", "phx_join", { config });
  for (const joinRef of [null, "0", "9"]) {
    expect(await socket.ask(joinRef, "2", "realtime:a", "broadcast", { type: "broadcast", event: "e", payload: {} })).toEqual(reply("1", "2", "realtime:a", "ok", {}));
  }
  expect(await socket.ask(null, "3", "realtime:a", "presence", { type: "presence", event: "other" })).toEqual(reply("1", "3", "realtime:a", "error", {}));
});

test("a binary broadcast of an older client has its names in Latin-1", async () => {
  const [sender, receiver] = [await open(), await open()];
  await sender.ask("1", "1", "realtime:é", "phx_join", { config: {} });
  await receiver.ask("1", "1", "realtime:é", "phx_join", { config: {} });
  const names = Buffer.from("12realtime:éà", "latin1");
  sender.socket.send(Buffer.concat([Buffer.from([3, 1, 1, 10, 1, 0, 1]), names, Buffer.from('{"x":1}')]));
  const topic = Buffer.from("realtime:é");
  const [frame] = await receiver.binary.takes(1);
  expect(frame).toEqual(Buffer.concat([Buffer.from([4, topic.length, 2, 0, 1]), topic, Buffer.from("à"), Buffer.from('{"x":1}')]));
});

test("the channels of a socket are limited, and no other socket is affected", async () => {
  const [socket, other] = [await open(), await open()];
  for (let n = 0; n < 100; n++) expect((await socket.ask("1", "1", `realtime:${n}`, "phx_join", { config: {} }))[4]).toMatchObject({ status: "ok" });
  expect(await socket.ask("2", "2", "realtime:more", "phx_join", { config: {} })).toEqual(reply("2", "2", "realtime:more", "error", { reason: "ChannelRateLimitReached: Too many channels" }));
  socket.send("1", "3", "realtime:0", "phx_leave", {});
  await socket.messages.takes(2);
  expect((await socket.ask("2", "4", "realtime:more", "phx_join", { config: {} }))[4]).toMatchObject({ status: "ok" });
  expect((await other.ask("1", "1", "realtime:more", "phx_join", { config: {} }))[4]).toMatchObject({ status: "ok" });
});

test("the entries of database changes of a channel are limited", async () => {
  const reason = "UnknownErrorOnChannel: A channel has at most 100 postgres_changes";
  const socket = await open();
  const join = (ref: string, entries: number): Promise<WireMessage> => {
    const changes = Array.from({ length: entries }, () => ({ event: "*", schema: "public", table: "t" }));
    return socket.ask(ref, ref, "realtime:entries", "phx_join", { config: { postgres_changes: changes } });
  };
  expect(await join("1", 101)).toEqual(reply("1", "1", "realtime:entries", "error", { reason }));
  expect((await join("2", 100))[4]).toMatchObject({ status: "ok" });

  const client = portico.client();
  const channel = client.channel("entries");
  for (let n = 0; n < 101; n++) channel.on("postgres_changes", { event: "*", schema: "public", table: `t${String(n)}` }, () => undefined);
  expect(await subscribed(channel)).toEqual(["CHANNEL_ERROR", reason]);
  await disconnect(client);
});

test("a client that does not read is cut off, and the others of its room are not", async () => {
  const topic = "realtime:slow";
  const config = (key: string): object => ({ config: { presence: { enabled: true, key } } });
  const [slow, other] = [await open(), await open()];
  slow.send("1", "1", topic, "phx_join", config("slow"));
  slow.send("1", "2", topic, "presence", { type: "presence", event: "track", payload: {} });
  // The reply to each, the state, and the difference
  await slow.messages.takes(4);
  other.send("1", "1", topic, "phx_join", config("other"));
  expect((await other.messages.takes(2))[1]).toMatchObject(["1", null, topic, "presence_state", { slow: {} }]);
  slow.socket.pause();

  const url = `${portico.status.API_URL}/realtime/v1/api/broadcast/slow/events/large`;
  const headers = { apikey: portico.status.PUBLISHABLE_KEY, "content-type": "application/json" };
  const body = JSON.stringify({ text: "x".repeat(2_999_000) });
  const left = (): boolean => other.messages.received.some((message) => message[3] === "presence_diff" && "slow" in (message[4]["leaves"] as object));
  let sent = 0;
  // More than the 32 MiB that may wait, since the system buffers frames, too
  while (!left() && sent < 30) {
    expect((await fetch(url, { method: "POST", headers, body })).status).toBe(202);
    sent++;
    await other.binary.takes(1);
  }
  await vi.waitFor(() => {
    expect(left()).toBe(true);
  }, 10_000);
  await other.messages.takes(1);
  slow.socket.resume();
  expect(await slow.closed).toBe(1006);
  expect((await other.ask(null, "9", "phoenix", "heartbeat", {}))[4]).toMatchObject({ status: "ok" });
});

test("a frame that is too large closes its socket with 1009", async () => {
  const [socket, other] = [await open(), await open()];
  socket.socket.send(Buffer.alloc(5_000_001));
  expect(await socket.closed).toBe(1009);
  expect((await other.ask(null, "1", "phoenix", "heartbeat", {}))[4]).toMatchObject({ status: "ok" });
});

describe("a token", () => {
  const topic = "realtime:t";

  test("of a join is verified", async () => {
    const socket = await open();
    const refusal = async (accessToken: unknown): Promise<unknown> => (await socket.ask("1", "1", topic, "phx_join", { config: {}, access_token: accessToken }))[4]["response"];
    expect(await refusal("x")).toEqual({ reason: "MalformedJWT: The token provided is not a valid JWT" });
    expect(await refusal(token({ role: "anon", exp: later() }, "another secret of thirty-two bytes!"))).toEqual({ reason: "JwtSignatureError: Failed to validate JWT signature" });
    expect(await refusal(token({ exp: later() }))).toEqual({ reason: "InvalidJWTToken: Fields `role` and `exp` are required in JWT" });
    expect(await refusal(token({ role: "anon", exp: later(-10) }))).toEqual({ reason: expect.stringMatching(/^InvalidJWTToken: Token has expired 1[0-9] seconds ago$/) as string });
    for (const role of ["none", "authenticator"]) {
      expect(await refusal(token({ role, exp: later() }))).toEqual({ reason: "JwtSignatureError: Failed to validate JWT signature" });
    }
    expect(await refusal("sb_publishable_anything")).toEqual(granted);
    const other = await open();
    expect(await other.ask("1", "1", topic, "phx_join", { config: {}, access_token: 5 })).toEqual(reply("1", "1", topic, "ok", granted));
  });

  test("that is sent later is verified, unless it is a key or the same", async () => {
    const socket = await open();
    const first = token({ role: "anon", exp: later() });
    await socket.ask("1", "1", topic, "phx_join", { config: {}, access_token: first });
    for (const accessToken of [first, null, "sb_publishable_x", token({ role: "authenticated", exp: later(), sub: "a" })]) {
      socket.send("1", "2", topic, "access_token", { access_token: accessToken });
    }
    expect(await socket.ask(null, "3", "phoenix", "heartbeat", {})).toEqual(reply(null, "3", "phoenix", "ok", {}));
    socket.send("1", "4", topic, "access_token", { access_token: "" });
    expect(await socket.messages.takes(2)).toEqual([
      ["1", null, topic, "system", { extension: "system", status: "error", message: "The token provided is not a valid JWT", channel: "t" }],
      ["1", "1", topic, "phx_close", {}],
    ]);
  });

  test("that expires ends its channels, and leaves the socket", async () => {
    const socket = await open();
    await socket.ask("1", "1", topic, "phx_join", { config: {}, access_token: token({ role: "anon", exp: later(2) }) });
    await socket.ask("2", "2", "realtime:stays", "phx_join", { config: {} });
    const [system, close] = await vi.waitFor(() => {
      expect(socket.messages.received).toHaveLength(2);
      return socket.messages.received.splice(0);
    }, 10_000);
    expect(system).toMatchObject(["1", null, topic, "system", { extension: "system", status: "error" }]);
    expect(system![4]["message"]).toMatch(/^Token has expired \d seconds ago$/);
    expect(close).toEqual(["1", "1", topic, "phx_close", {}]);
    socket.send("2", "3", "realtime:stays", "phx_leave", {});
    expect(await socket.messages.takes(2)).toHaveLength(2);
  });

  test("of a foreign page may not be a secret one", async () => {
    const { default: ws } = await import("ws");
    const socket = new ws(`${url}?apikey=${portico.status.ANON_KEY}&vsn=2.0.0`, { headers: { origin: "https://elsewhere.test" } });
    const answer = new Promise<WireMessage>((done) => {
      socket.on("message", (data) => {
        done(JSON.parse((data as Buffer).toString()) as WireMessage);
      });
    });
    await new Promise((done) => socket.on("open", done));
    socket.send(JSON.stringify(["1", "1", topic, "phx_join", { config: {}, access_token: portico.status.SERVICE_ROLE_KEY }]));
    expect((await answer)[4]).toMatchObject({ status: "error" });
    socket.close();
  });
});

test("sockets leave connections to the other services", async () => {
  const own = await Portico.start({ files: { "supabase/portico.toml": "[server]\nmax_connections = 8\n" } });
  try {
    const opened: WireSocket[] = [];
    for (let n = 0; n < 6; n++) opened.push(await WireSocket.open(own));
    const handshake = `${own.status.API_URL.replace("http", "ws")}/realtime/v1/websocket?apikey=${own.status.PUBLISHABLE_KEY}`;
    expect(await refused(handshake)).toEqual([429, JSON.stringify({ error: "Too many connected users" })]);
    expect((await fetch(`${own.status.API_URL}/auth/v1/health`, { headers: { apikey: own.status.PUBLISHABLE_KEY } })).status).toBe(200);
    for (const socket of opened) expect((await socket.ask(null, "1", "phoenix", "heartbeat", {}))[4]).toMatchObject({ status: "ok" });
    opened[0]!.close();
    await opened[0]!.closed;
    const next = await vi.waitFor(() => WireSocket.open(own), 10_000);
    for (const socket of [...opened, next]) socket.close();
  } finally {
    await own.dispose();
  }
});

test("a restart closes sockets with 1012", async () => {
  const own = await Portico.start();
  try {
    const socket = await WireSocket.open(own);
    await socket.ask("1", "1", "realtime:a", "phx_join", { config: {} });
    const stopped = own.stop();
    expect(await socket.closed).toBe(1012);
    expect(socket.messages.received).toEqual([[null, null, "realtime:a", "system", { extension: "system", status: "ok", message: "Server requested disconnect" }]]);
    await stopped;
  } finally {
    await own.dispose();
  }
});
