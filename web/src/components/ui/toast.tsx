import * as RadixToast from "@radix-ui/react-toast";
import { X } from "lucide-react";
import { createContext, type ReactNode, useCallback, useContext, useState } from "react";
import * as m from "../../paraglide/messages";

type ShowToast = (text: string) => void;

const ToastContext = createContext<ShowToast | null>(null);

/**
 * Returns the function that shows a message for some seconds and announces it to screen readers.
 */
export function useToast(): ShowToast {
  const show = useContext(ToastContext);
  if (!show) throw new Error("useToast must be used within a ToastProvider");
  return show;
}

interface ShownToast {
  id: number;
  text: string;
}

/**
 * Provides `useToast`. A failure belongs into an `Alert` instead, which stays until it is dealt
 * with.
 */
export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<ShownToast[]>([]);
  const show = useCallback((text: string) => {
    setToasts((shown) => [...shown, { id: (shown.at(-1)?.id ?? 0) + 1, text }]);
  }, []);
  return (
    <ToastContext value={show}>
      <RadixToast.Provider label={m.toast_region()}>
        {children}
        {toasts.map(({ id, text }) => (
          <RadixToast.Root
            key={id}
            onOpenChange={(isOpen) => {
              if (!isOpen) setToasts((shown) => shown.filter((toast) => toast.id !== id));
            }}
            className="flex items-start gap-3 rounded border border-line bg-surface px-4 py-3 text-sm text-ink shadow-card"
          >
            <RadixToast.Description className="min-w-0 flex-1 [overflow-wrap:anywhere]">{text}</RadixToast.Description>
            <RadixToast.Close
              aria-label={m.toast_dismiss()}
              className="-my-1 -mr-2 grid size-8 shrink-0 place-items-center rounded text-soft hover:text-ink"
            >
              <X aria-hidden className="size-4" />
            </RadixToast.Close>
          </RadixToast.Root>
        ))}
        <RadixToast.Viewport className="fixed right-4 bottom-4 z-20 flex w-[min(22rem,calc(100vw-2rem))] flex-col gap-2" />
      </RadixToast.Provider>
    </ToastContext>
  );
}
