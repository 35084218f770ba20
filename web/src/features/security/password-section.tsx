import type { Session } from "@supabase/supabase-js";
import { useQuery } from "@tanstack/react-query";
import { KeyRound } from "lucide-react";
import { useRef, useState } from "react";
import { Button } from "../../components/ui/button";
import { readAccessToken } from "../../lib/access-token";
import { useApi } from "../../lib/auth/use-api";
import { z } from "../../lib/zod";
import * as m from "../../paraglide/messages";
import { PasswordForm } from "./password-form";
import { LoadFailure, Panel, Row, RowSkeleton, Section } from "./section";

const passwordSchema = z.object({ is_set: z.boolean() });

/** The methods of a session that began with a message: its user may have forgotten the password. */
const messageMethods = new Set(["otp", "magiclink", "recovery"]);

/** The account's password: its change, or the first one. */
export function PasswordSection({ session }: { session: Session }) {
  const api = useApi();
  const { data, error, refetch } = useQuery({
    queryKey: ["password", session.user.id],
    queryFn: ({ signal }) => api.get("/auth/v1/user/password", passwordSchema, signal),
  });
  const [isOpen, setIsOpen] = useState(false);
  const [status, setStatus] = useState("");
  const openButton = useRef<HTMLButtonElement>(null);
  const beganWithMessage = readAccessToken(session.access_token).methods.some(({ method }) => messageMethods.has(method));

  function close() {
    setIsOpen(false);
    openButton.current?.focus();
  }

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
            <Button
              ref={openButton}
              tone="secondary"
              size="sm"
              aria-expanded={isOpen}
              onClick={() => (isOpen ? close() : setIsOpen(true))}
            >
              {data.is_set ? m.password_change() : m.password_set()}
            </Button>
          }
        >
          <p role="status" className="text-sm font-medium text-success sm:pl-9">
            {status}
          </p>
          {isOpen && (
            <Panel>
              <PasswordForm
                user={session.user}
                asksForCurrent={data.is_set && !beganWithMessage}
                onClosed={close}
                onSaved={() => {
                  setStatus(data.is_set ? m.password_changed() : m.password_was_set());
                  close();
                  void refetch();
                }}
              />
            </Panel>
          )}
        </Row>
      )}
    </Section>
  );
}
