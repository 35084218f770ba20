// Presence: who is there, in both versions of the protocol.
import type { RealtimeChannel, SupabaseClient } from "@supabase/supabase-js";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";

import { Portico } from "../harness/portico.ts";
import { disconnect, Inbox, joined, WireSocket } from "../harness/realtime.ts";

let portico: Portico;
const open: SupabaseClient[] = [];

beforeAll(async () => {
  portico = await Portico.start();
});
afterAll(() => portico.dispose());
afterEach(async () => {
  for (const client of open.splice(0)) await disconnect(client);
});

const VERSIONS = ["1.0.0", "2.0.0"] as const;

function client(version: (typeof VERSIONS)[number]): SupabaseClient {
  const made = portico.client({ realtime: { vsn: version } });
  open.push(made);
  return made;
}

interface Change {
  event: string;
  key: string;
  newPresences: Record<string, unknown>[];
  leftPresences: Record<string, unknown>[];
}

/** A channel that records what its presence tells. */
function present(version: (typeof VERSIONS)[number], topic: string, key: string): { channel: RealtimeChannel; changes: Inbox<Change> } {
  const changes = new Inbox<Change>();
  const channel = client(version).channel(topic, { config: { presence: { key } } });
  channel.on("presence", { event: "join" }, (change) => {
    changes.add(change as unknown as Change);
  });
  channel.on("presence", { event: "leave" }, (change) => {
    changes.add(change as unknown as Change);
  });
  return { channel, changes };
}

const names = (channel: RealtimeChannel): Record<string, unknown[]> =>
  Object.fromEntries(Object.entries(channel.presenceState()).map(([key, metas]) => [key, metas.map((meta) => (meta as unknown as Record<string, unknown>)["name"]).sort()]));

describe.each(VERSIONS)("version %s", (version) => {
  test("those who track are seen by all, and leave when they untrack, leave or are gone", async () => {
    const [alice, bob, watcher] = [present(version, "p", "alice"), present("2.0.0", "p", "bob"), present("1.0.0", "p", "watcher")];
    for (const { channel } of [alice, bob, watcher]) await joined(channel);
    expect(await alice.channel.track({ name: "Alice", status: { typing: true } })).toBe("ok");
    expect(await bob.channel.track({ name: "Bob" })).toBe("ok");
    for (const { channel } of [alice, bob, watcher]) {
      await vi.waitFor(() => {
        expect(names(channel)).toEqual({ alice: ["Alice"], bob: ["Bob"] });
      });
    }
    const late = present(version, "p", "late");
    await joined(late.channel);
    await vi.waitFor(() => {
      expect(names(late.channel)).toEqual({ alice: ["Alice"], bob: ["Bob"] });
    });
    expect(await alice.channel.untrack()).toBe("ok");
    await vi.waitFor(() => {
      expect(names(watcher.channel)).toEqual({ bob: ["Bob"] });
    });
    await bob.channel.socket.disconnect();
    await vi.waitFor(() => {
      expect(names(watcher.channel)).toEqual({});
    });
  });

  test("a new payload replaces the old one, and an equal one changes nothing", async () => {
    const [alice, watcher] = [present(version, "u", "alice"), present(version, "u", "watcher")];
    await joined(watcher.channel);
    await joined(alice.channel);
    await alice.channel.track({ name: "one" });
    expect(await watcher.changes.takes(1)).toMatchObject([{ event: "join", key: "alice", newPresences: [{ name: "one" }] }]);
    await alice.channel.track({ name: "two" });
    const updates = await watcher.changes.takes(2);
    expect(updates.map(({ event }) => event).sort()).toEqual(["join", "leave"]);
    // The client itself loses the reference of the entry before, so its own state keeps both
    expect(await alice.channel.track({ name: "two" })).toBe("ok");
    await alice.channel.untrack();
    expect(await watcher.changes.takes(1)).toMatchObject([{ event: "leave", leftPresences: [{ name: "two" }] }]);
  });

  test("several channels share a key, and each contributes an entry", async () => {
    const [first, second] = [present(version, "k", "same"), present(version, "k", "same")];
    for (const { channel } of [first, second]) await joined(channel);
    await first.channel.track({ name: "a" });
    await second.channel.track({ name: "b" });
    await vi.waitFor(() => {
      expect(names(first.channel)).toEqual({ same: ["a", "b"] });
    });
    await second.channel.unsubscribe();
    await vi.waitFor(() => {
      expect(names(first.channel)).toEqual({ same: ["a"] });
    });
  });
});

describe("frame by frame", () => {
  const topic = "realtime:w";
  const track = (payload: unknown): object => ({ type: "presence", event: "track", payload });

  test("the state comes after the join, and each change as one difference", async () => {
    const socket = await WireSocket.open(portico);
    socket.send("1", "1", topic, "phx_join", { config: { presence: { enabled: true, key: "me" } } });
    expect((await socket.messages.takes(2))[1]).toEqual(["1", null, topic, "presence_state", {}]);
    socket.send("1", "2", topic, "presence", track({ n: 1 }));
    const [first, second] = await socket.messages.takes(2);
    const byEvent = (event: string): Record<string, unknown> => [first!, second!].find((message) => message[3] === event)![4];
    expect(byEvent("phx_reply")).toEqual({ status: "ok", response: {} });
    const { joins, leaves } = byEvent("presence_diff") as { joins: { me: { metas: Record<string, unknown>[] } }; leaves: object };
    const { phx_ref: ref, ...rest } = joins.me.metas[0]!;
    expect([rest, leaves]).toEqual([{ n: 1 }, {}]);
    expect(ref).toMatch(/^\S{16}$/);

    socket.send("1", "3", topic, "presence", { type: "presence", event: "TRACK", payload: { n: 2, phx_ref: "mine" } });
    const updated = (await socket.messages.takes(2)).find((message) => message[3] === "presence_diff")![4] as { joins: { me: { metas: Record<string, unknown>[] } }; leaves: { me: { metas: unknown[] } } };
    expect(updated.leaves.me.metas).toEqual([{ phx_ref: ref, n: 1 }]);
    expect(updated.joins.me.metas).toMatchObject([{ phx_ref_prev: ref, n: 2 }]);
    expect(updated.joins.me.metas[0]!["phx_ref"]).toMatch(/^\S{16}$/);
    socket.close();
  });

  test("wrong calls are refused, and too many end the channel", async () => {
    const socket = await WireSocket.open(portico);
    // Without a configuration the topic would name a table, whose rejection arrives at some time
    await socket.ask("1", "1", topic, "phx_join", { config: {} });
    const status = async (ref: string, payload: unknown): Promise<unknown> => (await socket.ask("1", ref, topic, "presence", payload))[4];
    expect(await status("2", track([]))).toEqual({ status: "error", response: { reason: "Presence track payload must be a map" } });
    expect(await status("3", { event: "other" })).toEqual({ status: "error", response: {} });
    expect(await status("4", { type: "presence" })).toEqual({ status: "ok", response: {} });
    expect(await status("5", { event: "untrack" })).toEqual({ status: "ok", response: {} });
    expect(await status("6", { event: "untrack" })).toEqual({ status: "ok", response: {} });
    socket.send("1", "7", topic, "presence", { event: "untrack" });
    expect(await socket.messages.takes(2)).toEqual([
      ["1", null, topic, "system", { extension: "system", status: "error", message: "Client presence rate limit exceeded", channel: "w" }],
      ["1", "1", topic, "phx_close", {}],
    ]);
    socket.close();
  });
});
