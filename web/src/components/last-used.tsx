/** Marks the way to sign in that this browser used last. */
export function LastUsed() {
  return (
    <span className="absolute -top-2.5 right-3 rounded-full border border-line bg-accent-wash px-2 text-xs font-medium text-accent-strong">
      Last used
    </span>
  );
}
