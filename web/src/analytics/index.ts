import type { Config } from "../lib/config";
import type { AnalyticsAdapter } from "./adapter";

/** Every event, with its properties. */
export interface AnalyticsEvents {
  sign_in: { method: string };
  sign_up: { method: string };
  sign_out: Record<string, never>;
  /** The pattern of the page's path, never the address itself. */
  page_view: { route: string };
}

let adapter: Promise<AnalyticsAdapter | null> | AnalyticsAdapter | null = null;

/**
 * Selects the adapter. Before that, and for users who opted out of tracking, events are dropped.
 */
export function startAnalytics(settings: Config["analytics"]): void {
  adapter = optsOut() ? null : load(settings);
}

export function track<Name extends keyof AnalyticsEvents>(event: Name, properties: AnalyticsEvents[Name]): void {
  withAdapter((chosen) => chosen.track(event, { ...properties }));
}

export function identify(userId: string): void {
  withAdapter((chosen) => chosen.identify(userId));
}

export function reset(): void {
  withAdapter((chosen) => chosen.reset());
}

/** Runs the call once the adapter is loaded. Its failures never reach the caller. */
function withAdapter(call: (chosen: AnalyticsAdapter) => void): void {
  const run = (chosen: AnalyticsAdapter | null) => {
    try {
      if (chosen) call(chosen);
    } catch {
      // Analytics must never break the application.
    }
  };
  if (adapter instanceof Promise) void adapter.then(run);
  else run(adapter);
}

function load(settings: Config["analytics"]): Promise<AnalyticsAdapter | null> | AnalyticsAdapter | null {
  switch (settings.adapter) {
    case "none":
      return null;
    case "builtin":
      return builtIn();
    case "posthog":
      return import("./posthog").then(({ postHog }) => postHog(settings)).catch(() => null);
    case "ga4":
      return import("./ga4").then(({ googleAnalytics }) => googleAnalytics(settings)).catch(() => null);
  }
}

/** The server's own collector. It stores no user ids, so there is no user to identify. */
function builtIn(): AnalyticsAdapter {
  const address = "/portico/v1/events";
  return {
    track(name, properties) {
      const body = JSON.stringify({ events: [{ name, properties, occurred_at: new Date().toISOString() }] });
      const sent = navigator.sendBeacon(address, body);
      if (!sent) void fetch(address, { method: "POST", body, keepalive: true }).catch(() => undefined);
    },
    identify: () => undefined,
    reset: () => undefined,
  };
}

/** Returns true with Global Privacy Control or Do Not Track. */
function optsOut(): boolean {
  // Neither is in the DOM's declarations of every browser.
  const settings = navigator as { globalPrivacyControl?: boolean; doNotTrack?: string | null };
  return settings.globalPrivacyControl === true || settings.doNotTrack === "1";
}
