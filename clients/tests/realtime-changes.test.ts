// Database changes: subscriptions, filters, row-level security, and the content of events.
import type { RealtimeChannel, RealtimePostgresChangesPayload, SupabaseClient } from "@supabase/supabase-js";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { signedUp } from "../harness/accounts.ts";
import { sql } from "../harness/database.ts";
import { Portico } from "../harness/portico.ts";
import { disconnect, Inbox, joined } from "../harness/realtime.ts";

const SCHEMA = `
  create table public.notes (id bigint primary key, owner uuid, title text, stars int, tags text[], at timestamptz);
  create table public.open_notes (id bigint primary key, title text, stars int, done boolean, secret text);
  create table public.full_notes (id bigint primary key, title text);
  create table public.unpublished (id bigint primary key);
  alter table public.full_notes replica identity full;
  alter table public.notes enable row level security;
  create policy "own" on public.notes to authenticated using (owner = (select auth.uid()));
  grant all on public.notes, public.full_notes, public.unpublished to anon, authenticated, service_role;
  revoke all on public.open_notes from anon, authenticated;
  grant select (id, title, stars, done), insert, update, delete on public.open_notes to anon, authenticated;
  alter publication supabase_realtime add table public.notes, public.open_notes, public.full_notes;
`;

type Event = RealtimePostgresChangesPayload<Record<string, unknown>>;
type Filter = { event?: string; schema?: string; table?: string; filter?: string; select?: string[] };

let portico: Portico;
const open: SupabaseClient[] = [];

beforeAll(async () => {
  portico = await Portico.start({ config: "[api]\nauto_expose_new_tables = false\n", files: { "supabase/migrations/20260101000000_notes.sql": SCHEMA } });
});
afterAll(() => portico.dispose());
afterEach(async () => {
  for (const client of open.splice(0)) await disconnect(client);
});

const run = (text: string, values: unknown[] = []): Promise<object[]> => sql(portico.status.DB_URL, text, values);

function visitor(version: "1.0.0" | "2.0.0" = "2.0.0", key?: string): SupabaseClient {
  const made = portico.client({ realtime: { vsn: version } }, key);
  open.push(made);
  return made;
}

let rooms = 0;

/** Subscribes to changes, and waits until the database has confirmed it or refused. */
async function listen(client: SupabaseClient, ...filters: Filter[]): Promise<{ events: Inbox<Event>; system: { status: string; message: string }; channel: RealtimeChannel }> {
  const [events, system] = [new Inbox<Event>(), new Inbox<{ status: string; message: string }>()];
  const channel = client.channel(`changes-${++rooms}`);
  for (const filter of filters) channel.on("postgres_changes" as never, { event: "*", schema: "public", ...filter } as never, events.add as never);
  channel.on("system", {}, system.add);
  await joined(channel);
  return { events, system: (await system.takes(1))[0]!, channel };
}

const OK = { extension: "postgres_changes", status: "ok", message: "Subscribed to PostgreSQL" };

describe.each(["1.0.0", "2.0.0"] as const)("version %s", (version) => {
  test("inserts, updates and deletes arrive with their content", async () => {
    const { events, system } = await listen(visitor(version), { table: "open_notes" });
    expect(system).toMatchObject(OK);
    await run("insert into open_notes values (1, 'a', 5, null, 'hidden')");
    await run("update open_notes set title = 'b' where id = 1");
    await run("delete from open_notes where id = 1");
    const [inserted, updated, deleted] = await events.takes(3);
    expect(inserted).toMatchObject({ schema: "public", table: "open_notes", eventType: "INSERT", new: { id: 1, title: "a", stars: 5, done: null }, old: {}, errors: null });
    expect(inserted!.new).not.toHaveProperty("secret");
    expect(inserted!.commit_timestamp).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(updated).toMatchObject({ eventType: "UPDATE", new: { id: 1, title: "b" }, old: { id: 1 } });
    expect(deleted).toMatchObject({ eventType: "DELETE", new: {}, old: { id: 1 } });
  });
});

test("with a full replica identity the old row is whole", async () => {
  const { events } = await listen(visitor(), { table: "full_notes" });
  await run("insert into full_notes values (1, 'a')");
  await run("update full_notes set title = 'b'");
  await run("delete from full_notes");
  expect((await events.takes(3)).map(({ old }) => old)).toEqual([{}, { id: 1, title: "a" }, { id: 1, title: "b" }]);
});

test("a person receives the rows that they may select, and no others", async () => {
  const [alice, bob] = [await signedUp(portico), await signedUp(portico)];
  open.push(alice.client, bob.client);
  for (const { client } of [alice, bob]) await client.realtime.setAuth();
  const ofAlice = await listen(alice.client, { table: "notes" });
  const ofBob = await listen(bob.client, { table: "notes" });
  const ofVisitor = await listen(visitor(), { table: "notes" });
  const ofService = await listen(visitor("2.0.0", portico.status.SECRET_KEY), { table: "notes" });
  await run("insert into notes (id, owner, title) values (1, $1, 'of Alice'), (2, $2, 'of Bob'), (3, null, 'of nobody')", [alice.id, bob.id]);
  const title = (event: Event): unknown => (event.new as { title: string }).title;
  expect((await ofService.events.takes(3)).map(title)).toEqual(["of Alice", "of Bob", "of nobody"]);
  expect((await ofAlice.events.takes(1)).map(title)).toEqual(["of Alice"]);
  expect((await ofBob.events.takes(1)).map(title)).toEqual(["of Bob"]);
  // A DELETE is not checked, and has the key alone. Nothing else came before it
  await run("delete from notes where id = 3");
  for (const { events } of [ofAlice, ofBob, ofService, ofVisitor]) {
    expect((await events.takes(1)).map(({ eventType, old }) => [eventType, old])).toEqual([["DELETE", { id: 3 }]]);
  }
  for (const { events } of [ofAlice, ofBob, ofService, ofVisitor]) expect(events.received).toEqual([]);
});

