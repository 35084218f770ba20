import type { ReactNode } from "react";
import { Colonnade } from "./colonnade";

/** A sentence below the form of a page, mostly with a link to another page. */
export function FormNote({ children }: { children: ReactNode }) {
  return <p className="mt-8 text-sm text-soft">{children}</p>;
}

/** A page with one form, and on wide screens the picture beside it. */
export function FormPage({
  title,
  lead,
  beginsWithLead = false,
  children,
}: {
  title: string;
  lead?: ReactNode;
  /** The first line of the children is the lead. */
  beginsWithLead?: boolean;
  children: ReactNode;
}) {
  return (
    <div className="grid flex-1 gap-x-16 lg:grid-cols-[1fr_minmax(0,27rem)]">
      <div className="rise mx-auto w-full max-w-sm py-10 lg:py-16">
        <h1 className="text-[2rem]">{title}</h1>
        {lead !== undefined && <div className="mt-3 text-soft [overflow-wrap:anywhere]">{lead}</div>}
        <div className={beginsWithLead ? "mt-3" : "mt-8"}>{children}</div>
      </div>
      <div className="hidden min-h-[34rem] overflow-hidden rounded border border-line lg:block">
        <Colonnade />
      </div>
    </div>
  );
}
