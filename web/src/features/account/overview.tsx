import type { Session, User } from "@supabase/supabase-js";
import { ShieldCheck } from "lucide-react";
import { type ReactNode, useMemo } from "react";
import { ExactTime } from "../../components/exact-time";
import { Alert } from "../../components/ui/alert";
import { ButtonLink } from "../../components/ui/button";
import { Card } from "../../components/ui/card";
import { openApi } from "../../lib/api";
import { useAuth } from "../../lib/auth/auth-context";
import { verifiedFactors } from "../../lib/auth/factors";
import { classNames } from "../../lib/class-names";
import { useConfig } from "../../lib/config-context";
import { usePageTitle } from "../../lib/use-page-title";
import * as m from "../../paraglide/messages";
import { EmailAddress } from "./email-address";
import { Greeting } from "./greeting";
import { IdentityList } from "./identity-list";
import { SessionList } from "./session-list";
import { SignOutButton } from "./sign-out-button";

/**
 * The account page: the user, the sessions, the email address and the identities. `offer` stands
 * above them.
 */
export function Overview({ session, offer }: { session: Session; offer?: ReactNode }) {
  const { client } = useAuth();
  const config = useConfig();
  const api = useMemo(() => openApi(config, client), [config, client]);
  const { user } = session;
  // Here, and not in the route, because the notices that take this place have titles of their own
  usePageTitle(m.account_page());
  return (
    <div className="rise space-y-8 py-8 lg:py-12">
      <div className="flex flex-wrap items-center justify-between gap-6">
        <Greeting session={session} />
        <SignOutButton />
      </div>
      {user.email_confirmed_at === undefined && user.email !== undefined && user.email !== "" && (
        <Alert tone="caution">{m.account_email_unconfirmed()}</Alert>
      )}
      {offer}
      <div className="grid grid-cols-1 items-start gap-6 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <div className="space-y-6">
          <SessionList api={api} session={session} />
          <IdentityList user={user} />
        </div>
        <div className="space-y-6">
          <SecurityLink user={user} />
          <EmailAddress user={user} />
          <AccountDetails user={user} />
        </div>
      </div>
    </div>
  );
}

function SecurityLink({ user }: { user: User }) {
  const isProtected = verifiedFactors(user).length > 0;
  return (
    <Card
      title={m.security_title()}
      description={m.account_security_text()}
      aside={
        <ButtonLink tone="secondary" size="sm" href="/app/security">
          {m.account_security_open()}
        </ButtonLink>
      }
    >
      <p className="flex items-center gap-2 text-sm">
        <ShieldCheck aria-hidden className={classNames("size-4 shrink-0", isProtected ? "text-success" : "text-soft")} />
        {isProtected ? m.account_two_step_on() : m.account_two_step_off()}
      </p>
    </Card>
  );
}

function AccountDetails({ user }: { user: User }) {
  return (
    <Card title={m.account_title()}>
      <dl className="grid gap-x-6 gap-y-3 text-sm sm:grid-cols-[auto_1fr]">
        {user.phone !== undefined && user.phone !== "" && <Detail name={m.account_phone()}>+{user.phone}</Detail>}
        <Detail name={m.account_created()}><ExactTime at={new Date(user.created_at)} /></Detail>
        <Detail name={m.account_id()}>
          <code className="text-[0.8125rem]">{user.id}</code>
        </Detail>
      </dl>
    </Card>
  );
}

function Detail({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="text-soft max-sm:-mb-2">{name}</dt>
      <dd className="[overflow-wrap:anywhere]">{children}</dd>
    </>
  );
}
