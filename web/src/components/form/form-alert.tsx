import { type ReactNode, useEffect, useRef } from "react";
import type { DescribedError } from "../../lib/errors";
import { Alert } from "../ui/alert";

/** The failure of a form, above it. It receives the focus when it appears. */
export function FormAlert({ problem, actions }: { problem: DescribedError | null; actions?: ReactNode }) {
  const alert = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (problem) alert.current?.focus();
  }, [problem]);
  if (!problem) return null;
  return (
    <Alert ref={alert} tone="danger" className="mb-6">
      <p>{problem.message}</p>
      {problem.reasons && (
        <ul className="mt-1 list-disc pl-4">
          {problem.reasons.map((reason) => (
            <li key={reason}>{reason}</li>
          ))}
        </ul>
      )}
      {actions}
    </Alert>
  );
}
