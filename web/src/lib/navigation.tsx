import type { ComponentProps, MouseEvent } from "react";

type Go = (href: string, options?: { replace?: boolean }) => void;

// Until the router is loaded, the landing page says what going somewhere means (see app.tsx).
let current: Go = (href) => window.location.assign(href);

export function setNavigator(go: Go): void {
  current = go;
}

/** Goes to a page of this application. */
export const go: Go = (href, options) => current(href, options);

/** A link within the application: a true anchor, followed without loading the page anew. */
export function AppLink({ href, onClick, ...rest }: ComponentProps<"a"> & { href: string }) {
  function follow(event: MouseEvent<HTMLAnchorElement>) {
    onClick?.(event);
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(href);
  }
  return <a href={href} onClick={follow} {...rest} />;
}
