import type { Session } from "@supabase/supabase-js";
import { ChevronLeft } from "lucide-react";
import { verifiedFactors } from "../../lib/auth/factors";
import { useSignInMethods } from "../../lib/auth/sign-in-methods";
import { useConfig } from "../../lib/config-context";
import { AppLink } from "../../lib/navigation";
import { usePageTitle } from "../../lib/use-page-title";
import * as m from "../../paraglide/messages";
import { PasskeySection } from "./passkey-section";
import { PasswordSection } from "./password-section";
import { TwoStepSection } from "./two-step-section";

/** The security page: password, passkeys and second factors, as far as the server has them. */
export function Security({ session }: { session: Session }) {
  const { user } = session;
  const { methods } = useSignInMethods();
  const { factors } = useConfig().accounts;
  const hasFactors = factors.totp || factors.phone || factors.securityKey || verifiedFactors(user).length > 0;
  // Here, and not in the route, because the notices that take this place have titles of their own
  usePageTitle(m.security_page());
  return (
    <div className="rise py-8 lg:py-12">
      <AppLink href="/app" className="-ml-1 inline-flex items-center gap-1 rounded pr-2 text-sm text-soft hover:text-ink">
        <ChevronLeft aria-hidden className="size-4" />
        {m.security_back()}
      </AppLink>
      <h1 className="mt-3 text-[clamp(1.6rem,1.2rem+2vw,2.25rem)]">{m.security_title()}</h1>
      <p className="mt-2 text-soft">{m.security_lead()}</p>
      <div className="mt-8 divide-y divide-line border-t border-line">
        <PasswordSection session={session} />
        {methods.passkeys && <PasskeySection />}
        {hasFactors && <TwoStepSection user={user} />}
      </div>
    </div>
  );
}
