import type { Factor } from "@supabase/supabase-js";
import { KeyRound, LifeBuoy, type LucideIcon, MessageSquareText, Smartphone } from "lucide-react";
import { type ReactNode, useEffect, useRef, useState } from "react";
import * as m from "../../paraglide/messages";
import { AuthenticatorStep } from "./authenticator-step";
import { PhoneStep } from "./phone-step";
import { RecoveryStep } from "./recovery-step";
import { SecurityKeyStep } from "./security-key-step";

interface Way {
  id: string;
  Icon: LucideIcon;
  /** The name in the list of the other ways. */
  label: string;
  step: ReactNode;
}

/** Confirms the session with one of the account's second factors, or with a recovery code. */
export function SecondFactor({ factors, onConfirmed }: { factors: Factor[]; onConfirmed: () => void }) {
  const ways = [...factors.map((factor) => wayOf(factor, factors, onConfirmed)), recoveryWay(onConfirmed)];
  const [chosenId, setChosenId] = useState<string | null>(null);
  const chosen = ways.find(({ id }) => id === chosenId) ?? ways[0];
  // The steps that were shown stay mounted, so that no input is lost.
  const [openedIds, setOpenedIds] = useState<string[]>([]);
  const steps = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (chosenId === null) return;
    const shown = Array.from(steps.current?.children ?? []).find((step) => !step.hasAttribute("hidden"));
    // The button that was pressed is gone.
    shown?.querySelector<HTMLElement>("input, button")?.focus();
  }, [chosenId]);

  function choose(id: string) {
    setOpenedIds((opened) => [...opened, ...[chosen?.id, id].filter((shown) => shown !== undefined)]);
    setChosenId(id);
  }

  return (
    <>
      <div ref={steps}>
        {ways
          .filter(({ id }) => id === chosen?.id || openedIds.includes(id))
          .map(({ id, step }) => (
            <div key={id} hidden={id !== chosen?.id}>
              {step}
            </div>
          ))}
      </div>
      <div className="mt-8 border-t border-line pt-5">
        <h2 className="text-sm font-medium text-soft">{m.second_factor_other_ways()}</h2>
        <ul className="mt-2 -ml-3">
          {ways
            .filter(({ id }) => id !== chosen?.id)
            .map(({ id, Icon, label }) => (
              <li key={id}>
                <button
                  type="button"
                  onClick={() => choose(id)}
                  className="flex min-h-11 w-full items-center gap-3 rounded px-3 py-1.5 text-left text-[0.9375rem] font-medium [overflow-wrap:anywhere] hover:bg-sunken"
                >
                  <Icon aria-hidden className="size-[1.15rem] shrink-0 text-soft" strokeWidth={1.75} />
                  {label}
                </button>
              </li>
            ))}
        </ul>
      </div>
    </>
  );
}

function wayOf(factor: Factor, all: Factor[], onConfirmed: () => void): Way {
  const { id, factor_type: type, friendly_name = "" } = factor;
  // The name tells several factors of one type apart.
  const isOnly = all.filter(({ factor_type }) => factor_type === type).length === 1;
  const named = (label: string) => (isOnly || friendly_name === "" ? label : `${label} · ${friendly_name}`);
  switch (type) {
    case "totp":
      return {
        id,
        Icon: Smartphone,
        label: named(m.second_factor_use_authenticator()),
        step: <AuthenticatorStep factorId={id} onConfirmed={onConfirmed} />,
      };
    case "phone":
      return {
        id,
        Icon: MessageSquareText,
        label: named(m.second_factor_use_phone()),
        step: <PhoneStep factorId={id} name={friendly_name} onConfirmed={onConfirmed} />,
      };
    case "webauthn":
      return {
        id,
        Icon: KeyRound,
        label: named(m.second_factor_use_key()),
        step: <SecurityKeyStep factorId={id} onConfirmed={onConfirmed} />,
      };
  }
}

function recoveryWay(onConfirmed: () => void): Way {
  const id = "recovery-code";
  return { id, Icon: LifeBuoy, label: m.second_factor_use_recovery_code(), step: <RecoveryStep onConfirmed={onConfirmed} /> };
}
