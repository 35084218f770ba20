import { classNames } from "../../lib/class-names";

/**
 * A placeholder of the content's size. It appears after a moment, so that a quick response never
 * flickers.
 */
export function Skeleton({ className }: { className: string }) {
  return <div aria-hidden className={classNames("skeleton", className)} />;
}

/** A placeholder for a row with an icon and two lines of text. */
export function SkeletonRow() {
  return (
    <div className="flex items-center gap-4">
      <Skeleton className="size-6" />
      <div className="flex-1 space-y-2">
        <Skeleton className="h-4 w-44 max-w-full" />
        <Skeleton className="h-3.5 w-60 max-w-full" />
      </div>
    </div>
  );
}
