import type { ReactNode } from "react";
import { Colonnade } from "./colonnade";

/** A page with one form, and on wide screens the picture beside it. */
export function FormPage({ title, lead, children }: { title: string; lead?: ReactNode; children: ReactNode }) {
  return (
    <div className="grid flex-1 gap-x-16 lg:grid-cols-[1fr_minmax(0,27rem)]">
      <div className="rise mx-auto w-full max-w-sm py-10 lg:py-16">
        <h1 className="text-[2rem]">{title}</h1>
        {lead !== undefined && <div className="mt-3 text-soft [overflow-wrap:anywhere]">{lead}</div>}
        <div className="mt-8">{children}</div>
      </div>
      <div className="hidden min-h-[34rem] overflow-hidden rounded border border-line lg:block">
        <Colonnade />
      </div>
    </div>
  );
}