test("filters choose the rows", async () => {
  const filters: [string, number[]][] = [
    ["id=eq.11", [11]],
    ["id=in.(11,13)", [11, 13]],
    ["stars=gt.2", [12, 13]],
    ["stars=lte.2", [11]],
    ["title=neq.a", [12, 13]],
    ["title=like.b%", [12]],
    ["title=ilike.B%", [12]],
    ["title=match.^[bc]$", [12, 13]],
    ["done=is.null", [13]],
    ["done=not.is.null", [11, 12, 14]],
    ["done=isdistinct.true", [12, 13]],
    ["stars=gte.2,title=not.eq.c", [11, 12]],
    ['title=in.(a,"c")', [11, 13]],
  ];
  const listeners = await Promise.all(filters.map(async ([filter, ids]) => ({ filter, ids, ...(await listen(visitor(), { table: "open_notes", event: "INSERT", filter })) })));
  await run("insert into open_notes values (11, 'a', 2, true), (12, 'b', 3, false), (13, 'c', 4, null), (14, null, null, true)");
  const all = await listen(visitor(), { table: "open_notes", event: "DELETE" });
  for (const { filter, ids, system, events } of listeners) {
    expect(system, filter).toMatchObject(OK);
    const found = (await events.takes(ids.length)).map((event) => (event.new as { id: number }).id);
    expect(found.sort(), filter).toEqual(ids);
  }
  await run("delete from open_notes");
  expect(await all.events.takes(4)).toHaveLength(4);
  for (const { filter, events } of listeners) expect(events.received, filter).toEqual([]);
});

test("columns are chosen, and the key is always among them", async () => {
  const { events, system } = await listen(visitor(), { table: "open_notes", event: "INSERT", select: ["title"] });
  expect(system).toMatchObject(OK);
  await run("insert into open_notes values (21, 'x', 1)");
  expect((await events.takes(1))[0]!.new).toEqual({ id: 21, title: "x" });
});

test("a subscription that is not possible says why, and the channel stays", async () => {
  const refused = async (filter: Filter): Promise<string> => {
    const { system } = await listen(visitor(), filter);
    expect(system).toMatchObject({ extension: "postgres_changes", status: "error" });
    return system.message;
  };
  expect(await refused({ table: "unpublished" })).toBe(
    "Unable to subscribe to changes with given parameters. Please check Realtime is enabled for the given connect parameters: [event: *, schema: public, table: unpublished, filters: [], select: nil]",
  );
  expect(await refused({ table: "open_notes", filter: "nope=eq.1" })).toBe(
    'Unable to subscribe to changes with given parameters. An exception happened so please check your connect parameters: [event: *, schema: public, table: open_notes, filters: [{"nope", "eq", "1", false}], select: nil]. Exception: ERROR P0001 (raise_exception) invalid column for filter nope',
  );
  expect(await refused({ table: "open_notes", filter: "secret=eq.1" })).toContain("invalid column for filter secret");
  expect(await refused({ table: "open_notes", filter: "id=eq.hey" })).toContain('invalid input syntax for type bigint: "hey"');
  expect(await refused({ table: "open_notes", filter: "wrong" })).toBe('Error parsing `filter` params: ["wrong"]');
  expect(await refused({ table: "open_notes", filter: "id=foo.1" })).toContain("Error parsing `filter` params: ");
  expect(await refused({ table: "open_notes", filter: "id=in.1" })).toBe("Error parsing `filter` params: `in` filter value must be wrapped by parentheses");
});

test("several entries of a channel are routed to their own callbacks", async () => {
  const [inserts, all] = [new Inbox<Event>(), new Inbox<Event>()];
  const system = new Inbox();
  const channel = visitor()
    .channel("several")
    .on("postgres_changes", { event: "INSERT", schema: "public", table: "open_notes" }, inserts.add)
    .on("postgres_changes", { event: "*", schema: "public" }, all.add)
    .on("system", {}, system.add);
  await joined(channel);
  await system.takes(1);
  await run("insert into open_notes values (31, 'x', 1)");
  await run("delete from open_notes where id = 31");
  expect((await all.takes(2)).map(({ eventType }) => eventType)).toEqual(["INSERT", "DELETE"]);
  expect((await inserts.takes(1)).map(({ eventType }) => eventType)).toEqual(["INSERT"]);
  expect(inserts.received).toEqual([]);
});

test("a table that is published later is noticed", async () => {
  const first = await listen(visitor(), { table: "unpublished" });
  expect(first.system.status).toBe("error");
  await run("alter publication supabase_realtime add table public.unpublished");
  try {
    const { events, system } = await listen(visitor(), { table: "unpublished" });
    expect(system).toMatchObject(OK);
    await run("insert into unpublished values (1)");
    expect(await events.takes(1)).toMatchObject([{ eventType: "INSERT", table: "unpublished", new: { id: 1 } }]);
  } finally {
    await run("alter publication supabase_realtime drop table public.unpublished");
  }
});
