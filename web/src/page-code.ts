import type { ComponentType } from "react";
import { type LazyPage, lazyPage } from "./lib/lazy-page";
import type { PagePath } from "./lib/paths";

/**
 * Loads the code of each page but the landing page, which is in the first script.
 * `build/page-files.ts` reads the paths and modules from these lines.
 */
const pageCode: Record<Exclude<PagePath, "/">, () => Promise<{ default: ComponentType }>> = {
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

/** Every page but the landing page, by path. */
export const pages: ({ path: string } & LazyPage)[] = Object.entries(pageCode).map(([path, load]) => ({
  path,
  ...lazyPage(load),
}));
