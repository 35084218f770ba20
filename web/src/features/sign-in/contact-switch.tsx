import { useRouterState } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { AppLink } from "../../lib/navigation";
import { withNext } from "../../lib/next";

/**
 * The form for one of two kinds of address, and the way to the other. Both forms stay on the page once they were seen,
 * so that nothing typed is lost; which one shows is part of the address of the page.
 */
export function EmailOrPhone({ path, next, email, phone }: { path: string; next: string | null; email: ReactNode; phone: ReactNode }) {
  const isPhoneAsked = useIsPhoneAsked();
  const isPhoneShown = phone !== null && (email === null || isPhoneAsked);
  // The same places whatever the server offers, which may become known while somebody types already.
  return (
    <>
      <div hidden={isPhoneShown}>{email}</div>
      <div hidden={!isPhoneShown}>{phone}</div>
      {email !== null && phone !== null && (
        <p className="mt-5 text-center text-sm">
          <AppLink
            href={isPhoneAsked ? withNext(path, next) : withPhone(path, next)}
            className="font-medium underline underline-offset-4"
          >
            {isPhoneAsked ? "Use your e-mail address instead" : "Use your phone number instead"}
          </AppLink>
        </p>
      )}
    </>
  );
}

/** Whether the page's address asks for the form for phone numbers. */
export function useIsPhoneAsked(): boolean {
  return useRouterState({ select: ({ location }) => new URLSearchParams(location.searchStr).get("with") === "phone" });
}

/** The address of a page's form for phone numbers. */
export function withPhone(path: string, next: string | null): string {
  const address = withNext(path, next);
  return `${address}${address.includes("?") ? "&" : "?"}with=phone`;
}
