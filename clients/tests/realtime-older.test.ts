// A client of the time before version 2.0.0 of the protocol, and a current one, each with its own
// default, in one room.
import type { RealtimeChannel } from "@supabase/supabase-js";
import { createClient as createOlderClient } from "supabase-js-older";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";

import { Portico } from "../harness/portico.ts";
import { disconnect, Inbox, joined } from "../harness/realtime.ts";

let portico: Portico;

beforeAll(async () => {
  portico = await Portico.start();
});
afterAll(() => portico.dispose());

test("broadcasts and presence cross between a client of version 1.0.0 and one of 2.0.0", async () => {
  const transport = WebSocket as unknown as typeof globalThis.WebSocket;
  const older = createOlderClient(portico.url, portico.status.PUBLISHABLE_KEY, { realtime: { transport }, auth: { persistSession: false } });
  const current = portico.client();
  expect(older.realtime.endpointURL()).toContain("vsn=1.0.0");
  expect(current.realtime.endpointURL()).toContain("vsn=2.0.0");

  const config = (key: string) => ({ config: { broadcast: { self: true, ack: true }, presence: { key, enabled: true } } });
  const [atOlder, atCurrent] = [new Inbox(), new Inbox()];
  // The classes of the two packages have the same methods
  const first = older.channel("together", config("older")) as unknown as RealtimeChannel;
  const second = current.channel("together", config("current"));
  for (const [channel, inbox] of [[first, atOlder], [second, atCurrent]] as const) {
    await joined(channel.on("presence", { event: "sync" }, () => undefined).on("broadcast", { event: "cursor" }, inbox.add));
  }

  for (const [sender, text] of [[first, "é \" \\"], [second, "日本"]] as const) {
    expect(await sender.send({ type: "broadcast", event: "cursor", payload: { text } })).toBe("ok");
    for (const inbox of [atOlder, atCurrent]) expect(await inbox.takes(1)).toEqual([{ type: "broadcast", event: "cursor", payload: { text } }]);
  }
  expect(await second.httpSend("cursor", { text: "over HTTP" })).toEqual({ success: true });
  for (const inbox of [atOlder, atCurrent]) expect(await inbox.takes(1)).toMatchObject([{ event: "cursor", payload: { text: "over HTTP" } }]);

  const names = (channel: RealtimeChannel): Record<string, unknown> =>
    Object.fromEntries(Object.entries(channel.presenceState<{ name: string }>()).map(([key, entries]) => [key, entries.map(({ name }) => name)]));
  expect(await first.track({ name: "Ada" })).toBe("ok");
  expect(await second.track({ name: "Grace" })).toBe("ok");
  for (const channel of [first, second]) await expect.poll(() => names(channel)).toEqual({ older: ["Ada"], current: ["Grace"] });
  expect(await second.untrack()).toBe("ok");
  await expect.poll(() => names(first)).toEqual({ older: ["Ada"] });
  await older.removeAllChannels();
  await expect.poll(() => names(second)).toEqual({});
  older.realtime.disconnect();
  await disconnect(current);
});
