// Broadcasts on public channels: the official client in both versions of the protocol, and HTTP.
import { type SupabaseClient } from "@supabase/supabase-js";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { Portico } from "../harness/portico.ts";
import { disconnect, Inbox, joined } from "../harness/realtime.ts";

let portico: Portico;
const open: SupabaseClient[] = [];

const VERSIONS = ["1.0.0", "2.0.0"] as const;
type Version = (typeof VERSIONS)[number];

beforeAll(async () => {
  portico = await Portico.start();
});
afterAll(() => portico.dispose());
afterEach(async () => {
  for (const client of open.splice(0)) await disconnect(client);
});

/** A client that is disconnected after the test. */
function client(version: Version): SupabaseClient {
  const made = portico.client({ realtime: { vsn: version } });
  open.push(made);
  return made;
}

interface Message {
  event: string;
  payload: unknown;
}

const inbox = (): Inbox<Message> => new Inbox<Message>();

describe.each(VERSIONS.flatMap((from) => VERSIONS.map((to) => [from, to] as const)))("from %s to %s", (from, to) => {
  test("a message reaches the others of its room, and the sender only if it asks for that", async () => {
    const [received, own, elsewhere] = [inbox(), inbox(), inbox()];
    await joined(client(to).channel("room:1").on("broadcast", { event: "*" }, received.add));
    await joined(client(to).channel("room:2").on("broadcast", { event: "*" }, elsewhere.add));
    const sender = await joined(client(from).channel("room:1", { config: { broadcast: { self: true, ack: true } } }).on("broadcast", { event: "cursor" }, own.add));
    expect(await sender.send({ type: "broadcast", event: "cursor", payload: { x: 1, text: "é \" \\" } })).toBe("ok");
    const expected = { type: "broadcast", event: "cursor", payload: { x: 1, text: "é \" \\" } };
    expect(await received.takes(1)).toEqual([expected]);
    expect(await own.takes(1)).toEqual([expected]);
    expect(elsewhere.received).toEqual([]);

    const silent = await joined(client(from).channel("room:1").on("broadcast", { event: "*" }, elsewhere.add));
    await silent.send({ type: "broadcast", event: "e", payload: {} });
    await received.takes(1);
    expect(elsewhere.received).toEqual([]);
  });

  test("a thousand messages arrive in order", async () => {
    const received = new Inbox<{ payload: { n: number } }>();
    await joined(client(to).channel("order").on("broadcast", { event: "n" }, received.add));
    const sender = await joined(client(from).channel("order"));
    for (let n = 0; n < 1000; n++) void sender.send({ type: "broadcast", event: "n", payload: { n } });
    expect((await received.takes(1000)).map(({ payload }) => payload.n)).toEqual(Array.from({ length: 1000 }, (_, n) => n));
  });
});

test("bytes arrive as bytes at clients of version 2.0.0 alone", async () => {
  const [binary, text] = [new Inbox<{ payload: ArrayBuffer }>(), inbox()];
  await joined(client("2.0.0").channel("bytes").on("broadcast", { event: "*" }, binary.add));
  await joined(client("1.0.0").channel("bytes").on("broadcast", { event: "*" }, text.add));
  const sender = await joined(client("2.0.0").channel("bytes", { config: { broadcast: { ack: true } } }));
  const bytes = Uint8Array.from({ length: 256 }, (_, n) => n);
  expect(await sender.send({ type: "broadcast", event: "b", payload: bytes.buffer })).toBe("ok");
  expect(await sender.send({ type: "broadcast", event: "j", payload: { done: true } })).toBe("ok");
  const [first] = await binary.takes(2);
  expect(new Uint8Array(first!.payload)).toEqual(bytes);
  expect(await text.takes(1)).toEqual([{ type: "broadcast", event: "j", payload: { done: true } }]);
});

test("names of any characters, and names too long for a binary frame", async () => {
  for (const name of ["a/b c:é", "日本", "%2F", "n".repeat(200)]) {
    const received = inbox();
    await joined(client("2.0.0").channel(name).on("broadcast", { event: "*" }, received.add));
    const sender = client("2.0.0").channel(name);
    expect(await sender.httpSend(`${name}!`, { name })).toEqual({ success: true });
    expect(await received.takes(1)).toMatchObject([{ event: `${name}!`, payload: { name } }]);
  }
  const long = "l".repeat(300);
  const received = inbox();
  await joined(client("2.0.0").channel(long).on("broadcast", { event: "*" }, received.add));
  expect(await client("2.0.0").channel(long).httpSend("e", { fits: true })).toEqual({ success: true });
  expect(await received.takes(1)).toMatchObject([{ event: "e", payload: { fits: true } }]);
});

test("a payload above the limit is refused", async () => {
  const received = inbox();
  await joined(client("2.0.0").channel("large").on("broadcast", { event: "*" }, received.add));
  const sender = await joined(client("2.0.0").channel("large", { config: { broadcast: { ack: true } } }));
  expect(await sender.send({ type: "broadcast", event: "e", payload: { text: "x".repeat(3_000_400) } })).toBe("ok");
  expect(await sender.send({ type: "broadcast", event: "e", payload: { text: "x".repeat(3_000_600) } })).toBe("error");
  await received.takes(1);
  await expect(sender.httpSend("e", { text: "x".repeat(3_000_600) })).rejects.toThrow();
});

