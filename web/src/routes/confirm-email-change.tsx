import { Button } from "../components/ui/button";
import { useAuth } from "../features/auth/auth-context";
import { FormPage } from "../features/auth/form-page";
import { FormSkeleton } from "../features/auth/guards";
import { AppLink } from "../lib/navigation";
import { usePageTitle } from "../lib/use-page-title";

/** Where the links of an e-mail change lead. What went wrong, if anything, is told above the page. */
export function ConfirmEmailChangePage() {
  const { user, loading, problem } = useAuth();
  usePageTitle("E-mail change");
  if (loading) return <FormSkeleton />;
  if (problem?.kind === "refused") {
    return (
      <FormPage title="The change was not confirmed" lead="Ask for the change again in your account; you get a new mail.">
        <Home isSignedIn={user !== null} />
      </FormPage>
    );
  }
  const pending = user?.new_email;
  if (problem?.kind === "note" || (pending !== undefined && pending !== "")) {
    return (
      <FormPage
        title="One more to go"
        lead={
          pending === undefined || pending === ""
            ? "Open the link in the mail we sent to your other address too."
            : `Your address becomes ${pending} once the links in both mails are opened.`
        }
      >
        <Home isSignedIn={user !== null} />
      </FormPage>
    );
  }
  return (
    <FormPage
      title={user ? "Your address is confirmed" : "Nearly there"}
      lead={user ? `From now on it is ${user.email ?? "the new one"}.` : "Sign in to see your new address."}
    >
      <Home isSignedIn={user !== null} />
    </FormPage>
  );
}

function Home({ isSignedIn }: { isSignedIn: boolean }) {
  return (
    <Button asChild>
      {isSignedIn ? <AppLink href="/app">Open your account</AppLink> : <AppLink href="/sign-in">Sign in</AppLink>}
    </Button>
  );
}
