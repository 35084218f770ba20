import { vi } from "vitest";

/** A message of the protocol's version 2.0.0. */
type Frame = [joinRef: string | null, ref: string | null, topic: string, event: string, payload: Record<string, unknown>];

/** Replaces the browser's `WebSocket` by a realtime server in memory. */
export class FakeRealtime {
  /** The frames that clients have sent, but heartbeats. */
  readonly received: Frame[] = [];
  /** The addresses of all sockets that were opened. */
  readonly addresses: URL[] = [];
  /** The reason for which joins are refused. */
  refusal: string | null = null;
  /** Joins are followed by the message that the database is received from. */
  receivesFromDatabase = true;
  private readonly open = new Map<FakeSocket, string | null>();

  constructor() {
    const connect = (address: string) => {
      this.addresses.push(new URL(address));
      const socket = new FakeSocket((frame) => this.reply(socket, frame), () => this.open.delete(socket));
      this.open.set(socket, null);
      return socket;
    };
    // A constructor that returns an object of its own: an arrow function is none.
    vi.stubGlobal("WebSocket", function (address: string) {
      return connect(address);
    });
  }

  /** The payloads of the joins, in order. */
  get joins(): Record<string, unknown>[] {
    return this.received.filter(([, , , event]) => event === "phx_join").map((frame) => frame[4]);
  }

  /** The number of open sockets. */
  get openSockets(): number {
    return this.open.size;
  }

  /** Broadcasts a message to every channel of a topic. */
  broadcast(topic: string, event: string): void {
    this.send(topic, "broadcast", { type: "broadcast", event, payload: {} });
  }

  /** Sends a system message to every channel of a topic. */
  system(topic: string, message: string): void {
    this.send(topic, "system", { extension: "system", status: "ok", message });
  }

  /** Ends every channel of a topic. */
  end(topic: string): void {
    this.send(topic, "phx_close", {});
  }

  /** Closes every socket as a server does that stops. */
  restart(): void {
    for (const socket of this.open.keys()) socket.end(1012);
  }

  private send(topic: string, event: string, payload: Record<string, unknown>): void {
    for (const [socket, joined] of this.open) {
      if (joined === `realtime:${topic}`) socket.deliver([null, null, joined, event, payload]);
    }
  }

  private reply(socket: FakeSocket, frame: Frame): void {
    const [joinRef, ref, topic, event] = frame;
    const answer = (status: string, response: object) =>
      socket.deliver([joinRef, ref, topic, "phx_reply", { status, response }]);
    if (event === "heartbeat") {
      answer("ok", {});
      return;
    }
    this.received.push(frame);
    if (event === "phx_join" && this.refusal !== null) answer("error", { reason: this.refusal });
    else if (event === "phx_join") {
      this.open.set(socket, topic);
      answer("ok", { postgres_changes: [] });
      if (this.receivesFromDatabase) this.system(topic.replace(/^realtime:/, ""), "Replication connection established");
    } else if (event === "phx_leave") {
      this.open.set(socket, null);
      answer("ok", {});
    }
  }
}

class FakeSocket {
  readyState = 0;
  onopen: (() => void) | null = null;
  onmessage: ((message: { data: string }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  onerror: (() => void) | null = null;

  constructor(
    private readonly onFrame: (frame: Frame) => void,
    private readonly onEnd: () => void,
  ) {
    queueMicrotask(() => {
      if (this.readyState !== 0) return;
      this.readyState = 1;
      this.onopen?.();
    });
  }

  send(text: string): void {
    // The official client writes these frames.
    const frame = JSON.parse(text) as Frame;
    queueMicrotask(() => this.onFrame(frame));
  }

  deliver(frame: Frame): void {
    if (this.readyState === 1) this.onmessage?.({ data: JSON.stringify(frame) });
  }

  close(code = 1000): void {
    this.end(code);
  }

  end(code: number): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onEnd();
    queueMicrotask(() => this.onclose?.({ code }));
  }
}
