import type { Factor, FactorType, User } from "@supabase/supabase-js";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { KeyRound, type LucideIcon, MessageSquareText, Smartphone } from "lucide-react";
import { type ReactNode, useRef, useState } from "react";
import { RelativeTime } from "../../components/relative-time";
import { RichText } from "../../components/rich-text";
import { useStepUp } from "../../components/second-factor/step-up";
import { Button } from "../../components/ui/button";
import { ConfirmDialog } from "../../components/ui/confirm-dialog";
import { useAuth } from "../../lib/auth/auth-context";
import { supportsPasskeys } from "../../lib/auth/passkey-support";
import { createRecoveryCodes, recoveryCodesKey, recoveryCodesQuery } from "../../lib/auth/recovery-codes";
import { useApi } from "../../lib/auth/use-api";
import { classNames } from "../../lib/class-names";
import { useConfig } from "../../lib/config-context";
import * as m from "../../paraglide/messages";
import { AuthenticatorSetup } from "./authenticator-setup";
import { factorsKey, factorsQuery } from "./factors";
import { PhoneSetup } from "./phone-setup";
import { RecoveryCodes } from "./recovery-codes";
import { ActionFailure, LoadFailure, Panel, Row, RowSkeleton, Section } from "./section";
import { SecurityKeySetup } from "./security-key-setup";

/** The types of factors, in the order of the page. */
const kinds: { type: FactorType; Icon: LucideIcon; title: () => string; text: () => string }[] = [
  { type: "totp", Icon: Smartphone, title: m.totp_title, text: m.totp_text },
  { type: "webauthn", Icon: KeyRound, title: m.security_key_title, text: m.security_key_text },
  { type: "phone", Icon: MessageSquareText, title: m.phone_factor_title, text: m.phone_factor_text },
];