describe("over HTTP", () => {
  const post = (path: string, body: BodyInit | undefined, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${portico.status.API_URL}/realtime/v1/api/broadcast${path}`, { method: "POST", ...(body === undefined ? {} : { body }), headers: { apikey: portico.status.PUBLISHABLE_KEY, ...headers } });
  const json = { "content-type": "application/json" };

  test("a batch goes to every room it names", async () => {
    const [first, second] = [inbox(), inbox()];
    await joined(client("2.0.0").channel("h:1").on("broadcast", { event: "*" }, first.add));
    await joined(client("1.0.0").channel("h:2").on("broadcast", { event: "*" }, second.add));
    const messages = [
      { topic: "h:1", event: "a", payload: { n: 1 } },
      { topic: "h:2", event: "b", payload: { n: 2 }, private: false, id: "x" },
    ];
    const response = await post("?apikey=ignored&vsn=2.0.0", JSON.stringify({ messages }), json);
    expect([response.status, await response.text()]).toEqual([202, ""]);
    expect(response.headers.get("access-control-allow-origin")).toBe("*");
    expect(await first.takes(1)).toEqual([{ type: "broadcast", event: "a", payload: { n: 1 } }]);
    expect(await second.takes(1)).toEqual([{ type: "broadcast", event: "b", payload: { n: 2 }, meta: { id: "x" } }]);
  });

  test("an invalid message refuses the whole batch", async () => {
    const received = inbox();
    await joined(client("2.0.0").channel("v").on("broadcast", { event: "*" }, received.add));
    const errors = async (body: unknown): Promise<[number, unknown]> => {
      const response = await post("", JSON.stringify(body), json);
      return [response.status, await response.json()];
    };
    expect(await errors({})).toEqual([422, { errors: { messages: ["can't be blank"] } }]);
    expect(await errors({ messages: [{ topic: "v" }, { topic: "v", event: "e", payload: {} }] })).toEqual([422, { errors: { messages: [{ event: ["can't be blank"], payload: ["can't be blank"] }, {}] } }]);
    expect(await errors({ messages: [{ topic: "v", event: 1, payload: [] }] })).toEqual([422, { errors: { messages: [{ event: ["is invalid"], payload: ["is invalid"] }] } }]);
    expect(await errors({ messages: [{ topic: "v", event: "e", payload: { text: "x".repeat(3_000_600) } }] })).toEqual([422, { errors: { messages: [{ payload: ["Payload size exceeds tenant limit"] }] } }]);
    await post("", JSON.stringify({ messages: [{ topic: "v", event: "last", payload: {} }] }), json);
    expect(await received.takes(1)).toMatchObject([{ event: "last" }]);
  });

  test("a single message has the form of its body", async () => {
    const received = new Inbox<{ event: string; payload: unknown }>();
    await joined(client("2.0.0").channel("s/1").on("broadcast", { event: "*" }, received.add));
    const path = `/${encodeURIComponent("s/1")}/events/${encodeURIComponent("e/v")}`;
    const statuses = [
      (await post(path, JSON.stringify({ a: 1 }), { "content-type": "application/json; charset=utf-8" })).status,
      (await post(path, Buffer.from([1, 2]), { "content-type": "application/octet-stream" })).status,
      (await post(path, undefined)).status,
      (await post(path, "3", json)).status,
    ];
    expect(statuses).toEqual([202, 202, 202, 202]);
    const messages = await received.takes(4);
    expect(messages.map(({ event }) => event)).toEqual(["e/v", "e/v", "e/v", "e/v"]);
    expect(messages[0]!.payload).toEqual({ a: 1 });
    expect(new Uint8Array(messages[1]!.payload as ArrayBuffer)).toEqual(Uint8Array.of(1, 2));
    expect(messages[2]!.payload).toEqual({});
    expect(messages[3]!.payload).toBe(3);
    const other = await post(path, "a=1", { "content-type": "application/x-www-form-urlencoded" });
    expect([other.status, await other.json()]).toEqual([415, { error: "Unsupported Media Type. Use application/json or application/octet-stream" }]);
  });

  test("needs a token that is valid", async () => {
    const answer = async (headers: Record<string, string>): Promise<[number, unknown]> => {
      const response = await post("/t/events/e", "{}", { ...json, ...headers });
      return [response.status, await response.json().catch(() => null)];
    };
    const unauthorized = [401, { message: "Unauthorized" }];
    expect(await answer({ apikey: "" })).toEqual(unauthorized);
    expect(await answer({ authorization: "Bearer x.y.z" })).toEqual(unauthorized);
    expect(await answer({ authorization: "Bearer" })).toEqual(unauthorized);
    expect(await answer({ authorization: `bearer ${portico.status.PUBLISHABLE_KEY}` })).toEqual([202, null]);
    expect(await answer({ authorization: `Bearer ${portico.status.ANON_KEY}` })).toEqual([202, null]);
    expect((await fetch(`${portico.status.API_URL}/realtime/v1/api/ping`)).status).toBe(200);
  });
});
