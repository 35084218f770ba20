import { useConfig } from "../lib/config-context";

/** The mark and name of the brand, which the configuration may replace. */
export function Mark() {
  const { brand } = useConfig();
  return (
    <span className="inline-flex min-w-0 items-center gap-2.5 text-lg font-semibold tracking-[-0.02em] text-ink">
      {brand.mark === null ? <Arch /> : <img src={brand.mark} alt="" width={26} height={26} />}
      <span className="truncate">{brand.name}</span>
    </span>
  );
}

function Arch() {
  return (
    <svg aria-hidden width="26" height="26" viewBox="0 0 32 32" className="shrink-0 text-accent">
      <g fill="none" stroke="currentColor" strokeWidth="2.5" strokeLinecap="round">
        <path d="M5 27V15a11 11 0 0 1 22 0v12" />
        <path d="M12.5 27V16a3.5 3.5 0 0 1 7 0v11" />
        <path d="M3 27h26" />
      </g>
    </svg>
  );
}
