import { classNames } from "../../lib/class-names";

/**
 * A placeholder of the content's size. It appears after a moment, so that a quick response never
 * flickers.
 */
export function Skeleton({ className }: { className: string }) {
  return <div aria-hidden className={classNames("skeleton", className)} />;
}
