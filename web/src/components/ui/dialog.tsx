import { type ReactNode, useId, useLayoutEffect, useRef } from "react";

/**
 * A modal dialog with a title, its content and its buttons. It is the browser's own, which holds
 * the focus and returns it. It is open as long as it is rendered.
 */
export function Dialog({
  title,
  actions,
  isBusy,
  onClose,
  children,
}: {
  title: string;
  actions: ReactNode;
  /** While something runs that cannot be taken back, Escape does not close the dialog. */
  isBusy?: boolean;
  onClose: () => void;
  children: ReactNode;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before the element is removed: a removed dialog does not return the focus.
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby={id}
      onCancel={(event) => isBusy && event.target === event.currentTarget && event.preventDefault()}
      // A browser cancels once more without asking.
      onClose={() => (isBusy ? dialog.current?.showModal() : onClose())}
      className="m-auto w-[min(26rem,calc(100vw-2rem))] rounded border border-line bg-surface p-6 text-ink shadow-card"
    >
      <h2 id={id} className="text-lg">
        {title}
      </h2>
      <div className="mt-2 text-sm text-soft">{children}</div>
      <div className="mt-6 flex flex-wrap justify-end gap-3">{actions}</div>
    </dialog>
  );
}
