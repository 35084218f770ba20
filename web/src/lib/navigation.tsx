import { type ComponentProps, useCallback } from "react";
import { Link } from "wouter";
import { navigate } from "wouter/use-browser-location";
import type { PageAddress } from "./paths";
import { useShownAddress } from "./shown-address";

/** Goes to a page of this application. */
export function go(address: PageAddress): void {
  navigate(address);
}

/**
 * Returns a function that replaces the page that calls it by another. It does nothing once the user
 * has followed a link: a page may be shown, or learn of its session, after the browser has left its
 * address.
 */
export function useRedirect(): (address: PageAddress) => void {
  const { path } = useShownAddress();
  return useCallback(
    (address) => {
      if (window.location.pathname === path) navigate(address, { replace: true });
    },
    [path],
  );
}

/** Returns the address of the current page, as the `next` parameter of another page takes it. */
export function currentAddress(): string {
  return window.location.pathname + window.location.search + window.location.hash;
}

/** A link to a page of this application, followed without a page load. */
export function AppLink(props: ComponentProps<"a"> & { href: PageAddress }) {
  return <Link {...props} />;
}
