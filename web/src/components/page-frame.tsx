import { type ReactNode, useEffect } from "react";
import { useShownAddress } from "../lib/shown-address";
import { ErrorBoundary } from "./error-boundary";

/**
 * Frames the page of one address pattern: announces that it is shown, and keeps its failure from
 * the layout.
 */
export function PageFrame({ pattern, children }: { pattern: string; children: ReactNode }) {
  const { onShown } = useShownAddress();
  useEffect(() => onShown(pattern), [onShown, pattern]);
  return <ErrorBoundary>{children}</ErrorBoundary>;
}
