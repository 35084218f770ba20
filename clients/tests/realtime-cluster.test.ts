// Two servers of one project: what they share, and what remains when one of them or their
// connection is lost.
import type { RealtimeChannel, SupabaseClient } from "@supabase/supabase-js";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { Portico } from "../harness/portico.ts";
import { disconnect, expectGapsOnlyIn, Inbox, joined, SteadyWriter } from "../harness/realtime.ts";
import { Balancer, Certificate, NatsServer, PostgresServer } from "../harness/servers.ts";

interface Message {
  payload: { n: number };
}

describe.each(["nats", "notify"] as const)("through %s", (way) => {
  let postgres: PostgresServer;
  let nats: NatsServer | undefined;
  let one: Portico;
  let two: Portico;
  const open: SupabaseClient[] = [];

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    if (way === "nats") nats = await NatsServer.start();
    const cluster = nats === undefined ? "notify = true" : `nats = "${nats.url}"`;
    const project = { env: { DATABASE_URL: postgres.url }, files: { "supabase/portico.toml": `[realtime.cluster]\n${cluster}\n` } };
    one = await Portico.serve(project);
    two = await Portico.serve({ ...project, secretsOf: one });
  });
  afterAll(async () => {
    await one.dispose();
    await two.dispose();
    await nats?.kill();
    await postgres.dispose();
  });
  afterEach(async () => {
    for (const client of open.splice(0)) await disconnect(client);
  });

  function channel(server: Portico, name: string, key: string): RealtimeChannel {
    const client = server.client({ realtime: { vsn: "2.0.0" } });
    open.push(client);
    return client.channel(name, { config: { presence: { key }, broadcast: { replication_ready: true } } });
  }

  /** Joins, and waits until messages of the database arrive. */
  async function ready(channel: RealtimeChannel): Promise<RealtimeChannel> {
    const system = new Inbox<{ message: string }>();
    await joined(channel.on("system", {}, system.add));
    expect(await system.takes(1)).toMatchObject([{ message: "Replication connection established" }]);
    return channel;
  }

  /** Waits for a state of the presence. */
  const settles = (watched: RealtimeChannel, expected: Record<string, unknown>): Promise<void> =>
    expect.poll(() => Object.fromEntries(Object.entries(watched.presenceState()).map(([key, metas]) => [key, metas.map((meta) => (meta as unknown as { n: number }).n)]))).toEqual(expected);

  test("broadcasts and presence cross, and each message arrives once", async () => {
    const [atOne, atTwo] = [new Inbox<Message>(), new Inbox<Message>()];
    const first = await ready(channel(one, "shared", "first").on("presence", { event: "sync" }, () => undefined).on("broadcast", { event: "*" }, atOne.add));
    const second = await ready(channel(two, "shared", "second").on("presence", { event: "sync" }, () => undefined).on("broadcast", { event: "*" }, atTwo.add));
    await first.track({ n: 1 });
    await second.track({ n: 2 });
    for (const watched of [first, second]) await settles(watched, { first: [1], second: [2] });

    const numbers = Array.from({ length: 200 }, (_, n) => n);
    for (const n of numbers) void first.send({ type: "broadcast", event: "e", payload: { n } });
    expect((await atTwo.takes(200)).map(({ payload }) => payload.n)).toEqual(numbers);
    for (const n of numbers) void second.send({ type: "broadcast", event: "e", payload: { n } });
    expect((await atOne.takes(200)).map(({ payload }) => payload.n)).toEqual(numbers);

    // Over HTTP, and from the database, which each server reads
    await first.httpSend("e", { n: 1000 });
    expect((await atTwo.takes(1)).map(({ payload }) => payload.n)).toEqual([1000]);
    for (const n of [2000, 2001]) await sql(postgres.url, "select realtime.send(jsonb_build_object('n', $1::int), 'e', 'shared', false)", [n]);
    expect((await atTwo.takes(2)).map(({ payload }) => payload.n)).toEqual([2000, 2001]);
    expect((await atOne.takes(3)).map(({ payload }) => payload.n).sort()).toEqual([1000, 2000, 2001]);

    await second.untrack();
    await settles(first, { first: [1] });
  });

  const overNats = (name: string, run: () => Promise<void>): void => {
    if (way === "nats") test(name, run);
  };

  overNats("servers find each other again after NATS has ended and started again", async () => {
    const received = new Inbox<Message>();
    const first = await ready(channel(one, "lost", "first").on("presence", { event: "sync" }, () => undefined));
    const second = await ready(channel(two, "lost", "second").on("presence", { event: "sync" }, () => undefined).on("broadcast", { event: "*" }, received.add));
    await first.track({ n: 1 });
    await settles(second, { first: [1] });
    await nats!.kill();
    await settles(second, {});
    // Each server goes on alone
    await first.untrack();
    await first.track({ n: 2 });
    await settles(first, { first: [2] });
    nats = await NatsServer.start(nats!.port);
    await settles(second, { first: [2] });
    await second.track({ n: 3 });
    await settles(first, { first: [2], second: [3] });
    await first.send({ type: "broadcast", event: "e", payload: { n: 4 } });
    expect((await received.takes(1)).map(({ payload }) => payload.n)).toEqual([4]);
  });

  test("a server that is killed takes its presence with it, and its client goes on at the other with one gap", async () => {
    const balancer = await Balancer.start([one.url, two.url]);
    const [gone, received, statuses] = [new Inbox<{ key: string }>(), new Inbox<number>(), new Inbox<string>()];
    const client = one.client({ realtime: { vsn: "2.0.0", reconnectAfterMs: () => 100 } }, one.status.PUBLISHABLE_KEY, balancer.url);
    open.push(client);
    let joins = 0;
    const first = client.channel("killed", { config: { presence: { key: "first" } } });
    first
      .on("presence", { event: "sync" }, () => undefined)
      .on("broadcast", { event: "e" }, ({ payload }: Message) => {
        received.add(payload.n);
      })
      .subscribe((status: string) => {
        statuses.add(status);
        // As an app does, with each join
        if (status === "SUBSCRIBED") void first.track({ n: ++joins });
      });
    await statuses.takes(1);
    const second = await ready(channel(two, "killed", "second").on("presence", { event: "leave" }, gone.add));
    await second.track({ n: 0 });
    await settles(second, { first: [1], second: [0] });
    const writer = new SteadyWriter(1, (n) => second.send({ type: "broadcast", event: "e", payload: { n } }));
    try {
      const passed = (n: number): Promise<void> => expect.poll(() => received.received.at(-1) ?? 0).toBeGreaterThan(n);
      await passed(5);
      const lastBefore = received.received.at(-1)!;
      await one.stop("SIGKILL");
      expect((await gone.takes(1)).map(({ key }) => key)).toEqual(["first"]);
      await expect.poll(() => statuses.received.at(-1)).toBe("SUBSCRIBED");
      const firstAfter = writer.next;
      await passed(firstAfter + 5);
      // For one that joins now: a client that sees a second entry of a key forgets the reference of
      // the first, and keeps it
      await settles(await joined(channel(two, "killed", "late").on("presence", { event: "sync" }, () => undefined)), { first: [2], second: [0] });
      const last = await writer.stop();
      await expect.poll(() => received.received.at(-1)).toBe(last);
      expectGapsOnlyIn([{ lastBefore, firstAfter }], received.received, writer.written);
    } finally {
      await writer.stop();
      await balancer.dispose();
    }
  });
});

test("broadcasts cross through a NATS server that requires TLS", async () => {
  const [postgres, certificate] = [await PostgresServer.start(), await Certificate.make()];
  const nats = await NatsServer.start(-1, certificate);
  const files = { "supabase/portico.toml": `[realtime.cluster]\nnats = "${nats.url}"\n` };
  const project = { env: { DATABASE_URL: postgres.url, SSL_CERT_FILE: certificate.file }, files };
  const one = await Portico.serve(project);
  const two = await Portico.serve({ ...project, secretsOf: one });
  const [speaker, listener] = [one.client(), two.client()];
  try {
    const received = new Inbox<Message>();
    const sending = await joined(speaker.channel("encrypted", { config: { broadcast: { ack: true } } }));
    await joined(listener.channel("encrypted").on("broadcast", { event: "*" }, received.add));
    await expect.poll(async () => {
      // Until the servers have connected
      await sending.send({ type: "broadcast", event: "e", payload: { n: 1 } });
      return received.received.length;
    }).toBeGreaterThan(0);
  } finally {
    for (const client of [speaker, listener]) await disconnect(client);
    await one.dispose();
    await two.dispose();
    await nats.kill();
    await postgres.dispose();
    await certificate.dispose();
  }
});
