import { expect, test, vi } from "vitest";
import { readConfig } from "../lib/config";
import { watchBeacons } from "../testing/render-app";
import { startAnalytics, track } from "./index";

const settings = (adapter: string) => readConfig({ anonKey: "k", analytics: { adapter } }).analytics;

test("the built-in collector gets name, properties and time", () => {
  const beacons = watchBeacons();
  startAnalytics(settings("builtin"));
  track("sign_in", { method: "google" });
  expect(beacons).toEqual([
    { name: "sign_in", properties: { method: "google" }, occurred_at: expect.stringMatching(/^\d{4}-.*Z$/) as string },
  ]);
});

test.each([
  ["Global Privacy Control", "globalPrivacyControl", true],
  ["Do Not Track", "doNotTrack", "1"],
])("%s stops all events", (_name, property, value) => {
  const beacons = watchBeacons();
  Object.defineProperty(navigator, property, { value, configurable: true });
  try {
    startAnalytics(settings("builtin"));
    track("sign_out", {});
  } finally {
    Reflect.deleteProperty(navigator, property);
  }
  expect(beacons).toEqual([]);
});

test("none sends nothing, and an adapter without its key sends nothing", async () => {
  const beacons = watchBeacons();
  for (const adapter of ["none", "posthog", "ga4"]) {
    startAnalytics(settings(adapter));
    track("page_view", { route: "/" });
  }
  await import("./posthog");
  expect(beacons).toEqual([]);
  expect(document.querySelector("script")).toBeNull();
});

test("a broken collector breaks nothing", () => {
  vi.spyOn(navigator, "sendBeacon").mockImplementation(() => {
    throw new Error("no beacons here");
  });
  startAnalytics(settings("builtin"));
  expect(() => track("sign_out", {})).not.toThrow();
});

test("Google Analytics loads its tag once and queues what was tracked before", async () => {
  startAnalytics(readConfig({ anonKey: "k", analytics: { adapter: "ga4", key: "G-TEST" } }).analytics);
  track("sign_in", { method: "email" });
  await vi.waitFor(() => expect(document.querySelector("script")?.src).toBe("https://www.googletagmanager.com/gtag/js?id=G-TEST"));
  const layer: unknown = Reflect.get(window, "dataLayer");
  const queued = Array.isArray(layer) ? layer.map((entry) => Array.from(entry as ArrayLike<unknown>)) : [];
  await vi.waitFor(() => expect(queued.length + (layer as unknown[]).length).toBeGreaterThan(0));
  expect((layer as ArrayLike<unknown>[]).map((entry) => entry[1])).toContain("login");
  document.querySelector("script")?.remove();
});
