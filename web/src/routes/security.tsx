import { SignedInOnly } from "../components/guards";
import { SecuritySkeleton } from "../components/page-skeletons";
import { Security } from "../features/security/security";
import { useAuth } from "../lib/auth/auth-context";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function SecurityPage() {
  const { session } = useAuth();
  usePageTitle(m.security_page());
  return <SignedInOnly skeleton={<SecuritySkeleton />}>{session && <Security session={session} />}</SignedInOnly>;
}
