import { useRef, useState } from "react";
import { useAuth } from "../../lib/auth/auth-context";
import { verifiedFactors } from "../../lib/auth/factors";
import { errorCode } from "../../lib/errors";
import * as m from "../../paraglide/messages";
import { Button } from "../ui/button";
import { Dialog } from "../ui/dialog";
import { SecondFactor } from "./second-factor";

/**
 * Runs actions that need a session with a second factor: where the server asks for one, it is
 * confirmed in a dialog, and the action runs again. `dialog` has to be rendered.
 */
export function useStepUp() {
  const { user, client } = useAuth();
  const [isOpen, setIsOpen] = useState(false);
  const settle = useRef<(isConfirmed: boolean) => void>(() => undefined);

  function close(isConfirmed: boolean) {
    setIsOpen(false);
    settle.current(isConfirmed);
  }

  async function withSecondFactor<Result>(action: () => Promise<Result>): Promise<Result> {
    try {
      return await action();
    } catch (error) {
      if (errorCode(error) !== "insufficient_aal") throw error;
      if (!user || verifiedFactors(user).length === 0) {
        // The factor was added on another device. With the current user, the guard of the page
        // leads to it.
        await client.refreshSession();
        throw error;
      }
      setIsOpen(true);
      const isConfirmed = await new Promise<boolean>((resolve) => (settle.current = resolve));
      if (!isConfirmed) throw error;
      return action();
    }
  }

  const dialog = isOpen && user && (
    <Dialog
      title={m.second_factor_title()}
      onClose={() => close(false)}
      actions={
        <Button tone="secondary" size="sm" onClick={() => close(false)}>
          {m.cancel()}
        </Button>
      }
    >
      <SecondFactor factors={verifiedFactors(user)} onConfirmed={() => close(true)} />
    </Dialog>
  );
  return { withSecondFactor, dialog };
}
