// Channels of tests: with the official client, and frame by frame.
import { setTimeout as pause } from "node:timers/promises";

import type { RealtimeChannel, SupabaseClient } from "@supabase/supabase-js";
import { expect } from "vitest";
import { WebSocket } from "ws";

import type { Portico } from "./portico.ts";

/** The status of a subscription and, if there is one, the text of its error. */
export type Subscribed = [status: string, message: string | undefined];

/** Subscribes, and returns the first status. */
export const subscribed = (channel: RealtimeChannel): Promise<Subscribed> =>
  new Promise((done) => {
    channel.subscribe((status, error) => {
      done([status, error?.message]);
    });
  });

/** Subscribes, and expects that it is granted. */
export async function joined(channel: RealtimeChannel): Promise<RealtimeChannel> {
  expect(await subscribed(channel)).toEqual(["SUBSCRIBED", undefined]);
  return channel;
}

/** Collects what arrives, for assertions about all of it. */
export class Inbox<T = unknown> {
  readonly received: T[] = [];
  private arrived = (): void => undefined;

  readonly add = (item: T): void => {
    this.received.push(item);
    this.arrived();
  };

  /** Waits until `count` have arrived, and takes all. */
  async takes(count: number, milliseconds = 10_000): Promise<T[]> {
    const end = Date.now() + milliseconds;
    while (this.received.length < count) {
      const left = end - Date.now();
      if (left <= 0) expect.fail(`${this.received.length} of ${count} messages arrived: ${JSON.stringify(this.received)}`);
      await new Promise<void>((done) => {
        const timer = setTimeout(done, left);
        this.arrived = () => {
          clearTimeout(timer);
          done();
        };
      });
    }
    return this.received.splice(0);
  }
}

/** Writes numbers in order and one at a time, also while servers end and start again. */
export class SteadyWriter {
  /** The numbers whose writing has succeeded. */
  readonly written: number[] = [];
  /** The number that is written next. */
  next: number;
  private stopping = false;
  private readonly running: Promise<void>;

  constructor(
    first: number,
    private readonly write: (n: number) => Promise<unknown>,
  ) {
    this.next = first;
    this.running = this.run();
  }

  private async run(): Promise<void> {
    while (!this.stopping) {
      const n = this.next++;
      try {
        await this.write(n);
        this.written.push(n);
      } catch {
        // The server does not run. The number is not written again: it may have been committed
      }
      // The rate: a server that does not run refuses at once
      await pause(20);
    }
  }

  /** Stops, and returns the last number that was written. */
  async stop(): Promise<number> {
    this.stopping = true;
    await this.running;
    return this.written.at(-1) ?? Number.NaN;
  }
}

/**
 * The time in which numbers may be lost: behind the last one that had arrived when it began, and
 * before the first one that was written after its end.
 */
export interface Outage {
  lastBefore: number;
  firstAfter: number;
}

/**
 * Expects that numbers have arrived in order and once, and that each outage has cost one piece of
 * them at most.
 */
export function expectGapsOnlyIn(outages: Outage[], received: number[], written: number[]): void {
  expect(received).toEqual([...new Set(received)].sort((left, right) => left - right));
  const missing = written.filter((n) => !received.includes(n));
  const lost = outages.map(({ lastBefore, firstAfter }) => missing.filter((n) => lastBefore < n && n < firstAfter));
  expect(missing).toEqual(lost.flat());
  for (const piece of lost) {
    const from = written.indexOf(piece[0] ?? Number.NaN);
    expect(piece).toEqual(written.slice(from, from + piece.length));
  }
}

/** A message of the server as an array, whatever the version of the protocol. */
export type WireMessage = [joinRef: string | null, ref: string | null, topic: string, event: string, payload: Record<string, unknown>];

/** A WebSocket without the official client. */
export class WireSocket {
  readonly messages = new Inbox<WireMessage>();
  readonly binary = new Inbox<Buffer>();
  readonly closed: Promise<number>;

  private constructor(
    readonly socket: WebSocket,
    private readonly version: string,
  ) {
    this.closed = new Promise((done) => {
      socket.on("close", done);
    });
    socket.on("message", (data, isBinary) => {
      const bytes = data as Buffer;
      if (isBinary) {
        this.binary.add(bytes);
        return;
      }
      const message = JSON.parse(bytes.toString()) as WireMessage | { ref: string | null; topic: string; event: string; payload: Record<string, unknown> };
      this.messages.add(Array.isArray(message) ? message : [null, message.ref, message.topic, message.event, message.payload]);
    });
  }

  /** Opens a socket. */
  static async open(portico: Portico, version: "1.0.0" | "2.0.0" = "2.0.0", key: string = portico.status.PUBLISHABLE_KEY): Promise<WireSocket> {
    const socket = new WebSocket(`${portico.status.API_URL.replace("http", "ws")}/realtime/v1/websocket?apikey=${key}&vsn=${version}`);
    const wire = new WireSocket(socket, version);
    await new Promise((done, fail) => {
      socket.on("open", done);
      socket.on("error", fail);
    });
    return wire;
  }

  send(joinRef: string | null, ref: string | null, topic: string, event: string, payload: unknown): void {
    const message = this.version === "2.0.0" ? [joinRef, ref, topic, event, payload] : { join_ref: joinRef, ref, topic, event, payload };
    this.socket.send(JSON.stringify(message));
  }

  /** Sends a message and returns the next one of the server. */
  async ask(joinRef: string | null, ref: string | null, topic: string, event: string, payload: unknown): Promise<WireMessage> {
    this.send(joinRef, ref, topic, event, payload);
    return (await this.messages.takes(1))[0]!;
  }

  close(): void {
    this.socket.close();
  }
}

/** The status and the body with which a handshake is refused. */
export function refused(url: string, headers: Record<string, string> = {}): Promise<[number, string]> {
  return new Promise((done, fail) => {
    const socket = new WebSocket(url, { headers });
    socket.on("unexpected-response", (_, response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text: string) => (body += text));
      response.on("end", () => {
        done([response.statusCode ?? 0, body]);
      });
    });
    socket.on("open", () => {
      fail(new Error("the handshake was accepted"));
    });
    socket.on("error", () => undefined);
  });
}

/** Removes all channels and closes the socket. */
export const disconnect = async (client: SupabaseClient): Promise<void> => {
  await client.removeAllChannels();
  await client.realtime.disconnect();
};
