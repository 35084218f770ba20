// Broadcasts from the database: what SQL sends is delivered after its commit, and stored messages
// are replayed.
import type { RealtimeChannel, SupabaseClient } from "@supabase/supabase-js";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { Portico } from "../harness/portico.ts";
import { disconnect, Inbox, joined, subscribed } from "../harness/realtime.ts";

const SCHEMA = `
  create table public.todos (id bigint generated always as identity primary key, title text not null, done boolean default false);
  grant all on public.todos to anon, authenticated, service_role;
  create policy "everybody" on realtime.messages for select to anon, authenticated using (realtime.topic() like 'topic:%');
  create function public.todos_changed() returns trigger language plpgsql security definer set search_path = '' as $$
  begin
    perform realtime.broadcast_changes('topic:todos', tg_op, tg_op, tg_table_name, tg_table_schema, new, old);
    return null;
  end $$;
  create trigger todos_changed after insert or update or delete on public.todos for each row execute function public.todos_changed();
`;

interface Message {
  type: string;
  event: string;
  payload: Record<string, unknown>;
  meta?: { id: string; replayed?: boolean };
}

let portico: Portico;
const open: SupabaseClient[] = [];

beforeAll(async () => {
  portico = await Portico.start({ files: { "supabase/migrations/20260101000000_todos.sql": SCHEMA } });
});
afterAll(() => portico.dispose());
afterEach(async () => {
  for (const client of open.splice(0)) await disconnect(client);
});

function client(version: "1.0.0" | "2.0.0"): SupabaseClient {
  const made = portico.client({ realtime: { vsn: version } });
  open.push(made);
  return made;
}

const run = (text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> => sql(portico.status.DB_URL, text, values);

/** Joins a channel and waits until messages of the database are delivered to it. */
async function ready(channel: RealtimeChannel): Promise<RealtimeChannel> {
  const system = new Inbox<{ status: string; message: string }>();
  channel.on("system", {}, system.add);
  await joined(channel);
  expect((await system.takes(1))[0]).toMatchObject({ extension: "system", status: "ok", message: "Replication connection established" });
  return channel;
}

const broadcast = { replication_ready: true } as object;

describe.each(["1.0.0", "2.0.0"] as const)("version %s", (version) => {
  test("what SQL sends is delivered, to the room it names", async () => {
    const [secret, open_] = [new Inbox<Message>(), new Inbox<Message>()];
    await ready(client(version).channel("topic:a", { config: { private: true, broadcast } }).on("broadcast", { event: "*" }, secret.add));
    await ready(client(version).channel("topic:a", { config: { broadcast } }).on("broadcast", { event: "*" }, open_.add));
    await run("select realtime.send('{\"n\": 1}', 'e', 'topic:a'), realtime.send('{\"n\": 2, \"id\": \"own\"}', 'e', 'topic:a', false)");
    const [first] = await secret.takes(1);
    expect(first).toMatchObject({ type: "broadcast", event: "e", payload: { n: 1 } });
    expect(first!.meta!.id).toMatch(/^[0-9a-f-]{36}$/);
    expect(first!.payload["id"]).toBe(first!.meta!.id);
    expect(await open_.takes(1)).toMatchObject([{ payload: { n: 2, id: "own" } }]);
    expect([secret.received, open_.received]).toEqual([[], []]);
  });

  test("the changes of a table are broadcast by its trigger, in the order of the commits", async () => {
    const received = new Inbox<Message>();
    await ready(client(version).channel("topic:todos", { config: { private: true, broadcast } }).on("broadcast", { event: "*" }, received.add));
    const [{ id }] = (await run("insert into todos (title) values ('a') returning id::int")) as [{ id: number }];
    await run("update todos set done = true where id = $1", [id]);
    await run("delete from todos where id = $1", [id]);
    await run("begin; insert into todos (title) values ('undone'); rollback");
    const messages = await received.takes(3);
    const row = { id, title: "a", done: false };
    const common = { schema: "public", table: "todos" };
    expect(messages.map(({ event }) => event)).toEqual(["INSERT", "UPDATE", "DELETE"]);
    expect(messages.map(({ payload }) => payload)).toMatchObject([
      { ...common, operation: "INSERT", record: row, old_record: null },
      { ...common, operation: "UPDATE", record: { ...row, done: true }, old_record: row },
      { ...common, operation: "DELETE", record: null, old_record: { ...row, done: true } },
    ]);
    expect(received.received).toEqual([]);
  });

  test("stored messages are replayed once, the oldest first, before the live ones", async () => {
    const topic = `topic:replay-${version}`;
    await run("select realtime.send(jsonb_build_object('n', n), 'e', $1) from generate_series(1, 4) n", [topic]);
    await run("update realtime.messages set inserted_at = inserted_at - (5 - (payload ->> 'n')::int) * interval '1 second' where topic = $1", [topic]);
    const received = new Inbox<Message>();
    const replay = { since: Date.now() - 60_000, limit: 3 };
    await ready(client(version).channel(topic, { config: { private: true, broadcast: { replay, ...broadcast } } }).on("broadcast", { event: "*" }, received.add));
    const stored = await received.takes(3);
    expect(stored.map(({ payload }) => payload["n"])).toEqual([2, 3, 4]);
    expect(stored.map(({ meta }) => meta!.replayed)).toEqual([true, true, true]);
    await run("select realtime.send('{\"n\": 5}', 'e', $1)", [topic]);
    const [live] = await received.takes(1);
    expect(live!.payload["n"]).toBe(5);
    expect(live!.meta!.replayed).toBeUndefined();
  });
});

test("bytes of SQL arrive as bytes, live and replayed", async () => {
  const received = new Inbox<Message>();
  await ready(client("2.0.0").channel("topic:bytes", { config: { private: true, broadcast } }).on("broadcast", { event: "*" }, received.add));
  await run("select realtime.send_binary('\\x00ff01', 'b', 'topic:bytes')");
  expect(new Uint8Array((await received.takes(1))[0]!.payload as unknown as ArrayBuffer)).toEqual(Uint8Array.of(0, 255, 1));
  const again = new Inbox<Message>();
  const replay = { since: Date.now() - 60_000 };
  await joined(client("2.0.0").channel("topic:bytes", { config: { private: true, broadcast: { replay } } }).on("broadcast", { event: "*" }, again.add));
  const [message] = await again.takes(1);
  expect(new Uint8Array(message!.payload as unknown as ArrayBuffer)).toEqual(Uint8Array.of(0, 255, 1));
  expect(message!.meta!.replayed).toBe(true);
});

test("parameters of a replay are checked", async () => {
  const join = async (replay: unknown): Promise<string | undefined> => {
    const [, message] = await subscribed(client("2.0.0").channel("topic:x", { config: { private: true, broadcast: { replay } as object } }));
    return message;
  };
  for (const replay of [{ since: "now" }, { since: 1, limit: "x" }, { since: 1e300 }, {}]) {
    expect(await join(replay), JSON.stringify(replay)).toContain("UnableToReplayMessages: Replay params are not valid");
  }
});