/** The account's second factors and recovery codes. */
export function TwoStepSection({ user }: { user: User }) {
  const { client } = useAuth();
  const api = useApi();
  const queries = useQueryClient();
  const offered = useConfig().accounts.factors;
  const { withSecondFactor, dialog } = useStepUp();
  const { data: factors, error, refetch } = useQuery(factorsQuery(client));
  const verified = factors?.filter(({ status }) => status === "verified") ?? [];
  const [openType, setOpenType] = useState<FactorType | null>(null);
  const openButtons = useRef(new Map<FactorType, HTMLButtonElement>());
  const [newCodes, setNewCodes] = useState<string[] | null>(null);
  const [factorToRemove, setFactorToRemove] = useState<Factor | null>(null);
  const [status, setStatus] = useState("");

  const firstCodes = useMutation({
    mutationFn: async () => {
      const { remaining } = await queries.query({ ...recoveryCodesQuery(api), staleTime: 0 });
      return remaining === 0 ? createRecoveryCodes(api) : null;
    },
    onSuccess: async (codes) => {
      setNewCodes(codes);
      await queries.invalidateQueries({ queryKey: recoveryCodesKey });
    },
  });
  const remove = useMutation({
    mutationFn: ({ id }: Factor) =>
      withSecondFactor(async () => {
        const { error } = await client.mfa.unenroll({ factorId: id });
        if (error) throw error;
        // The token in use keeps its level until it is refreshed, and the stored user has the
        // factor still.
        await client.refreshSession();
      }),
    onSuccess: async () => {
      setStatus(m.factor_removed_status());
      await queries.invalidateQueries({ queryKey: factorsKey });
      await queries.invalidateQueries({ queryKey: recoveryCodesKey });
    },
    onSettled: () => setFactorToRemove(null),
  });

  async function finish() {
    setOpenType(null);
    setStatus(m.factor_added_status());
    await queries.invalidateQueries({ queryKey: factorsKey });
    firstCodes.mutate();
  }

  function close(type: FactorType) {
    setOpenType(null);
    openButtons.current.get(type)?.focus();
  }

  function setup(type: FactorType): ReactNode {
    const props = { factors: factors ?? [], onAdded: () => void finish(), onClosed: () => close(type) };
    switch (type) {
      case "totp":
        return <AuthenticatorSetup {...props} />;
      case "phone":
        return <PhoneSetup {...props} />;
      case "webauthn":
        return <SecurityKeySetup {...props} />;
    }
  }

  const isOffered = (type: FactorType) =>
    type === "totp" ? offered.totp : type === "phone" ? offered.phone : offered.securityKey && supportsPasskeys();
  const isOn = verified.length > 0;

  return (
    <Section
      title={m.two_step_title()}
      status={status}
      text={
        <>
          <p>{m.two_step_text()}</p>
          {factors && !isOn && <p className="mt-2">{m.two_step_ends_sessions()}</p>}
        </>
      }
      badge={
        factors && (
          <span
            className={classNames(
              "rounded-full px-2 py-0.5 text-xs font-medium",
              isOn ? "bg-accent-wash text-accent-strong" : "bg-sunken text-soft",
            )}
          >
            {isOn ? m.two_step_on() : m.two_step_off()}
          </span>
        )
      }
    >
      <ActionFailure error={remove.error ?? firstCodes.error} />
      {error && <LoadFailure error={error} onRetry={() => void refetch()} />}
      {!error && factors === undefined && <RowSkeleton />}
      {factors &&
        kinds.map(({ type, Icon, title, text }) => {
          const own = verified.filter(({ factor_type }) => factor_type === type);
          if (!isOffered(type) && own.length === 0) return null;
          const isOpen = openType === type;
          return (
            <Row
              key={type}
              Icon={Icon}
              title={title()}
              text={text()}
              actions={
                isOffered(type) && (
                  <Button
                    ref={(button) => {
                      if (button) openButtons.current.set(type, button);
                    }}
                    tone="secondary"
                    size="sm"
                    aria-expanded={isOpen}
                    aria-label={`${own.length > 0 ? m.two_step_add_another() : m.two_step_set_up()}: ${title()}`}
                    onClick={() => {
                      setStatus("");
                      setOpenType(isOpen ? null : type);
                    }}
                  >
                    {own.length > 0 ? m.two_step_add_another() : m.two_step_set_up()}
                  </Button>
                )
              }
            >
              {own.length > 0 && (
                <ul className="mt-3 divide-y divide-line border-t border-line sm:ml-9">
                  {own.map((factor) => (
                    <FactorRow key={factor.id} factor={factor} onRemove={() => setFactorToRemove(factor)} />
                  ))}
                </ul>
              )}
              {isOpen && <Panel>{setup(type)}</Panel>}
            </Row>
          );
        })}
      {isOn && <RecoveryCodes user={user} codes={newCodes} onCodes={setNewCodes} />}
      {factorToRemove && (
        <ConfirmDialog
          title={m.factor_remove_title({ name: shownName(factorToRemove) })}
          action={m.security_remove()}
          isPending={remove.isPending}
          onClose={() => setFactorToRemove(null)}
          onConfirm={() => remove.mutate(factorToRemove)}
        >
          {verified.length === 1 ? m.factor_remove_last_text() : m.factor_remove_text()}
        </ConfirmDialog>
      )}
      {dialog}
    </Section>
  );
}

function FactorRow({ factor, onRemove }: { factor: Factor; onRemove: () => void }) {
  const name = shownName(factor);
  return (
    <li className="flex items-center gap-x-4 py-2.5 last:pb-0">
      <div className="min-w-0 flex-1 text-sm">
        <p className="[overflow-wrap:anywhere]">{name}</p>
        <p className="text-soft">
          <RichText
            message={m.security_added}
            inputs={{}}
            elements={{ time: () => <RelativeTime at={new Date(factor.created_at)} /> }}
          />
        </p>
      </div>
      <Button tone="quiet" size="sm" className="-mr-3 shrink-0" aria-label={m.security_remove_named({ name })} onClick={onRemove}>
        {m.security_remove()}
      </Button>
    </li>
  );
}

function shownName({ friendly_name = "", factor_type }: Factor): string {
  if (friendly_name !== "") return friendly_name;
  return kinds.find(({ type }) => type === factor_type)?.title() ?? "";
}
