import { useConfig } from "../../lib/config-context";
import { AppLink } from "../../lib/navigation";

/** In development the mail waits next door. */
export function OpenMailbox() {
  const { mailbox } = useConfig();
  if (mailbox === null) return null;
  return (
    <p className="mt-8 text-sm text-soft">
      Development: the mail is in the{" "}
      <AppLink href="/mailbox" className="font-medium text-ink underline underline-offset-4">
        mailbox
      </AppLink>
      .
    </p>
  );
}
