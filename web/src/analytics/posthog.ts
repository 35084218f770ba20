import posthog from "posthog-js/dist/module.slim.no-external";
import type { Config } from "../lib/config";
import type { AnalyticsAdapter } from "./adapter";

export function postHog(settings: Config["analytics"]): AnalyticsAdapter | null {
  if (settings.key === null) return null;
  posthog.init(settings.key, {
    api_host: settings.host ?? "https://eu.i.posthog.com",
    // Only our own events are sent: no clicks, no addresses, no recordings, no scripts of other
    // origins.
    autocapture: false,
    capture_pageview: false,
    capture_pageleave: false,
    disable_session_recording: true,
    disable_external_dependency_loading: true,
    person_profiles: "identified_only",
    respect_dnt: true,
    sanitize_properties: (properties) =>
      Object.fromEntries(Object.entries(properties).filter(([name]) => !/url|pathname|referr|title/i.test(name))),
  });
  return {
    track: (event, properties) => void posthog.capture(event, properties, { transport: "sendBeacon" }),
    identify: (userId) => posthog.identify(userId),
    reset: () => posthog.reset(),
  };
}
