// The page of an application with channels: one client, its channels by topic, and a list of what
// they have received, which tests wait for.
import { createClient, type RealtimeChannel, type SupabaseClient } from "@supabase/supabase-js";

/** A message or event that a channel has received, in a form that a test can read. */
export type Received =
  | { topic: string; kind: "status"; status: string; error?: string }
  | { topic: string; kind: "broadcast"; event: string; payload: unknown }
  | { topic: string; kind: "bytes"; event: string; bytes: number[] }
  | { topic: string; kind: "presence"; state: Record<string, unknown[]> }
  | { topic: string; kind: "change"; type: string; new: unknown; old: unknown }
  | { topic: string; kind: "system"; message: string };

export interface Connection {
  url: string;
  key: string;
  version: "1.0.0" | "2.0.0";
  /** The access token of a person. */
  token?: string;
}

export interface Wishes {
  config?: Parameters<SupabaseClient["channel"]>[1] extends infer Options ? (Options extends { config: infer Config } ? Config : never) : never;
  /** The entry for changes of the database. */
  changes?: { table: string; filter?: string };
}

let client: SupabaseClient;
const channels = new Map<string, RealtimeChannel>();

const page = {
  received: [] as Received[],

  connect({ url, key, version, token }: Connection): void {
    // eslint-disable-next-line @typescript-eslint/no-unsafe-assignment -- without generated types the client's tables are `any`
    client = createClient(url, key, {
      realtime: { vsn: version },
      ...(token === undefined ? {} : { accessToken: () => Promise.resolve(token) }),
    });
  },

  /** Subscribes, and collects the statuses too. */
  async join(topic: string, { config = {}, changes }: Wishes = {}): Promise<void> {
    const channel = client.channel(topic, { config });
    channels.set(topic, channel);
    channel
      .on("broadcast", { event: "*" }, ({ event, payload }: { event: string; payload?: unknown }) => {
        if (payload instanceof ArrayBuffer) page.received.push({ topic, kind: "bytes", event, bytes: [...new Uint8Array(payload)] });
        else page.received.push({ topic, kind: "broadcast", event, payload });
      })
      .on("system", {}, ({ message }: { message: string }) => page.received.push({ topic, kind: "system", message }));
    if (config.presence !== undefined) {
      channel.on("presence", { event: "sync" }, () => page.received.push({ topic, kind: "presence", state: { ...channel.presenceState() } }));
    }
    if (changes !== undefined) {
      channel.on("postgres_changes", { event: "*", schema: "public", ...changes }, (change) => {
        page.received.push({ topic, kind: "change", type: change.eventType, new: change.new, old: change.old });
      });
    }
    await new Promise<void>((done) => {
      channel.subscribe((status, error) => {
        page.received.push({ topic, kind: "status", status, ...(error === undefined ? {} : { error: error.message }) });
        done();
      });
    });
  },

  send: (topic: string, event: string, payload: object): Promise<string> => channels.get(topic)!.send({ type: "broadcast", event, payload }),
  sendBytes: (topic: string, event: string, bytes: number[]): Promise<string> =>
    channels.get(topic)!.send({ type: "broadcast", event, payload: new Uint8Array(bytes).buffer }),
  track: (topic: string, payload: object): Promise<string> => channels.get(topic)!.track(payload),
  untrack: (topic: string): Promise<string> => channels.get(topic)!.untrack(),
};

export type RealtimePage = typeof page;

Object.assign(window, { realtime: page });
