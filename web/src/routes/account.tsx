import { SignedInOnly } from "../components/guards";
import { Overview, OverviewSkeleton } from "../features/account/overview";
import { PasskeyOffer } from "../features/security/passkey-offer";
import { useAuth } from "../lib/auth/auth-context";

export default function AccountPage() {
  const { session } = useAuth();
  return <SignedInOnly skeleton={<OverviewSkeleton />}>{session && <Overview session={session} offer={<PasskeyOffer />} />}</SignedInOnly>;
}
