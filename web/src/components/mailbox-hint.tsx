import { classNames } from "../lib/class-names";
import { useConfig } from "../lib/config-context";

import * as m from "../paraglide/messages";
import { RichText } from "./rich-text";
import { TextLink } from "./text-link";

/** A link to the captured messages, in development. */
export function MailboxHint({ className = "mt-8" }: { className?: string }) {
  const { mailbox } = useConfig();
  if (mailbox === null) return null;
  return (
    <p className={classNames("text-sm text-soft", className)}>
      <RichText
        message={m.mailbox_hint}
        inputs={{}}
        elements={{
          mailbox: (text) => (
            <TextLink href="/mailbox">
              {text}
            </TextLink>
          ),
        }}
      />
    </p>
  );
}
