import type { Config } from "../lib/config";
import { typePolicy } from "../lib/trusted-types";
import type { AnalyticsAdapter } from "./adapter";

const origin = "https://www.googletagmanager.com";

export function googleAnalytics(settings: Config["analytics"]): AnalyticsAdapter | null {
  if (settings.key === null) return null;
  const measurementId = settings.key;
  const layer: IArguments[] = [];
  // The tag's script reads its queue from this property.
  (window as { dataLayer?: unknown[] }).dataLayer = layer;
  // It reads `arguments` objects and ignores arrays, hence the old form of function.
  const gtag = function () {
    // eslint-disable-next-line prefer-rest-params
    layer.push(arguments);
  } as (...parts: unknown[]) => void;
  gtag("js", new Date());
  gtag("config", measurementId, { send_page_view: false, transport_type: "beacon", anonymize_ip: true });
  loadTag(measurementId);
  return {
    track(event, properties) {
      // Google's names for the same things.
      const name = { sign_in: "login", sign_up: "sign_up", page_view: "page_view" }[event] ?? event;
      const place = { page_location: window.location.origin + (properties.route ?? "/") };
      gtag("event", name, { ...properties, ...place });
    },
    identify: (userId) => gtag("set", { user_id: userId }),
    reset: () => gtag("set", { user_id: null }),
  };
}

function loadTag(measurementId: string): void {
  const address = `${origin}/gtag/js?id=${encodeURIComponent(measurementId)}`;
  const policy = typePolicy("portico-gtag", {
    createScriptURL: (url) => (url.startsWith(`${origin}/`) ? url : ""),
  });
  const script = document.createElement("script");
  script.async = true;
  script.src = policy.createScriptURL?.(address) ?? address;
  document.head.append(script);
}
