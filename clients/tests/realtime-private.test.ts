// Private channels: who may join, hear, speak and be present is decided by the policies on
// realtime.messages, and follows the token.
import type { SupabaseClient } from "@supabase/supabase-js";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { signedUp } from "../harness/accounts.ts";
import { sql } from "../harness/database.ts";
import { Portico } from "../harness/portico.ts";
import { disconnect, Inbox, joined, subscribed } from "../harness/realtime.ts";

const POLICIES = `
  create table public.members (room text, person uuid, may_write boolean default true, primary key (room, person));
  alter table public.members enable row level security;
  create policy "own" on public.members for select to authenticated using (person = (select auth.uid()));

  create policy "members read" on realtime.messages for select to authenticated
    using (exists (select from public.members where room = realtime.topic() and person = (select auth.uid())) and topic = realtime.topic());
  create policy "members write" on realtime.messages for insert to authenticated
    with check (exists (select from public.members where room = realtime.topic() and person = (select auth.uid()) and may_write));
  create policy "quiet rooms" on realtime.messages for select to authenticated
    using (realtime.topic() like 'quiet:%' and extension = 'presence');
  create policy "quiet presence" on realtime.messages for insert to authenticated
    with check (realtime.topic() like 'quiet:%' and extension = 'presence');
  create policy "by header" on realtime.messages for select to anon
    using (realtime.topic() = 'header' and current_setting('request.headers')::json ->> 'x-room' = 'open');
  create policy "broken" on realtime.messages for select to authenticated
    using (case when realtime.topic() = 'broken' then (1 / (length(topic) - 6)) > 0 else false end);

  -- Waits while a test has the lock
  create function public.gate_is_passed() returns boolean language plpgsql volatile as
    $$ begin perform pg_advisory_xact_lock_shared(42); return true; end $$;
  create policy "behind a gate" on realtime.messages for select to authenticated
    using (case when realtime.topic() = 'gate' then public.gate_is_passed() else false end);
`;

let portico: Portico;
let alice: { client: SupabaseClient; id: string };
let bob: { client: SupabaseClient; id: string };

beforeAll(async () => {
  portico = await Portico.start({ files: { "supabase/migrations/20260101000000_rooms.sql": POLICIES } });
  alice = await signedUp(portico);
  bob = await signedUp(portico);
  await sql(portico.status.DB_URL, "insert into public.members values ('room', $1, true), ('room', $2, false), ('alice', $1, true)", [alice.id, bob.id]);
  for (const { client } of [alice, bob]) await client.realtime.setAuth();
});
afterAll(() => portico.dispose());
afterEach(async () => {
  for (const { client } of [alice, bob]) await client.removeAllChannels();
});

const secret = (client: SupabaseClient, topic: string, config: object = {}): ReturnType<SupabaseClient["channel"]> => client.channel(topic, { config: { private: true, ...config } });
const refusal = (topic: string): [string, string] => ["CHANNEL_ERROR", `"Unauthorized: You do not have permissions to read from this Channel topic: ${topic}"`];

describe("a join", () => {
  test("is granted to those who may read, and refused to the others", async () => {
    await joined(secret(alice.client, "alice"));
    const [status, message] = await subscribed(secret(bob.client, "alice"));
    expect([status, message]).toEqual(["CHANNEL_ERROR", expect.stringContaining(JSON.parse(refusal("alice")[1]) as string)]);
    const visitor = portico.client();
    expect((await subscribed(secret(visitor, "room")))[0]).toBe("CHANNEL_ERROR");
    await disconnect(visitor);
  });

  test("whose policy fails is refused", async () => {
    const [status, message] = await subscribed(secret(alice.client, "broken"));
    expect([status, message]).toEqual(["CHANNEL_ERROR", expect.stringContaining("Unauthorized: You do not have permissions to read from this Channel topic: broken")]);
    await joined(secret(alice.client, "alice"));
  });

  test("by the service's key needs no policy", async () => {
    const service = portico.client({}, portico.status.SECRET_KEY);
    await joined(secret(service, "anything"));
    await disconnect(service);
  });

  test("leaves no row behind", async () => {
    await joined(secret(alice.client, "alice"));
    // The sign-ups have left messages to the account pages
    expect(await sql(portico.status.DB_URL, "select count(*)::int as n from realtime.messages where topic not like 'portico:account:%'", [])).toEqual([{ n: 0 }]);
  });
});

