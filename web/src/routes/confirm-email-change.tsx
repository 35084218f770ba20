import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Button } from "../components/ui/button";
import { freshUserQuery } from "../features/account/fresh-user";
import { useAuth } from "../lib/auth/auth-context";
import { FormPage } from "../components/form-page";
import { FormSkeleton } from "../components/guards";
import { AppLink } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";

/** Where the links of an e-mail change lead, in whichever browser they are opened. */
export function ConfirmEmailChangePage() {
  const { user, loading, problem, client } = useAuth();
  // The session in this browser may still hold the person as they were before the link was opened.
  const { isLoading } = useQuery(freshUserQuery(client, user));
  usePageTitle("E-mail change");
  if (loading || isLoading) return <FormSkeleton />;

  const pending = user?.new_email ?? "";
  if (problem?.kind === "refused") {
    return (
      <Outcome title="The change was not confirmed" isSignedIn={user !== null}>
        {pending === ""
          ? "A link works once and for a limited time. If it was opened before, your address may be changed already."
          : `Ask for the change to ${pending} again in your account; you get new mails.`}
      </Outcome>
    );
  }
  if (problem?.kind === "change-half-done" || (pending !== "" && problem?.kind !== "change-done")) {
    return (
      <Outcome title="One more to go" isSignedIn={user !== null}>
        {pending === ""
          ? "This address is confirmed. Open the link in the mail to the other one too, then the change is made."
          : `Your address becomes ${pending} once the links in both mails are opened.`}
      </Outcome>
    );
  }
  if (user) {
    return (
      <Outcome title="Your address is confirmed" isSignedIn>
        From now on it is {user.email ?? "the new one"}.
      </Outcome>
    );
  }
  return problem?.kind === "change-done" ? (
    <Outcome title="Your address is changed" isSignedIn={false}>
      From now on, sign in with the new one.
    </Outcome>
  ) : (
    <Outcome title="Nearly there" isSignedIn={false}>
      Sign in to see your address.
    </Outcome>
  );
}

function Outcome({ title, children, isSignedIn }: { title: string; children: ReactNode; isSignedIn: boolean }) {
  return (
    <FormPage title={title} lead={children}>
      <Button asChild>
        {isSignedIn ? <AppLink href="/app">Open your account</AppLink> : <AppLink href="/sign-in">Sign in</AppLink>}
      </Button>
    </FormPage>
  );
}
