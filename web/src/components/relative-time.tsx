import { exactTime, relativeTime } from "../lib/dates";
import { useNow } from "../lib/use-now";

/** A time relative to now, with the exact time on hover. */
export function RelativeTime({ at }: { at: Date }) {
  const now = useNow(30_000);
  return (
    <time dateTime={at.toISOString()} title={exactTime(at)} className="whitespace-nowrap">
      {relativeTime(at, now)}
    </time>
  );
}