describe("a broadcast", () => {
  test("reaches the members, and is dropped without a reply when its sender may not write", async () => {
    const received = new Inbox<{ event: string }>();
    await joined(secret(bob.client, "room").on("broadcast", { event: "*" }, received.add));
    const speaker = await joined(secret(alice.client, "room", { broadcast: { ack: true } }));
    expect(await speaker.send({ type: "broadcast", event: "heard", payload: {} })).toBe("ok");
    expect(await received.takes(1)).toMatchObject([{ event: "heard" }]);

    await bob.client.removeAllChannels();
    const own = new Inbox<{ event: string }>();
    await alice.client.removeAllChannels();
    await joined(secret(alice.client, "room").on("broadcast", { event: "*" }, own.add));
    const silent = await joined(secret(bob.client, "room", { broadcast: { ack: true } }));
    const answer = silent.send({ type: "broadcast", event: "dropped", payload: {} }, { timeout: 500 });
    expect(await answer).toBe("timed out");
    await expect(silent.httpSend("dropped", {})).rejects.toThrow("Unauthorized");
    expect(own.received).toEqual([]);
  });

  test("on the public channel of the same name is another room's", async () => {
    const [hidden, open] = [new Inbox(), new Inbox()];
    await joined(secret(alice.client, "room").on("broadcast", { event: "*" }, hidden.add));
    await joined(bob.client.channel("room").on("broadcast", { event: "*" }, open.add));
    const visitor = portico.client();
    await visitor.channel("room").httpSend("public", {});
    await open.takes(1);
    const service = portico.client({}, portico.status.SECRET_KEY);
    await secret(service, "room").httpSend("private", {});
    await hidden.takes(1);
    expect([hidden.received, open.received]).toEqual([[], []]);
  });
});

test("a room where only presence may be read has no broadcasts", async () => {
  const [received, states] = [new Inbox(), new Inbox<object>()];
  const channel = secret(alice.client, "quiet:1", { presence: { enabled: true, key: "a" } }).on("broadcast", { event: "*" }, received.add);
  channel.on("presence", { event: "sync" }, () => {
    states.add(channel.presenceState());
  });
  await joined(channel);
  expect(await states.takes(1)).toEqual([{}]);
  expect(await channel.track({ name: "Alice" })).toBe("ok");
  expect(await states.takes(1)).toMatchObject([{ a: [{ name: "Alice" }] }]);
  const service = portico.client({}, portico.status.SECRET_KEY);
  await secret(service, "quiet:1").httpSend("e", {});
  expect(await channel.track({ name: "still here" })).toBe("ok");
  await states.takes(1);
  expect(received.received).toEqual([]);
});

describe("a new token", () => {
  test("that may no longer read ends the channel", async () => {
    const { client, id } = await signedUp(portico);
    await sql(portico.status.DB_URL, "insert into public.members values ('left', $1)", [id]);
    await client.realtime.setAuth();
    const closed = new Promise<string>((done) => {
      const channel = secret(client, "left");
      channel.on("system", {}, ({ message }: { message: string }) => {
        done(message);
      });
      void joined(channel).then(async () => {
        await sql(portico.status.DB_URL, "delete from public.members where room = 'left'", []);
        const { data } = await client.auth.refreshSession();
        expect(data.session).not.toBeNull();
      });
    });
    expect(await closed).toBe("You do not have permissions to read from this Channel topic: left");
    await disconnect(client);
  });

  test("decides anew who may write", async () => {
    const { client, id } = await signedUp(portico);
    await sql(portico.status.DB_URL, "insert into public.members values ('grows', $1, false)", [id]);
    await client.realtime.setAuth();
    const received = new Inbox<{ event: string }>();
    const channel = await joined(secret(client, "grows", { broadcast: { self: true } }).on("broadcast", { event: "*" }, received.add));
    await channel.send({ type: "broadcast", event: "before", payload: {} });
    await sql(portico.status.DB_URL, "update public.members set may_write = true where room = 'grows'", []);
    await client.auth.refreshSession();
    await expect.poll(async () => {
      await channel.send({ type: "broadcast", event: "after", payload: {} });
      return received.received.map(({ event }) => event);
    }).toContain("after");
    expect(received.received.map(({ event }) => event)).not.toContain("before");
    await disconnect(client);
  });
});

