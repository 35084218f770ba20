import { EmailChangeResult } from "../features/account/email-change-result";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function ConfirmEmailChangePage() {
  usePageTitle(m.email_change_page());
  return <EmailChangeResult />;
}
