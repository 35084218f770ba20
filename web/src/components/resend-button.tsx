import { useNow } from "../lib/use-now";
import * as m from "../paraglide/messages";
import { Button } from "./ui/button";

/** The server's least time between two messages to the same address. */
const resendAfterMs = 60_000;

/** A button that sends a message again, once that is allowed. */
export function ResendButton({
  sentAt,
  label,
  status,
  isPending,
  onResend,
}: {
  /**
   * The time when the last message was sent, in milliseconds since 1970. `NaN` and 0 allow the next
   * one at once.
   */
  sentAt: number;
  label: string;
  /** Announced to screen readers once the message is sent. */
  status: string | null;
  isPending: boolean;
  onResend: () => void;
}) {
  const now = useNow(1000);
  const seconds = Math.ceil((sentAt + resendAfterMs - now.getTime()) / 1000);
  return (
    <>
      <Button
        tone="quiet"
        size="sm"
        className="-ml-3 tabular-nums"
        disabled={seconds > 0}
        isPending={isPending}
        onClick={onResend}
      >
        {seconds > 0 ? m.resend_wait({ seconds }) : label}
      </Button>
      <span role="status" className="sr-only">
        {status}
      </span>
    </>
  );
}
