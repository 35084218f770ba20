import type { Session } from "@supabase/supabase-js";
import { useState } from "react";
import { PasswordChangeForm } from "../../components/form/password-change-form";
import { FormPage } from "../../components/form-page";
import { FormSkeleton } from "../../components/page-skeletons";
import { Alert } from "../../components/ui/alert";
import { Button, ButtonLink } from "../../components/ui/button";
import { useAuth } from "../../lib/auth/auth-context";
import { beganWithMessage, usePasswordState } from "../../lib/auth/password-state";
import { describeError } from "../../lib/errors";
import * as m from "../../paraglide/messages";

/**
 * Sets a new password: after a recovery at once, else with the current one where the account has
 * one.
 */
export function NewPassword({ session }: { session: Session }) {
  const { isRecovering } = useAuth();
  const { user } = session;
  const [isDone, setIsDone] = useState(false);
  const needsNoCurrent = isRecovering || beganWithMessage(session);
  const state = usePasswordState(session, { enabled: !needsNoCurrent });
  if (isDone) return <PasswordChanged />;
  if (!needsNoCurrent && state.isPending) return <FormSkeleton />;
  return (
    <FormPage
      title={isRecovering ? m.new_password_title() : m.change_password_title()}
      lead={user.email ? m.new_password_for({ email: user.email }) : undefined}
    >
      {state.error ? (
        <Alert
          tone="danger"
          actions={
            <button type="button" className="font-medium underline" onClick={() => void state.refetch()}>
              {m.security_load_again()}
            </button>
          }
        >
          {m.security_not_loaded({ reason: describeError(state.error).message })}
        </Alert>
      ) : (
        <PasswordChangeForm
          user={user}
          asksForCurrent={state.data?.is_set === true}
          onSaved={() => setIsDone(true)}
        >
          {(isSubmitting) => (
            <Button type="submit" className="w-full" isPending={isSubmitting}>
              {isSubmitting ? m.password_saving() : m.password_save()}
            </Button>
          )}
        </PasswordChangeForm>
      )}
    </FormPage>
  );
}

function PasswordChanged() {
  return (
    <FormPage title={m.new_password_done_title()} lead={m.new_password_done_lead()}>
      <ButtonLink href="/app">{m.open_your_account()}</ButtonLink>
      <p role="status" className="sr-only">
        {m.new_password_done_status()}
      </p>
    </FormPage>
  );
}

/** The page of a recovery link that did not sign the user in. */
export function RecoveryLinkExpired() {
  const { redirectOutcome } = useAuth();
  const isOtherBrowser = redirectOutcome?.kind === "other-browser";
  return (
    <FormPage
      title={isOtherBrowser ? m.recovery_link_other_browser_title() : m.recovery_link_expired_title()}
      lead={isOtherBrowser ? m.recovery_link_other_browser_lead() : m.recovery_link_expired_lead()}
    >
      <div className="flex flex-wrap gap-3">
        <ButtonLink href="/forgot-password">{m.recovery_link_resend()}</ButtonLink>
        <ButtonLink tone="secondary" href="/sign-in">
          {m.sign_in()}
        </ButtonLink>
      </div>
    </FormPage>
  );
}
