import { SignedInOnly } from "../components/guards";
import { OverviewSkeleton } from "../components/page-skeletons";
import { Overview } from "../features/account/overview";
import { PasskeyOffer } from "../features/security/passkey-offer";
import { useAuth } from "../lib/auth/auth-context";

export default function AccountPage() {
  const { session } = useAuth();
  return <SignedInOnly skeleton={<OverviewSkeleton />}>{session && <Overview session={session} offer={<PasskeyOffer />} />}</SignedInOnly>;
}
