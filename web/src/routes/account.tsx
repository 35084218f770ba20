import type { Session } from "@supabase/supabase-js";
import { useMemo } from "react";
import { Alert } from "../components/ui/alert";
import { Button } from "../components/ui/button";
import { Card } from "../components/ui/card";
import { Skeleton } from "../components/ui/skeleton";
import { EmailAddress } from "../features/account/email-address";
import { Greeting } from "../features/account/greeting";
import { IdentityList } from "../features/account/identity-list";
import { SessionList } from "../features/account/session-list";
import { SignOutButton } from "../features/account/sign-out-button";
import { useAuth } from "../lib/auth/auth-context";
import { SignedInOnly } from "../components/guards";
import { openApi } from "../lib/api";
import { useConfig } from "../lib/config-context";
import { exactTime } from "../lib/dates";
import { AppLink } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";

export function AccountPage() {
  const { session } = useAuth();
  return <SignedInOnly skeleton={<OverviewSkeleton />}>{session && <Overview session={session} />}</SignedInOnly>;
}

function Overview({ session }: { session: Session }) {
  const { client } = useAuth();
  const config = useConfig();
  const api = useMemo(() => openApi(config, client), [config, client]);
  const { user } = session;
  usePageTitle("Your account");
  return (
    <div className="rise space-y-8 py-8 lg:py-12">
      <div className="flex flex-wrap items-center justify-between gap-6">
        <Greeting session={session} />
        <SignOutButton />
      </div>
      {user.email_confirmed_at === undefined && user.email !== undefined && user.email !== "" && (
        <Alert tone="caution">Your e-mail address is not confirmed yet.</Alert>
      )}
      <div className="grid items-start gap-6 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <SessionList api={api} userId={user.id} />
        <div className="space-y-6">
          <EmailAddress user={user} />
          <IdentityList user={user} />
          <AccountFacts session={session} />
        </div>
      </div>
    </div>
  );
}

function AccountFacts({ session }: { session: Session }) {
  const { user } = session;
  return (
    <Card
      title="Your account"
      aside={
        <Button tone="secondary" size="sm" asChild>
          <AppLink href="/update-password">Change password</AppLink>
        </Button>
      }
    >
      <dl className="grid gap-x-6 gap-y-3 text-sm sm:grid-cols-[auto_1fr]">
        {user.phone !== undefined && user.phone !== "" && <Fact name="Phone">+{user.phone}</Fact>}
        <Fact name="Made">{exactTime(new Date(user.created_at))}</Fact>
        <Fact name="Account id">
          <code className="text-[0.8125rem]">{user.id}</code>
        </Fact>
      </dl>
    </Card>
  );
}

function Fact({ name, children }: { name: string; children: React.ReactNode }) {
  return (
    <>
      <dt className="text-soft max-sm:-mb-2">{name}</dt>
      <dd className="[overflow-wrap:anywhere]">{children}</dd>
    </>
  );
}

function OverviewSkeleton() {
  return (
    <div aria-busy="true" className="space-y-8 py-8 lg:py-12">
      <div className="flex items-center gap-5">
        <Skeleton className="size-16 rounded-full" />
        <div className="flex-1 space-y-3">
          <Skeleton className="h-8 w-64 max-w-full" />
          <Skeleton className="h-4 w-80 max-w-full" />
        </div>
      </div>
      <div className="grid gap-6 lg:grid-cols-[minmax(0,3fr)_minmax(0,2fr)]">
        <Skeleton className="h-64 w-full" />
        <Skeleton className="h-64 w-full" />
      </div>
    </div>
  );
}
