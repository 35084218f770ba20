import { Skeleton } from "./ui/skeleton";

/*
 * The placeholders of pages. The static pages show the same ones, before any script has loaded
 * (`build/page-files.ts`).
 */

/** A placeholder for a form and the picture beside it. */
export function FormSkeleton() {
  return (
    <div aria-busy="true" className="grid flex-1 gap-x-16 lg:grid-cols-[1fr_minmax(0,27rem)]">
      <div className="mx-auto w-full max-w-sm space-y-4 py-10 lg:py-16">
        <Skeleton className="h-10 w-3/5" />
        <Skeleton className="h-11 w-full" />
        <Skeleton className="h-11 w-full" />
        <Skeleton className="h-11 w-full" />
      </div>
      <div className="hidden min-h-[34rem] rounded border border-line bg-sunken lg:block" />
    </div>
  );
}

/** A placeholder for the account page. */
export function OverviewSkeleton() {
  return (
    <div aria-busy="true" className="space-y-8 py-8 lg:py-12">
      <div className="flex items-center gap-5">
        <Skeleton className="size-16 shrink-0 rounded-full" />
        <div className="flex-1 space-y-3">
          <Skeleton className="h-8 w-64 max-w-full" />
          <Skeleton className="h-4 w-80 max-w-full" />
        </div>
      </div>
      <div className="grid gap-6 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <Skeleton className="h-64 w-full" />
        <Skeleton className="h-64 w-full" />
      </div>
    </div>
  );
}

/** A placeholder for the security page. */
export function SecuritySkeleton() {
  return (
    <div aria-busy="true" className="space-y-8 py-8 lg:py-12">
      <div className="space-y-3">
        <Skeleton className="h-9 w-48" />
        <Skeleton className="h-4 w-80 max-w-full" />
      </div>
      <Skeleton className="h-28 w-full" />
      <Skeleton className="h-28 w-full" />
      <Skeleton className="h-64 w-full" />
    </div>
  );
}
