import { SignedInOnly } from "../components/guards";
import { SecuritySkeleton } from "../components/page-skeletons";
import { Security } from "../features/security/security";
import { useAuth } from "../lib/auth/auth-context";

export default function SecurityPage() {
  const { session } = useAuth();
  return <SignedInOnly skeleton={<SecuritySkeleton />}>{session && <Security session={session} />}</SignedInOnly>;
}
