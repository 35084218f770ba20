import { classNames } from "../../lib/class-names";

/** A stand-in of the content's size; it shows after a moment, so that a quick answer never flickers. */
export function Skeleton({ className }: { className: string }) {
  return <div aria-hidden className={classNames("skeleton", className)} />;
}
