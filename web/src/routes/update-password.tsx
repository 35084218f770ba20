import { FormSkeleton } from "../components/guards";
import { NewPassword, RecoveryLinkExpired } from "../features/sign-in/new-password";
import { useAuth } from "../lib/auth/auth-context";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function UpdatePasswordPage() {
  const { user, loading } = useAuth();
  usePageTitle(m.new_password_page());
  if (loading) return <FormSkeleton />;
  return user ? <NewPassword user={user} /> : <RecoveryLinkExpired />;
}
