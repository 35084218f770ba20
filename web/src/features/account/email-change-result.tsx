import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { FormPage } from "../../components/form-page";
import { FormSkeleton } from "../../components/page-skeletons";
import { ButtonLink } from "../../components/ui/button";
import { type AuthState, useAuth } from "../../lib/auth/auth-context";
import * as m from "../../paraglide/messages";
import { freshUserQuery } from "./fresh-user";

/** Shows what opening a link of an email change resulted in, in whichever browser that was. */
export function EmailChangeResult() {
  const auth = useAuth();
  // The session in this browser may still hold the user as before the link was opened, and learns
  // of the change a moment later: the page neither shows the address before nor begins anew then.
  const { data: fresh, isLoading } = useQuery({
    ...freshUserQuery(auth.client, auth.user),
    placeholderData: keepPreviousData,
  });
  if (auth.loading || isLoading) return <FormSkeleton />;
  const { title, lead } = resultText({ ...auth, user: auth.user && (fresh ?? auth.user) });
  return (
    <FormPage title={title} lead={lead}>
      {auth.user ? (
        <ButtonLink href="/app">{m.open_your_account()}</ButtonLink>
      ) : (
        <ButtonLink href="/sign-in">{m.sign_in()}</ButtonLink>
      )}
    </FormPage>
  );
}

function resultText({ user, redirectOutcome }: AuthState): { title: string; lead: string } {
  const pending = user?.new_email ?? "";
  const kind = redirectOutcome?.kind;
  if (kind === "refused") {
    return {
      title: m.email_change_refused_title(),
      lead: pending === "" ? m.email_change_refused() : m.email_change_refused_pending({ email: pending }),
    };
  }
  if (kind === "change-half-done" || (pending !== "" && kind !== "change-done")) {
    return {
      title: m.email_change_half_title(),
      lead: pending === "" ? m.email_change_half() : m.email_change_half_pending({ email: pending }),
    };
  }
  if (user) {
    const { email } = user;
    return {
      title: m.email_change_confirmed_title(),
      lead: email === undefined ? m.email_change_confirmed_unknown() : m.email_change_confirmed({ email }),
    };
  }
  return kind === "change-done"
    ? { title: m.email_change_changed_title(), lead: m.email_change_changed() }
    : { title: m.email_change_signed_out_title(), lead: m.email_change_signed_out() };
}
