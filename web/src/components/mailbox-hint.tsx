import { classNames } from "../lib/class-names";
import { useConfig } from "../lib/config-context";
import { AppLink } from "../lib/navigation";

/** In development mails and text messages wait next door. */
export function OpenMailbox({ className = "mt-8" }: { className?: string }) {
  const { mailbox } = useConfig();
  if (mailbox === null) return null;
  return (
    <p className={classNames("text-sm text-soft", className)}>
      Development: the message is in the{" "}
      <AppLink href="/mailbox" className="font-medium text-ink underline underline-offset-4">
        mailbox
      </AppLink>
      .
    </p>
  );
}
