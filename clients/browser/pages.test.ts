// Every page in light and dark, narrow and wide: nothing for axe to find, nothing that needs scrolling sideways, no error in the
// console. The pictures are kept for people to look at.
import type { Browser, BrowserContext } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { Portico } from "../harness/portico.ts";
import { expectAccessible, launch, picture, watch } from "./harness.ts";

let portico: Portico;
let browser: Browser;
let signedIn: Awaited<ReturnType<BrowserContext["storageState"]>>;

beforeAll(async () => {
  [portico, browser] = await Promise.all([Portico.start(), launch()]);
  const context = await browser.newContext();
  const { page } = await watch(context, portico.url);
  await page.goto(`${portico.url}/sign-up`);
  await page.getByLabel("E-mail").fill("ada@portico.test");
  await page.getByLabel("Password", { exact: true }).fill("correct horse battery");
  await page.getByRole("button", { name: "Create account" }).click();
  await page.getByRole("heading", { level: 1, name: /^Hello/ }).waitFor();
  signedIn = await context.storageState();
  await context.close();
});
afterAll(async () => {
  await browser.close();
  await portico.dispose();
});

const pages = [
  { path: "/", name: "landing", as: "visitor" },
  { path: "/sign-in", name: "sign-in", as: "visitor" },
  { path: "/sign-up", name: "sign-up", as: "visitor" },
  { path: "/forgot-password", name: "forgot-password", as: "visitor" },
  { path: "/verify", name: "verify", as: "visitor" },
  { path: "/no/such/place", name: "not-found", as: "visitor" },
  { path: "/mailbox", name: "mailbox", as: "visitor" },
  { path: "/app", name: "app", as: "person" },
  { path: "/update-password", name: "update-password", as: "person" },
] as const;

describe.each(pages)("$path", ({ path, name, as }) => {
  test.each([
    { colorScheme: "light", width: 1280 },
    { colorScheme: "light", width: 360 },
    { colorScheme: "dark", width: 1280 },
    { colorScheme: "dark", width: 360 },
  ] as const)("in $colorScheme at $width pixels", async ({ colorScheme, width }) => {
    const context = await browser.newContext({
      colorScheme,
      reducedMotion: "reduce",
      viewport: { width, height: 800 },
      ...(as === "person" ? { storageState: signedIn } : {}),
    });
    try {
      const { page, errors } = await watch(context, portico.url);
      await page.goto(`${portico.url}${path}`);
      await page.getByRole("heading", { level: 1 }).first().waitFor();
      await page.waitForLoadState("load");
      await page.waitForFunction(() => document.querySelector('[aria-busy="true"]') === null);
      await picture(page, `${name}-${colorScheme}-${width}`);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      expect(overflow).toBe(0);
      await expectAccessible(page);
      expect(errors).toEqual([]);
    } finally {
      await context.close();
    }
  });
});
