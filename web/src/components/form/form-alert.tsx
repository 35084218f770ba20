import { type ReactNode, useEffect, useRef } from "react";
import { Alert } from "../ui/alert";
import type { Described } from "../../lib/errors";

/** What failed, above the form. It receives the focus, so that nobody has to look for it. */
export function FormAlert({ problem, actions }: { problem: Described | null; actions?: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (problem) box.current?.focus();
  }, [problem]);
  if (!problem) return null;
  return (
    <Alert ref={box} tone="danger" className="mb-6">
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
