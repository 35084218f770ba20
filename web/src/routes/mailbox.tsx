import { Mailbox } from "../features/mailbox/mailbox";
import { useConfig } from "../lib/config-context";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";
import NotFoundPage from "./not-found";

/** The captured messages of a development server, live. There is no such page in production. */
export default function MailboxPage() {
  const { mailbox } = useConfig();
  return mailbox === null ? <NotFoundPage /> : <MailboxOf url={mailbox} />;
}

function MailboxOf({ url }: { url: string }) {
  usePageTitle(m.mailbox_page());
  return <Mailbox url={url} />;
}
