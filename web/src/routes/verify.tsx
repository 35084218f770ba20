import { FormSkeleton } from "../components/page-skeletons";
import { RequestCodeForm } from "../features/sign-in/request-code-form";
import { usePendingCode } from "../features/sign-in/use-pending-code";
import { VerifyCodeForm, verifyTitle } from "../features/sign-in/verify-code-form";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function VerifyPage() {
  const { pending, setPending, isLoading } = usePendingCode();
  usePageTitle(pending === null ? m.verify_page() : verifyTitle(pending));
  if (isLoading) return <FormSkeleton />;
  if (pending === null) return <RequestCodeForm onPending={setPending} />;
  return <VerifyCodeForm pending={pending} onResent={setPending} />;
}
