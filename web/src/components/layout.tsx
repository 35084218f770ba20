import { type ReactNode } from "react";
import { useAuth } from "../lib/auth/auth-context";
import { useConfig } from "../lib/config-context";
import { AppLink } from "../lib/navigation";
import { useOnline } from "../lib/use-online";
import { Mark } from "./mark";
import { ThemeSwitch } from "./theme-switch";
import { Alert } from "./ui/alert";
import { Button } from "./ui/button";

/** The frame of every page: header, messages that concern all pages, content, footer. */
export function Layout({ children }: { children: ReactNode }) {
  return (
    <div className="flex min-h-dvh flex-col">
      <a
        href="#main"
        className="absolute top-2 left-2 z-10 -translate-y-20 rounded bg-accent px-4 py-2 text-on-accent focus:translate-y-0"
      >
        Skip to content
      </a>
      <header className="mx-auto flex h-18 w-full max-w-(--page) shrink-0 items-center justify-between gap-3 px-5 sm:px-8">
        <AppLink href="/" className="flex rounded py-2">
          <Mark />
        </AppLink>
        <div className="flex items-center gap-1 sm:gap-2">
          <ThemeSwitch />
          <AccountLink />
        </div>
      </header>
      <Messages />
      <main id="main" tabIndex={-1} className="mx-auto flex w-full max-w-(--page) flex-1 flex-col px-5 sm:px-8">
        {children}
      </main>
      <Footer />
    </div>
  );
}

function AccountLink() {
  const { user, isUndecided } = useAuth();
  // The place is kept until we know, so that nothing moves and nothing wrong shows.
  if (isUndecided) return <div className="h-9 w-22" />;
  return (
    <Button tone={user ? "secondary" : "quiet"} size="sm" className="min-w-22" asChild>
      {user ? <AppLink href="/app">Account</AppLink> : <AppLink href="/sign-in">Sign in</AppLink>}
    </Button>
  );
}

function Messages() {
  const { problem, dismissProblem, isRemembered, user } = useAuth();
  const isOnline = useOnline();
  return (
    <div className="mx-auto w-full max-w-(--page) space-y-3 px-5 pb-4 empty:hidden sm:px-8">
      {!isOnline && <Alert tone="caution">You are offline. What needs the server will work again when you are back.</Alert>}
      {problem?.toldBy === "banner" && (
        <Alert
          tone={problem.kind === "refused" ? "danger" : "info"}
          actions={
            <button type="button" onClick={dismissProblem} className="-my-1 rounded py-1 font-medium underline sm:px-2">
              Dismiss
            </button>
          }
        >
          <p className="font-medium">{problem.message}</p>
          {problem.detail !== null && <p className="mt-1">{problem.detail}</p>}
          {problem.kind === "other-browser" && (
            <AppLink href="/verify" onClick={dismissProblem} className="mt-2 inline-block font-medium underline">
              Sign in with a new code
            </AppLink>
          )}
        </Alert>
      )}
      {!isRemembered && user && (
        <Alert tone="info">This browser blocks storage, so you will be signed out when you close or reload this page.</Alert>
      )}
    </div>
  );
}

function Footer() {
  const { brand, development, mailbox } = useConfig();
  return (
    <footer className="mx-auto mt-16 flex w-full max-w-(--page) flex-wrap items-center justify-between gap-x-8 gap-y-2 px-5 py-8 text-sm text-soft sm:px-8">
      <p>{brand.name}</p>
      {development && (
        <p className="flex items-center gap-2">
          <span aria-hidden className="size-1.5 rounded-full bg-caution" />
          Development server
          {mailbox !== null && (
            <AppLink href="/mailbox" className="underline underline-offset-4 hover:text-ink">
              Mailbox
            </AppLink>
          )}
        </p>
      )}
    </footer>
  );
}
