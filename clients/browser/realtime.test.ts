// The official client in a browser, on the page of another origin: channels in both versions of the
// protocol.
import type { SupabaseClient } from "@supabase/supabase-js";
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { signedUp } from "../harness/accounts.ts";
import { sql } from "../harness/database.ts";
import { Portico, write } from "../harness/portico.ts";
import { startApplication } from "./application-page.ts";
import type { Connection, RealtimePage, Received, Wishes } from "./realtime-page.ts";

const SCHEMA = `
  create table public.notes (id bigint primary key, list int, owner uuid, title text);
  alter table public.notes enable row level security;
  create policy "own" on public.notes for select to authenticated using (owner = (select auth.uid()));
  grant select on public.notes to authenticated;
  alter publication supabase_realtime add table public.notes;
  create policy "own room" on realtime.messages for select to authenticated
    using (topic = 'person:' || (select auth.uid()));
  create policy "write to the own room" on realtime.messages for insert to authenticated
    with check (topic = 'person:' || (select auth.uid()));
`;
const HTML = '<!doctype html><html lang="en"><title>Channels</title><h1>Channels</h1><script type="module" src="/page.js"></script>';
const PROJECT = { config: "[api]\nauto_expose_new_tables = false\n", files: { "supabase/migrations/20260101000000_notes.sql": SCHEMA } };

declare const window: { realtime: RealtimePage };

const site = startApplication(PROJECT, "realtime-page.ts", HTML);

const tokenOf = async ({ client }: { client: SupabaseClient }): Promise<string> => (await client.auth.getSession()).data.session!.access_token;

/** Opens the page of the application with a client. */
async function open(version: Connection["version"], token?: string, server: Portico = site.portico): Promise<Page> {
  const page = await site.context.newPage();
  await page.goto(site.application.origin);
  await page.waitForFunction(() => "realtime" in window);
  const connection: Connection = { url: server.url, key: server.status.PUBLISHABLE_KEY, version, ...(token === undefined ? {} : { token }) };
  await page.evaluate((connection) => {
    window.realtime.connect(connection);
  }, connection);
  return page;
}

const join = (page: Page, topic: string, wishes: Wishes = {}): Promise<void> => page.evaluate(([topic, wishes]) => window.realtime.join(topic, wishes), [topic, wishes] as const);

/** Waits until the page has received `count` of a kind, and returns all of that kind. */
async function received<Kind extends Received["kind"]>(page: Page, kind: Kind, count: number): Promise<Extract<Received, { kind: Kind }>[]> {
  await page.waitForFunction(([kind, count]) => window.realtime.received.filter((one) => one.kind === kind).length >= count, [kind, count] as const);
  const all = await page.evaluate(() => window.realtime.received);
  return all.filter((one): one is Extract<Received, { kind: Kind }> => one.kind === kind);
}

const statuses = async (page: Page, count: number): Promise<string[]> => (await received(page, "status", count)).map(({ status }) => status);

