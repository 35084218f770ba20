import type { ReactNode } from "react";
import * as m from "../../paraglide/messages";
import { Button } from "./button";
import { Dialog } from "./dialog";

/** Asks for confirmation before something is lost, in the words of the action. */
export function ConfirmDialog({
  title,
  children,
  action,
  isPending,
  onConfirm,
  onClose,
}: {
  title: string;
  children: ReactNode;
  action: string;
  isPending: boolean;
  onConfirm: () => void;
  onClose: () => void;
}) {
  return (
    <Dialog
      title={title}
      onClose={onClose}
      actions={
        <>
          <Button tone="secondary" size="sm" onClick={onClose}>
            {m.cancel()}
          </Button>
          <Button tone="danger" size="sm" isPending={isPending} onClick={onConfirm}>
            {action}
          </Button>
        </>
      }
    >
      {children}
    </Dialog>
  );
}
