// Failures under open channels, while rows and messages go on being written: clients receive them
// again by themselves, none of them twice, and miss only those of the failure.
import { readdirSync, readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { Portico, projectFolder } from "../harness/portico.ts";
import { disconnect, expectGapsOnlyIn, Inbox, type Outage, SteadyWriter } from "../harness/realtime.ts";

const SCHEMA = `
  create table public.notes (id int primary key);
  alter table public.notes disable row level security;
  grant select on public.notes to anon, authenticated;
  alter publication supabase_realtime add table public.notes;
`;

let folder: string;
let portico: Portico;
const open: SupabaseClient[] = [];
const writers: SteadyWriter[] = [];

beforeAll(async () => {
  folder = await projectFolder({ files: { "supabase/migrations/20260101000000_notes.sql": SCHEMA } });
  portico = await Portico.start({ folder });
});
afterAll(() => portico.dispose());
afterEach(async () => {
  for (const writer of writers.splice(0)) await writer.stop();
  for (const client of open.splice(0)) await disconnect(client);
});

/** Writes numbered rows, and a message of the database with each. */
function write(first: number): SteadyWriter {
  const statement = "with row as (insert into notes values ($1::int)) select realtime.send(jsonb_build_object('n', $1::int), 'n', 'steady', false)";
  const writer = new SteadyWriter(first, (n) => sql(portico.status.DB_URL, statement, [n]));
  writers.push(writer);
  return writer;
}

interface Listener {
  ids: Inbox<number>;
  messages: Inbox<number>;
  system: Inbox<{ status: string; message: string }>;
  statuses: Inbox<string>;
}

/** A channel with database changes and broadcasts, and what it has received. */
function listen(): Listener {
  const [ids, messages, system, statuses] = [new Inbox<number>(), new Inbox<number>(), new Inbox<{ status: string; message: string }>(), new Inbox<string>()];
  const client = portico.client({ realtime: { vsn: "2.0.0", reconnectAfterMs: () => 100 } });
  open.push(client);
  client
    .channel("steady")
    .on("postgres_changes", { event: "INSERT", schema: "public", table: "notes" }, (change) => {
      ids.add((change.new as { id: number }).id);
    })
    .on("broadcast", { event: "n" }, ({ payload }) => {
      messages.add((payload as { n: number }).n);
    })
    .on("system", {}, (message: { extension: string; status: string; message: string }) => {
      if (message.extension === "postgres_changes") system.add(message);
    })
    .subscribe(statuses.add);
  return { ids, messages, system, statuses };
}

const SUBSCRIBED = { status: "ok", message: "Subscribed to PostgreSQL" };

/** Waits for the next confirmation, whatever errors come before it. */
async function confirmed(system: Inbox<{ status: string; message: string }>): Promise<void> {
  for (;;) {
    const taken = await system.takes(1, 60_000);
    if (taken.some(({ status }) => status === "ok")) {
      expect(taken.at(-1)).toMatchObject(SUBSCRIBED);
      return;
    }
  }
}

/** The process of PostgreSQL, by the file that it keeps in its data folder. */
function postmaster(): number {
  const file = readdirSync(folder, { recursive: true, encoding: "utf8" }).find((path) => path.endsWith("postmaster.pid"));
  if (file === undefined) throw new Error("PostgreSQL does not run");
  return Number(readFileSync(join(folder, file), "utf8").split("\n")[0]);
}

/**
 * Lets a server fail while numbers are written, and returns the time in which rows and messages may
 * be lost.
 */
async function outage({ ids, messages, system }: Listener, writer: SteadyWriter, fail: () => Promise<void>): Promise<{ ids: Outage; messages: Outage }> {
  const logs = [ids.received, messages.received];
  const passed = async (n: number): Promise<void> => {
    for (const log of logs) await expect.poll(() => log.at(-1) ?? 0).toBeGreaterThan(n);
  };
  await passed(writer.next + 5);
  const [lastId, lastMessage] = logs.map((log) => log.at(-1)!);
  await fail();
  await confirmed(system);
  const firstAfter = writer.next;
  await passed(firstAfter + 5);
  return { ids: { lastBefore: lastId!, firstAfter }, messages: { lastBefore: lastMessage!, firstAfter } };
}

/** Ends the writing, and compares what has arrived with what was written. */
async function expectGaps({ ids, messages }: Listener, writer: SteadyWriter, outages: { ids: Outage; messages: Outage }[]): Promise<void> {
  const last = await writer.stop();
  for (const log of [ids, messages]) await expect.poll(() => log.received.at(-1)).toBe(last);
  expectGapsOnlyIn(outages.map(({ ids }) => ids), ids.received, writer.written);
  expectGapsOnlyIn(outages.map(({ messages }) => messages), messages.received, writer.written);
}

test("after PostgreSQL was killed a channel goes on without a new join, with one gap", async () => {
  const listener = listen();
  await confirmed(listener.system);
  const writer = write(1);
  const kill = (): Promise<void> => {
    process.kill(postmaster(), "SIGKILL");
    return Promise.resolve();
  };
  const outages = [await outage(listener, writer, kill), await outage(listener, writer, kill)];
  await expectGaps(listener, writer, outages);
  expect(listener.statuses.received).toEqual(["SUBSCRIBED"]);
});

test.each(["SIGKILL", "SIGTERM"] as const)("after a server has ended by %s and started again the client joins by itself, with one gap", async (signal) => {
  // The next start has the same ports
  for (const [table, url] of [["api", portico.status.API_URL], ["db", portico.status.DB_URL]] as const) {
    const path = join(folder, "supabase/config.toml");
    const config = await readFile(path, "utf8");
    await writeFile(path, config.replace(new RegExp(`(^\\[${table}\\][^[]*?^port = )0$`, "m"), `$1${new URL(url).port}`));
  }
  const listener = listen();
  await confirmed(listener.system);
  const writer = write(signal === "SIGKILL" ? 1_000_000 : 2_000_000);
  const restarted = await outage(listener, writer, async () => {
    await portico.stop(signal);
    portico = await Portico.start({ folder });
  });
  await expectGaps(listener, writer, [restarted]);
  const { received } = listener.statuses;
  expect([received[0], received.at(-1)]).toEqual(["SUBSCRIBED", "SUBSCRIBED"]);
  expect(received.length).toBeGreaterThan(2);
});
