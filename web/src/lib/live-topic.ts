import type { RealtimeClient, RealtimeSystemPayload } from "@supabase/realtime-js";
import { accessToken, type SessionSource } from "./backend";
import type { Config } from "./config";

/** The code and the connection of a topic come after the page that it keeps up to date. */
export const FIRST_JOIN_AFTER_MS = 2000;

/** Returns the pause after some failures in a row, a random one up to five minutes. */
export function pauseAfter(failures: number): number {
  return Math.random() * Math.min(1000 * 2 ** failures, 5 * 60_000);
}

/** A subscription to a private topic of the server. */
export interface LiveTopic {
  /** Sends the session's current access token to the server. */
  renewToken(): void;
  close(): void;
}

export interface LiveTopicHandlers {
  /**
   * Messages may have been missed until now, and arrive from now on: called after each join, as
   * soon as the server receives from its database, and again whenever it had lost the database.
   */
  onReady: () => void;
  onMessage: () => void;
}

/**
 * Subscribes to the broadcasts of a private topic until it is closed, with the official client,
 * whose code is loaded here, once the page had its time to appear. A topic that cannot be joined,
 * or whose connection ends, is joined again after a random pause, which grows with each failure:
 * clients of a server that restarts come back one after the other. A server that does not receive
 * from its database ends the channel after a minute, which is a failure too. The pause ends when
 * the browser is online again and when its page is shown.
 */
export function openLiveTopic(config: Config, auth: SessionSource, topic: string, handlers: LiveTopicHandlers): LiveTopic {
  let socket: RealtimeClient | null = null;
  let failures = 0;
  let pause: number | null = null;
  let isClosed = false;

  async function join(): Promise<void> {
    pause = null;
    const { RealtimeClient, REALTIME_SUBSCRIBE_STATES } = await import("@supabase/realtime-js");
    if (isClosed) return;
    const own = new RealtimeClient(`${config.url.replace(/^http/, "ws")}/realtime/v1`, {
      params: { apikey: config.anonKey },
      accessToken: () => accessToken(auth),
    });
    socket = own;
    await own.setAuth();
    // A new token may have closed the topic.
    if (socket !== own) return;
    own
      .channel(topic, { config: { private: true, broadcast: { replication_ready: true } } })
      .on("broadcast", { event: "*" }, () => {
        if (socket === own) handlers.onMessage();
      })
      .on("system", {}, ({ message }: RealtimeSystemPayload) => {
        if (socket !== own || message !== "Replication connection established") return;
        failures = 0;
        handlers.onReady();
      })
      .subscribe((status) => {
        // Also the channel that is left reports that it is closed.
        if (socket === own && status !== REALTIME_SUBSCRIBE_STATES.SUBSCRIBED) joinLater();
      });
  }

  function joinNow(): void {
    join().catch(joinLater);
  }

  function joinLater(): void {
    leave();
    if (isClosed) return;
    failures += 1;
    pause = window.setTimeout(joinNow, pauseAfter(failures));
  }

  function leave(): void {
    const left = socket;
    socket = null;
    void left?.removeAllChannels();
  }

  function endPause(): void {
    if (pause === null || document.visibilityState === "hidden") return;
    window.clearTimeout(pause);
    joinNow();
  }

  window.addEventListener("online", endPause);
  document.addEventListener("visibilitychange", endPause);
  pause = window.setTimeout(joinNow, FIRST_JOIN_AFTER_MS);
  return {
    renewToken: () => void socket?.setAuth(),
    close() {
      isClosed = true;
      window.removeEventListener("online", endPause);
      document.removeEventListener("visibilitychange", endPause);
      if (pause !== null) window.clearTimeout(pause);
      leave();
    },
  };
}
