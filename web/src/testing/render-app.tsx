import { render } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { vi } from "vitest";
import { startAnalytics } from "../analytics";
import { App } from "../app";
import { openAuth } from "../lib/auth/client";
import type { Config } from "../lib/config";
import { config as defaultConfig } from "./fake-server";

/**
 * Opens the whole application at an address, as a browser does. The client's code is loaded after
 * `pageCode`.
 */
export function renderApp(address: string, config: Config = defaultConfig, pageCode: Promise<unknown> = Promise.resolve()) {
  window.history.replaceState(null, "", address);
  const beacons = watchBeacons();
  startAnalytics(config.analytics);
  const auth = openAuth(config, pageCode);
  const view = render(<App config={config} auth={auth} />);
  return { auth, beacons, user: userEvent.setup(), ...view };
}

export interface SentEvent {
  name: string;
  properties: Record<string, string>;
}

/** Records the events that are sent to the collector. */
export function watchBeacons(onSent: (event: SentEvent) => void = () => undefined): SentEvent[] {
  const sent: SentEvent[] = [];
  vi.spyOn(navigator, "sendBeacon").mockImplementation((_url, body) => {
    const { events } = JSON.parse(body as string) as { events: SentEvent[] };
    for (const event of events) {
      sent.push(event);
      onSent(event);
    }
    return true;
  });
  return sent;
}
