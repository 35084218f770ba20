import { lazyPage } from "./lib/lazy-page";
import { pages } from "./page-code";

/** The part of the application that all pages share. */
export const sharedPages = lazyPage(() => import("./pages"));

/**
 * Requests the code of the page at an address, which may have none. A failure is reported when the
 * page is shown.
 */
export function preloadPage(pathname: string): Promise<unknown> {
  if (pathname === "/") return Promise.resolve();
  const page = pages.find(({ path }) => path === pathname);
  return Promise.allSettled([sharedPages.preload(), page?.preload()]);
}
