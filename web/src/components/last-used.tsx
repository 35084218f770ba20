import * as m from "../paraglide/messages";

/** Marks the sign-in method that was last used in this browser. */
export function LastUsed() {
  return (
    <span className="absolute -top-2.5 right-3 rounded-full border border-line bg-accent-wash px-2 text-xs font-medium text-accent-strong">
      {m.last_used()}
    </span>
  );
}
