import type { PointerEvent } from "react";

import { exactTime, relativeTime } from "../lib/dates";
import { useNow } from "../lib/use-now";

/** A time relative to now, with the exact time on hover. */
export function RelativeTime({ at }: { at: Date }) {
  const now = useNow(30_000);
  // A page shows many times and the exact one of few: it is written when the pointer comes.
  const describe = ({ currentTarget }: PointerEvent<HTMLElement>): void => {
    currentTarget.title = exactTime(at);
  };
  return (
    <time dateTime={at.toISOString()} onPointerEnter={describe} className="whitespace-nowrap">
      {relativeTime(at, now)}
    </time>
  );
}
