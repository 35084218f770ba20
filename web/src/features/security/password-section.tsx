import type { Session } from "@supabase/supabase-js";
import { KeyRound } from "lucide-react";
import { useState } from "react";
import { FormActions } from "../../components/form/form-actions";
import { PasswordChangeForm } from "../../components/form/password-change-form";
import { Button } from "../../components/ui/button";
import { useDisclosure } from "../../components/ui/use-disclosure";
import { beganWithMessage, usePasswordState } from "../../lib/auth/password-state";
import * as m from "../../paraglide/messages";
import { LoadFailure, Panel, Row, RowSkeleton, Section } from "./section";

/** The account's password: its change, or the first one. */
export function PasswordSection({ session }: { session: Session }) {
  const { data, error, refetch } = usePasswordState(session);
  const { isOpen, close, button } = useDisclosure();
  const [status, setStatus] = useState("");

  return (
    <Section title={m.password_section_title()} text={m.password_section_text()}>
      {error ? (
        <LoadFailure error={error} onRetry={() => void refetch()} />
      ) : data === undefined ? (
        <RowSkeleton />
      ) : (
        <Row
          Icon={KeyRound}
          title={data.is_set ? m.password_state_set() : m.password_state_none()}
          actions={
            <Button tone="secondary" size="sm" {...button}>
              {data.is_set ? m.password_change() : m.password_set()}
            </Button>
          }
        >
          <p role="status" className="text-sm font-medium text-success sm:pl-9">
            {status}
          </p>
          {isOpen && (
            <Panel>
              <PasswordChangeForm
                user={session.user}
                asksForCurrent={data.is_set && !beganWithMessage(session)}
                focusesFirst
                onSaved={() => {
                  setStatus(data.is_set ? m.password_changed() : m.password_was_set());
                  close();
                  void refetch();
                }}
              >
                {(isSubmitting) => (
                  <>
                    <p className="text-sm text-soft">{m.password_ends_sessions()}</p>
                    <FormActions submit={m.password_save()} pending={m.password_saving()} isSubmitting={isSubmitting} onCancel={close} />
                  </>
                )}
              </PasswordChangeForm>
            </Panel>
          )}
        </Row>
      )}
    </Section>
  );
}
