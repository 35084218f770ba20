import { useEffect, useLayoutEffect, useRef } from "react";

/** Starts each page at its top, and returns to where the user was after "back" and "forward". */
export function useScrollRestoration(address: string): void {
  const positions = useRef(new Map<string, number>());
  const shown = useRef(address);
  const isTraversal = useRef(false);

  useEffect(() => {
    // The browser restores the position before the page of the address is shown. It may do so after
    // a reload.
    const setMode = (mode: ScrollRestoration) => () => (window.history.scrollRestoration = mode);
    const listeners = {
      pageshow: setMode("manual"),
      pagehide: setMode("auto"),
      popstate: () => (isTraversal.current = true),
      scroll: () => positions.current.set(shown.current, window.scrollY),
    };
    listeners.pageshow();
    for (const [event, listener] of Object.entries(listeners)) window.addEventListener(event, listener);
    return () => {
      for (const [event, listener] of Object.entries(listeners)) window.removeEventListener(event, listener);
      listeners.pagehide();
    };
  }, []);

  useLayoutEffect(() => {
    if (shown.current === address) return;
    shown.current = address;
    window.scrollTo(0, (isTraversal.current ? positions.current.get(address) : undefined) ?? 0);
    isTraversal.current = false;
  }, [address]);
}
