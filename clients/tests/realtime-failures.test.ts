// Failures under open channels: clients receive changes again by themselves, and none of them
// twice.
import { readdirSync, readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { Portico, projectFolder } from "../harness/portico.ts";
import { disconnect, Inbox } from "../harness/realtime.ts";

const SCHEMA = `
  create table public.notes (id int primary key);
  alter table public.notes disable row level security;
  grant select on public.notes to anon, authenticated;
  alter publication supabase_realtime add table public.notes;
`;

let folder: string;
let portico: Portico;
const open: SupabaseClient[] = [];

beforeAll(async () => {
  folder = await projectFolder({ files: { "supabase/migrations/20260101000000_notes.sql": SCHEMA } });
  portico = await Portico.start({ folder });
});
afterAll(() => portico.dispose());
afterEach(async () => {
  for (const client of open.splice(0)) await disconnect(client);
});

const insert = (id: number): Promise<object[]> => sql(portico.status.DB_URL, "insert into notes values ($1)", [id]);

/** A channel with database changes and broadcasts, and what it has received. */
function listen(name: string): { ids: Inbox<number>; messages: Inbox<number>; system: Inbox<{ status: string; message: string }>; statuses: Inbox<string> } {
  const [ids, messages, system, statuses] = [new Inbox<number>(), new Inbox<number>(), new Inbox<{ status: string; message: string }>(), new Inbox<string>()];
  const client = portico.client({ realtime: { vsn: "2.0.0", reconnectAfterMs: () => 100 } });
  open.push(client);
  client
    .channel(name)
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

const send = (n: number): Promise<object[]> => sql(portico.status.DB_URL, "select realtime.send(jsonb_build_object('n', $1::int), 'n', 'postgres', false)", [n]);

test("after PostgreSQL was killed a channel receives changes again without a new join", async () => {
  const { ids, messages, system, statuses } = listen("postgres");
  await confirmed(system);
  await insert(1);
  await send(1);
  expect([await ids.takes(1), await messages.takes(1)]).toEqual([[1], [1]]);
  for (const id of [2, 3]) {
    process.kill(postmaster(), "SIGKILL");
    await confirmed(system);
    await insert(id);
    await send(id);
    expect([await ids.takes(1), await messages.takes(1)]).toEqual([[id], [id]]);
  }
  await insert(4);
  await send(4);
  expect([await ids.takes(1), await messages.takes(1)]).toEqual([[4], [4]]);
  expect(statuses.received).toEqual(["SUBSCRIBED"]);
});

test.each(["SIGKILL", "SIGTERM"] as const)("after a server has ended by %s and started again the client joins by itself", async (signal) => {
  const first = signal === "SIGKILL" ? 10 : 20;
  // The next start has the same ports
  for (const [table, url] of [["api", portico.status.API_URL], ["db", portico.status.DB_URL]] as const) {
    const path = join(folder, "supabase/config.toml");
    const config = await readFile(path, "utf8");
    await writeFile(path, config.replace(new RegExp(`(^\\[${table}\\][^[]*?^port = )0$`, "m"), `$1${new URL(url).port}`));
  }
  const { ids, system, statuses } = listen(signal);
  await confirmed(system);
  await insert(first);
  expect(await ids.takes(1)).toEqual([first]);
  await portico.stop(signal);
  portico = await Portico.start({ folder });
  await confirmed(system);
  await insert(first + 1);
  await insert(first + 2);
  expect(await ids.takes(2)).toEqual([first + 1, first + 2]);
  expect(statuses.received.at(-1)).toBe("SUBSCRIBED");
  expect(statuses.received.length).toBeGreaterThan(1);
});
