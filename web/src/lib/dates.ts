import * as m from "../paraglide/messages";
import { getLocale } from "../paraglide/runtime";

const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["week", 604_800],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
];

export function relativeTime(at: Date, now: Date): string {
  const seconds = (at.getTime() - now.getTime()) / 1000;
  const format = new Intl.RelativeTimeFormat(getLocale(), { numeric: "auto" });
  for (const [unit, size] of units) {
    if (Math.abs(seconds) >= size) return format.format(Math.trunc(seconds / size), unit);
  }
  return m.time_just_now();
}

export function exactTime(at: Date): string {
  return new Intl.DateTimeFormat(getLocale(), { dateStyle: "full", timeStyle: "short" }).format(at);
}
