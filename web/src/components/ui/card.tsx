import { type ReactNode, useId } from "react";
import { classNames } from "../../lib/class-names";

/** A section with a title of its own. */
export function Card({
  title,
  description,
  aside,
  children,
  className,
}: {
  title: string;
  description?: ReactNode;
  aside?: ReactNode;
  children: ReactNode;
  className?: string;
}) {
  const id = useId();
  return (
    <section aria-labelledby={id} className={classNames("rounded border border-line bg-surface", className)}>
      <div className="flex flex-wrap items-start justify-between gap-x-6 gap-y-3 px-5 pt-5 sm:px-6">
        <div className="min-w-0 sm:flex-1 sm:basis-40">
          <h2 id={id} className="text-lg">
            {title}
          </h2>
          {description !== undefined && <div className="mt-1 text-sm text-soft [overflow-wrap:anywhere]">{description}</div>}
        </div>
        {aside}
      </div>
      <div className="px-5 pt-4 pb-5 sm:px-6">{children}</div>
    </section>
  );
}
