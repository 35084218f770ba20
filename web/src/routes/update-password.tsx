import { FormSkeleton } from "../components/page-skeletons";
import { ConfirmSignIn } from "../features/mfa/confirm-sign-in";
import { NewPassword, RecoveryLinkExpired } from "../features/sign-in/new-password";
import { useAuth } from "../lib/auth/auth-context";
import { needsSecondFactor } from "../lib/auth/factors";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function UpdatePasswordPage() {
  const { session, loading } = useAuth();
  usePageTitle(m.new_password_page());
  if (loading) return <FormSkeleton />;
  // The server changes no password before the second step.
  if (session && needsSecondFactor(session)) return <ConfirmSignIn user={session.user} />;
  return session ? <NewPassword session={session} /> : <RecoveryLinkExpired />;
}
