import { type ReactNode, useEffect, useId, useRef } from "react";
import * as m from "../../paraglide/messages";
import { Button } from "./button";

/**
 * Asks for confirmation before something is lost, in the words of the action. The browser's own dialog holds the focus
 * and returns it.
 */
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
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onClose={onClose}
      className="m-auto w-[min(26rem,calc(100vw-2rem))] rounded border border-line bg-surface p-6 text-ink shadow-card"
    >
      <h2 id={id} className="text-lg">
        {title}
      </h2>
      <div className="mt-2 text-sm text-soft">{children}</div>
      <div className="mt-6 flex flex-wrap justify-end gap-3">
        <Button tone="secondary" size="sm" onClick={onClose}>
          {m.cancel()}
        </Button>
        <Button tone="danger" size="sm" isPending={isPending} onClick={onConfirm}>
          {action}
        </Button>
      </div>
    </dialog>
  );
}
