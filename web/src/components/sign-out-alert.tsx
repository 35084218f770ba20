import { useEffect, useRef } from "react";
import { useAuth } from "../lib/auth/auth-context";
import * as m from "../paraglide/messages";
import { Alert } from "./ui/alert";

/**
 * The failure of a sign-out, which leaves the user signed in. Its button removes the session from
 * this browser at least. The alert receives the focus, since the control that was pressed may be
 * gone.
 */
export function SignOutAlert({ reason, className = "" }: { reason: string; className?: string }) {
  const { signOutHere } = useAuth();
  const alert = useRef<HTMLDivElement>(null);
  useEffect(() => alert.current?.focus(), []);
  return (
    <Alert
      ref={alert}
      tone="danger"
      className={className}
      actions={
        <button type="button" className="-my-1 rounded py-1 text-left font-medium underline" onClick={() => void signOutHere()}>
          {m.sign_out_anyway()}
        </button>
      }
    >
      {m.sign_out_failed({ reason })}
    </Alert>
  );
}
