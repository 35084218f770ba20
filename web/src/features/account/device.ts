import * as m from "../../paraglide/messages";

const browsers: [RegExp, string][] = [
  [/Edg(?:e|A|iOS)?\//, "Edge"],
  [/OPR\//, "Opera"],
  [/SamsungBrowser\//, "Samsung Internet"],
  [/Firefox\/|FxiOS\//, "Firefox"],
  [/HeadlessChrome\/|Chrome\/|CriOS\//, "Chrome"],
  [/Safari\//, "Safari"],
];
const systems: [RegExp, string][] = [
  [/iPhone/, "iPhone"],
  [/iPad/, "iPad"],
  [/Android/, "Android"],
  [/Windows/, "Windows"],
  [/Mac OS X/, "macOS"],
  [/CrOS/, "ChromeOS"],
  [/Linux|X11/, "Linux"],
];

/** A browser or device as a user knows it. */
export interface Device {
  name: string;
  isHandheld: boolean;
}

export function describeDevice(userAgent: string | null | undefined): Device {
  const text = userAgent ?? "";
  const browser = browsers.find(([pattern]) => pattern.test(text))?.[1];
  const system = systems.find(([pattern]) => pattern.test(text))?.[1];
  const isHandheld = system === "iPhone" || system === "iPad" || system === "Android";
  if (browser !== undefined && system !== undefined) return { name: m.device_name({ browser, system }), isHandheld };
  const program = /^[\w.-]+/.exec(text)?.[0];
  return { name: browser ?? system ?? program ?? m.device_unknown(), isHandheld };
}