describe.each(["1.0.0", "2.0.0"] as const)("version %s", (version) => {
  test("broadcasts reach the other pages, the sender if it asks for that, and are acknowledged", async () => {
    const [one, other] = [await open(version), await open(version)];
    await join(one, "room", { config: { broadcast: { self: true, ack: true } } });
    await join(other, "room");
    expect(await one.evaluate(() => window.realtime.send("room", "cursor", { x: 1, text: "é “quoted”" }))).toBe("ok");
    const expected = { topic: "room", kind: "broadcast", event: "cursor", payload: { x: 1, text: "é “quoted”" } };
    expect(await received(one, "broadcast", 1)).toEqual([expected]);
    expect(await received(other, "broadcast", 1)).toEqual([expected]);
    await other.evaluate(() => window.realtime.send("room", "reply", {}));
    expect((await received(one, "broadcast", 2)).map(({ event }) => event)).toEqual(["cursor", "reply"]);
    // Without `self`, the sender has only the message before
    expect((await received(other, "broadcast", 1)).map(({ event }) => event)).toEqual(["cursor"]);
  });

  test("presence shows who tracks, and forgets a page that is closed", async () => {
    const [one, other] = [await open(version), await open(version)];
    await join(one, "present", { config: { presence: { key: "one" } } });
    await join(other, "present", { config: { presence: { key: "other" } } });
    await one.evaluate(() => window.realtime.track("present", { name: "Ada" }));
    await other.evaluate(() => window.realtime.track("present", { name: "Bob" }));
    const holds = (page: Page, keys: string[]): Promise<unknown> =>
      page.waitForFunction((keys) => {
        const states = window.realtime.received.filter((one) => one.kind === "presence");
        return JSON.stringify(Object.keys(states.at(-1)?.state ?? {}).sort()) === JSON.stringify(keys);
      }, keys);
    await holds(one, ["one", "other"]);
    await holds(other, ["one", "other"]);
    expect((await received(one, "presence", 1)).at(-1)!.state).toMatchObject({ one: [{ name: "Ada" }], other: [{ name: "Bob" }] });
    await other.close();
    await holds(one, ["one"]);
    await one.evaluate(() => window.realtime.untrack("present"));
    await holds(one, []);
  });

  test("changes of the database arrive by filter, and only those that the person may see", async () => {
    const page = await open(version, await tokenOf(site.alice));
    await join(page, "notes", { changes: { table: "notes", filter: "list=eq.7" } });
    expect(await received(page, "system", 1)).toMatchObject([{ message: "Subscribed to PostgreSQL" }]);
    const first = version === "1.0.0" ? 100 : 200;
    await sql(
      site.portico.status.DB_URL,
      `insert into public.notes values ($1, 8, $2, 'another list'), ($1 + 1, 7, gen_random_uuid(), 'of another person'), ($1 + 2, 7, $2, 'mine'), ($1 + 3, 7, $2, 'last')`,
      [first, site.alice.id],
    );
    await sql(site.portico.status.DB_URL, "update public.notes set title = 'changed' where id = $1", [first + 2]);
    const changes = await received(page, "change", 3);
    expect(changes.map(({ type, new: row }) => [type, (row as { title: string }).title])).toEqual([
      ["INSERT", "mine"],
      ["INSERT", "last"],
      ["UPDATE", "changed"],
    ]);
    expect(changes[0]!.new).toEqual({ id: first + 2, list: 7, owner: site.alice.id, title: "mine" });
  });

  test("a private channel is open to the token of its person alone", async () => {
    const topic = `person:${site.alice.id}`;
    const [own, stranger, bob] = [await open(version, await tokenOf(site.alice)), await open(version), await open(version, await tokenOf(await signedUp(site.portico)))];
    const config = { private: true, broadcast: { self: true, ack: true } };
    await join(own, topic, { config });
    expect(await statuses(own, 1)).toEqual(["SUBSCRIBED"]);
    for (const page of [stranger, bob]) {
      await join(page, topic, { config });
      expect((await received(page, "status", 1))[0]).toMatchObject({ status: "CHANNEL_ERROR", error: expect.stringContaining("Unauthorized") as string });
    }
    expect(await own.evaluate((topic) => window.realtime.send(topic, "note", { n: 1 }), topic)).toBe("ok");
    await sql(site.portico.status.DB_URL, `select realtime.send('{"n": 2}', 'note', $1, true)`, [topic]);
    expect((await received(own, "broadcast", 2)).map(({ payload }) => payload)).toMatchObject([{ n: 1 }, { n: 2 }]);
    expect(await received(bob, "broadcast", 0)).toEqual([]);
  });
});

test("bytes arrive as bytes", async () => {
  const [one, other] = [await open("2.0.0"), await open("2.0.0")];
  await join(one, "bytes", { config: { broadcast: { ack: true } } });
  await join(other, "bytes");
  const bytes = Array.from({ length: 256 }, (_, at) => at);
  expect(await one.evaluate((bytes) => window.realtime.sendBytes("bytes", "picture", bytes), bytes)).toBe("ok");
  expect(await received(other, "bytes", 1)).toEqual([{ topic: "bytes", kind: "bytes", event: "picture", bytes }]);
});

test("clients of both versions share a room", async () => {
  const [old, current] = [await open("1.0.0"), await open("2.0.0")];
  for (const page of [old, current]) await join(page, "shared");
  await old.evaluate(() => window.realtime.send("shared", "from-old", { n: 1 }));
  await current.evaluate(() => window.realtime.send("shared", "from-current", { n: 2 }));
  expect(await received(current, "broadcast", 1)).toMatchObject([{ event: "from-old", payload: { n: 1 } }]);
  expect(await received(old, "broadcast", 1)).toMatchObject([{ event: "from-current", payload: { n: 2 } }]);
});

test("a page joins its channels again after the server has restarted", async () => {
  let own = await Portico.start(PROJECT);
  try {
    const page = await open("2.0.0", undefined, own);
    await join(page, "room", { config: { presence: { key: "page" } } });
    await page.evaluate(() => window.realtime.track("room", { name: "Ada" }));
    expect(await statuses(page, 1)).toEqual(["SUBSCRIBED"]);
    // At the same address
    await write(own.folder, "supabase/config.toml", `[api]\nport = ${new URL(own.url).port}\n[db]\nport = 0\n[inbucket]\nport = 0\n`);
    await own.stop();
    own = await Portico.start({ folder: own.folder });
    await page.waitForFunction(() => window.realtime.received.filter((one) => one.kind === "status" && one.status === "SUBSCRIBED").length >= 2);
    const sent = await open("2.0.0", undefined, own);
    await join(sent, "room", { config: { broadcast: { ack: true } } });
    expect(await sent.evaluate(() => window.realtime.send("room", "after", {}))).toBe("ok");
    expect((await received(page, "broadcast", 1)).map(({ event }) => event)).toEqual(["after"]);
  } finally {
    await own.dispose();
  }
});
