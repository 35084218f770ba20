import { lazy, type ReactNode, type Ref, Suspense, useState } from "react";
import { useAuth } from "../lib/auth/auth-context";
import { useConfig } from "../lib/config-context";
import { AppLink } from "../lib/navigation";
import { useOnline } from "../lib/use-online";
import * as m from "../paraglide/messages";
import { Mark } from "./mark";
import { ThemeSwitch } from "./theme-switch";
import { Alert } from "./ui/alert";
import { ButtonLink } from "./ui/button";

// Visitors do without it, and the first script has no room for it. Where it cannot be loaded, a
// link leads to the account.
const AccountMenu = lazy(() => import("./account-menu").catch(() => ({ default: AccountPageLink })));

/** The frame of every page: header, banners that concern all pages, content, footer. */
export function Layout({ children }: { children: ReactNode }) {
  const [alerts, setAlerts] = useState<Element | null>(null);
  return (
    <div className="flex min-h-dvh flex-col">
      <a
        href="#main"
        className="absolute top-2 left-2 z-10 -translate-y-20 rounded bg-accent px-4 py-2 text-on-accent focus:translate-y-0"
      >
        {m.skip_to_content()}
      </a>
      <header className="mx-auto flex h-18 w-full max-w-(--page) shrink-0 items-center justify-between gap-3 px-5 sm:px-8">
        <AppLink href="/" className="flex min-w-0 rounded py-2">
          <Mark />
        </AppLink>
        <div className="flex shrink-0 items-center gap-1 sm:gap-2">
          <ThemeSwitch />
          <AccountLink alerts={alerts} />
        </div>
      </header>
      <Banners ref={setAlerts} />
      <main id="main" tabIndex={-1} className="mx-auto flex w-full max-w-(--page) flex-1 flex-col px-5 sm:px-8">
        {children}
      </main>
      <Footer />
    </div>
  );
}

function AccountLink({ alerts }: { alerts: Element | null }) {
  const { user, isUndecided } = useAuth();
  // Holds the space until the session is known, so that nothing moves and nothing wrong shows.
  const space = <div className="h-9 w-26" />;
  if (isUndecided) return space;
  if (!user) {
    return (
      <ButtonLink tone="quiet" size="sm" className="-mr-3" href="/sign-in">
        {m.header_sign_in()}
      </ButtonLink>
    );
  }
  return (
    <Suspense fallback={space}>
      <AccountMenu alerts={alerts} />
    </Suspense>
  );
}

function AccountPageLink() {
  return (
    <ButtonLink tone="secondary" size="sm" className="min-w-26" href="/app">
      {m.header_account()}
    </ButtonLink>
  );
}

function Banners({ ref }: { ref: Ref<HTMLDivElement> }) {
  const { redirectOutcome, dismissRedirectOutcome, isRemembered, user } = useAuth();
  const isOnline = useOnline();
  return (
    <div ref={ref} className="mx-auto w-full max-w-(--page) space-y-3 px-5 pb-4 empty:hidden sm:px-8">
      {!isOnline && <Alert tone="caution">{m.banner_offline()}</Alert>}
      {redirectOutcome?.shownIn === "banner" && (
        <Alert
          tone={redirectOutcome.kind === "refused" ? "danger" : "info"}
          actions={
            <button type="button" onClick={dismissRedirectOutcome} className="-my-1 rounded py-1 font-medium underline sm:px-2">
              {m.banner_dismiss()}
            </button>
          }
        >
          <p className="font-medium">{redirectOutcome.message}</p>
          {redirectOutcome.detail !== null && <p className="mt-1">{redirectOutcome.detail}</p>}
          {redirectOutcome.kind === "other-browser" && (
            <AppLink href="/verify" onClick={dismissRedirectOutcome} className="mt-2 inline-block font-medium underline">
              {m.banner_sign_in_with_new_code()}
            </AppLink>
          )}
        </Alert>
      )}
      {!isRemembered && user && (
        <Alert tone="info">{m.banner_storage_blocked()}</Alert>
      )}
    </div>
  );
}

function Footer() {
  const { brand, development, mailbox } = useConfig();
  return (
    <footer className="mx-auto mt-16 flex w-full max-w-(--page) flex-wrap items-center justify-between gap-x-8 gap-y-2 px-5 py-8 text-sm text-soft sm:px-8">
      <p className="min-w-0 [overflow-wrap:anywhere]">{brand.name}</p>
      {development && (
        <p className="flex items-center gap-2">
          <span aria-hidden className="size-1.5 rounded-full bg-caution" />
          {m.footer_development_server()}
          {mailbox !== null && (
            <AppLink href="/mailbox" className="underline underline-offset-4 hover:text-ink">
              {m.footer_mailbox()}
            </AppLink>
          )}
        </p>
      )}
    </footer>
  );
}
