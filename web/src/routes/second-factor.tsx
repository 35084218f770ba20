import { SignedInOnly } from "../components/guards";
import { FormSkeleton } from "../components/page-skeletons";
import { ConfirmSignIn } from "../features/mfa/confirm-sign-in";
import { useSecondStep } from "../features/mfa/use-second-step";
import { usePageTitle } from "../lib/use-page-title";
import * as m from "../paraglide/messages";

export default function SecondFactorPage() {
  const user = useSecondStep();
  usePageTitle(m.second_factor_page());
  return (
    <SignedInOnly skeleton={<FormSkeleton />} isForSecondFactor>
      {user ? <ConfirmSignIn user={user} /> : <FormSkeleton />}
    </SignedInOnly>
  );
}
