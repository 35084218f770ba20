import type { LucideIcon } from "lucide-react";
import { type ReactNode, useId } from "react";
import { Alert } from "../../components/ui/alert";
import { SkeletonRow } from "../../components/ui/skeleton";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";

/**
 * A part of the security page: its title and purpose, and beside them on wide screens its content.
 */
export function Section({
  title,
  text,
  badge,
  status,
  children,
}: {
  title: string;
  text: ReactNode;
  badge?: ReactNode;
  /** Announced to screen readers when it changes. */
  status?: string;
  children: ReactNode;
}) {
  const id = useId();
  return (
    <section aria-labelledby={id} className="grid gap-x-14 gap-y-4 py-8 lg:grid-cols-[minmax(0,18rem)_minmax(0,1fr)]">
      <div>
        <div className="flex flex-wrap items-center gap-x-3 gap-y-1">
          <h2 id={id} className="text-lg">
            {title}
          </h2>
          {badge}
        </div>
        <div className="mt-1.5 max-w-prose text-sm text-soft">{text}</div>
        <p role="status" className="sr-only">
          {status}
        </p>
      </div>
      <div className="min-w-0 divide-y divide-line self-start rounded border border-line bg-surface">{children}</div>
    </section>
  );
}

/** A row of a section: what it is about, the actions at its end, and what they open below. */
export function Row({
  Icon,
  title,
  text,
  actions,
  children,
}: {
  Icon: LucideIcon;
  title: ReactNode;
  text?: ReactNode;
  actions?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <div className="px-5 py-4 sm:px-6">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-3">
        <div className="flex min-w-0 flex-1 basis-64 items-start gap-4">
          <Icon aria-hidden className="mt-0.5 size-5 shrink-0 text-soft" strokeWidth={1.75} />
          <div className="min-w-0 flex-1">
            <div className="font-medium [overflow-wrap:anywhere]">{title}</div>
            {text !== undefined && <div className="text-sm text-soft">{text}</div>}
          </div>
        </div>
        {actions !== undefined && <div className="flex shrink-0 gap-1 max-sm:pl-9">{actions}</div>}
      </div>
      {children}
    </div>
  );
}

/** The content that a row opened: a form, or a secret to keep. */
export function Panel({ children }: { children: ReactNode }) {
  return <div className="mt-5 max-w-md sm:pl-9">{children}</div>;
}

/** The place of a row that is being loaded. */
export function RowSkeleton() {
  return (
    <div aria-busy="true" className="px-5 py-5 sm:px-6">
      <SkeletonRow />
    </div>
  );
}

/** The failure of a row's request, with a button that repeats it. */
export function LoadFailure({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  return (
    <div className="p-5 sm:px-6">
      <Alert
        tone="danger"
        actions={
          <button type="button" className="font-medium underline" onClick={onRetry}>
            {m.security_load_again()}
          </button>
        }
      >
        {m.security_not_loaded({ reason: describeError(error).message })}
      </Alert>
    </div>
  );
}

/** The failure of an action, above what it belongs to. */
export function ActionFailure({ error }: { error: unknown }) {
  if (error === null || error === undefined) return null;
  return (
    <div className="p-5 sm:px-6">
      <Alert tone="danger">{describeError(error).message}</Alert>
    </div>
  );
}
