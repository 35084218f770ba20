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

const narrowNoBreakSpace = "\u202f";

// To make a format takes longer than to render a page: each is made when it is first needed, and
// kept.
const relativeFormat = forLocale((locale) => new Intl.RelativeTimeFormat(locale, { numeric: "auto" }));
const exactFormat = forLocale((locale) => new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "short" }));

/** Returns for example "5 minutes ago", in the language of the page. */
export function relativeTime(at: Date, now: Date): string {
  const seconds = (at.getTime() - now.getTime()) / 1000;
  const largest = units.find(([, size]) => Math.abs(seconds) >= size);
  if (largest === undefined) return m.time_just_now();
  const [unit, size] = largest;
  return relativeFormat().format(Math.trunc(seconds / size), unit);
}

/**
 * Returns the day and the minute, in the language of the page. A line does not break between the
 * minute and "AM" or "PM".
 */
export function exactTime(at: Date): string {
  const parts = exactFormat().formatToParts(at);
  return parts.map(({ value }, index) => (value.trim() === "" && parts[index + 1]?.type === "dayPeriod" ? narrowNoBreakSpace : value)).join("");
}

function forLocale<T>(make: (locale: string) => T): () => T {
  const made = new Map<string, T>();
  return () => {
    const locale = getLocale();
    const format = made.get(locale) ?? make(locale);
    made.set(locale, format);
    return format;
  };
}
