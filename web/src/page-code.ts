import type { ComponentType } from "react";
import type { PagePath } from "./lib/paths";

/**
 * Loads the code of each page but the landing page, which is in the first script. The pages are default exports, as
 * `React.lazy` expects them.
 */
export const pageCode: Record<Exclude<PagePath, "/">, () => Promise<{ default: ComponentType }>> = {
  "/app": () => import("./routes/account"),
  "/app/security": () => import("./routes/security"),
  "/confirm-email-change": () => import("./routes/confirm-email-change"),
  "/forgot-password": () => import("./routes/forgot-password"),
  "/mailbox": () => import("./routes/mailbox"),
  "/mfa": () => import("./routes/second-factor"),
  "/sign-in": () => import("./routes/sign-in"),
  "/sign-up": () => import("./routes/sign-up"),
  "/update-password": () => import("./routes/update-password"),
  "/verify": () => import("./routes/verify"),
};

export const loadPages = () => import("./pages");

/** Requests the code of a page in parallel with its configuration. A failed request is repeated and reported later. */
export function preloadPage(pathname: string): Promise<unknown> {
  if (pathname === "/") return Promise.resolve();
  // The lookup is for any address, also one that has no page.
  const load = Object.entries(pageCode).find(([path]) => path === pathname)?.[1];
  return Promise.allSettled([loadPages(), load?.()]);
}
