import type { ComponentProps } from "react";
import { Link } from "wouter";
import { navigate } from "wouter/use-browser-location";
import type { PageAddress } from "./paths";

/** Goes to a page of this application. */
export function go(address: PageAddress, options?: { replace?: boolean }): void {
  navigate(address, options);
}

/** Returns the address of the current page, as the `next` parameter of another page takes it. */
export function currentAddress(): string {
  return window.location.pathname + window.location.search + window.location.hash;
}

/** A link to a page of this application, followed without a page load. */
export function AppLink(props: ComponentProps<"a"> & { href: PageAddress }) {
  return <Link {...props} />;
}