test("a token of another person leaves the client with the presence as it is", async () => {
  const token = async ({ client }: { client: SupabaseClient }): Promise<string> => (await client.auth.getSession()).data.session!.access_token;
  const switching = portico.client();
  await switching.realtime.setAuth(await token(alice));
  const [received, states] = [new Inbox<{ event: string }>(), new Inbox<string[]>()];
  const channel = secret(switching, "gate", { presence: { enabled: true } }).on("broadcast", { event: "*" }, received.add);
  channel.on("presence", { event: "sync" }, () => {
    states.add(Object.keys(channel.presenceState()));
  });
  await joined(channel);
  expect(await states.takes(1)).toEqual([[]]);
  const passed = new Inbox();
  await joined(switching.channel("beside", { config: { presence: { enabled: true } } }).on("presence", { event: "join" }, passed.add));
  const present = async (key: string): Promise<ReturnType<SupabaseClient["channel"]>> => {
    const member = await joined(secret(portico.client({}, portico.status.SECRET_KEY), "gate", { presence: { key }, broadcast: { ack: true } }));
    expect(await member.track({})).toBe("ok");
    return member;
  };
  const first = await present("first");
  expect(await states.takes(1)).toEqual([["first"]]);

  const gate = new Client({ connectionString: portico.status.DB_URL });
  await gate.connect();
  await gate.query("select pg_advisory_lock(42)");
  await switching.realtime.setAuth(await token(bob));
  // The server has begun to read the permissions, in the order of its messages
  await expect.poll(() => sql(portico.status.DB_URL, "select 1 as n from pg_locks where locktype = 'advisory' and objid = 42 and not granted")).toHaveLength(1);
  const second = await present("second");
  expect(await first.untrack()).toBe("ok");
  expect(await first.send({ type: "broadcast", event: "between", payload: {} })).toBe("ok");
  // Presence takes the queue of the socket's thread: what was sent before is delivered then
  expect(await (await joined(first.socket.channel("beside"))).track({})).toBe("ok");
  await passed.takes(1);
  expect([received.received, states.received]).toEqual([[], []]);
  await gate.end();

  expect(await states.takes(1)).toEqual([["second"]]);
  expect(await first.send({ type: "broadcast", event: "after", payload: {} })).toBe("ok");
  expect(await received.takes(1)).toMatchObject([{ event: "after" }]);
  expect(await second.untrack()).toBe("ok");
  expect(await states.takes(1)).toEqual([[]]);
  for (const { socket } of [channel, first, second]) await socket.removeAllChannels();
});

describe("the topic of an account", () => {
  beforeAll(async () => {
    await sql(portico.status.DB_URL, `create policy "everything" on realtime.messages to public using (true) with check (true)`, []);
  });
  afterAll(async () => {
    await sql(portico.status.DB_URL, `drop policy "everything" on realtime.messages`, []);
  });

  test("is read by its account alone, whatever the policies of the project allow", async () => {
    const topic = `portico:account:${alice.id}`;
    const own = new Inbox<{ event: string }>();
    await joined(secret(alice.client, topic).on("broadcast", { event: "*" }, own.add));
    await joined(secret(bob.client, "anything"));
    const visitor = portico.client();
    for (const config of [{}, { presence: { enabled: true } }, { broadcast: { replay: { since: 0, limit: 10 } } }]) {
      for (const client of [bob.client, visitor]) {
        const [status, message] = await subscribed(secret(client, topic, config));
        expect([status, message]).toEqual(["CHANNEL_ERROR", expect.stringContaining(`You do not have permissions to read from this Channel topic: ${topic}`)]);
        await client.removeAllChannels();
      }
    }
    await disconnect(visitor);
    await sql(portico.status.DB_URL, "insert into auth.sessions (id, user_id, created_at) values (gen_random_uuid(), $1, now())", [alice.id]);
    expect(await own.takes(1)).toMatchObject([{ event: "sessions_changed", payload: {} }]);
  });

  test("is written by no client", async () => {
    const topic = `portico:account:${alice.id}`;
    const received = new Inbox();
    const channel = await joined(secret(alice.client, topic, { broadcast: { self: true, ack: true } }).on("broadcast", { event: "*" }, received.add));
    for (const sender of [channel, secret(bob.client, topic)]) await expect(sender.httpSend("sessions_changed", {})).rejects.toThrow("Unauthorized");
    expect(await channel.send({ type: "broadcast", event: "sessions_changed", payload: {} }, { timeout: 500 })).toBe("timed out");
    expect(await channel.track({})).not.toBe("ok");
    await secret(alice.client, "anything").httpSend("e", {});
    expect(received.received).toEqual([]);
  });
});
