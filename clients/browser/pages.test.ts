// Every page in light and dark, narrow and wide: no violation found by axe, no horizontal
// scrolling, no error in the console. The screenshots are artefacts to look at.
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { Portico } from "../harness/portico.ts";
import { expectAccessible, launch, openContext, openWatchedPage, signUpAs, takeScreenshot } from "./harness.ts";

let portico: Portico;
let browser: Browser;
let signedIn: Awaited<ReturnType<BrowserContext["storageState"]>>;

beforeAll(async () => {
  const config = '[auth.email]\nmax_frequency = "0s"\n[auth.sms]\nenable_signup = true\nmax_frequency = "0s"\n';
  [portico, browser] = await Promise.all([Portico.start({ config }), launch()]);
  const context = await openContext(browser);
  const { page } = await openWatchedPage(context, portico.url);
  await signUpAs(page, portico.url, "ada@portico.test");
  signedIn = await context.storageState();
  await context.close();
});
afterAll(async () => {
  await browser.close();
  await portico.dispose();
});

interface PageState {
  path: string;
  name: string;
  as: "visitor" | "user";
  /** Brings the page into the state to show. */
  until?: (page: Page) => Promise<unknown>;
}

async function fillEmailChange(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Change email" }).click();
  await page.getByLabel("New email address").fill("grace@portico.test");
}

async function requestTextMessage(page: Page): Promise<void> {
  await page.getByLabel("Phone number").fill("+1 555 000 9999");
  await page.getByRole("button", { name: "Text me a code" }).click();
}

const pages: PageState[] = [
  { path: "/", name: "landing", as: "visitor" },
  { path: "/sign-in", name: "sign-in", as: "visitor" },
  { path: "/sign-up", name: "sign-up", as: "visitor" },
  { path: "/forgot-password", name: "forgot-password", as: "visitor" },
  { path: "/verify", name: "verify", as: "visitor" },
  { path: "/no/such/place", name: "not-found", as: "visitor" },
  { path: "/mailbox", name: "mailbox", as: "visitor" },
  { path: "/app", name: "app", as: "user" },
  { path: "/update-password", name: "update-password", as: "user" },
  { path: "/sign-in?with=phone", name: "sign-in-phone", as: "visitor", until: (page) => page.getByLabel("Phone number").waitFor() },
  {
    path: "/sign-in?with=phone",
    name: "sign-in-phone-wrong",
    as: "visitor",
    until: async (page) => {
      await page.getByLabel("Phone number").fill("079");
      await page.getByRole("button", { name: "Text me a code" }).click();
      await page.getByText("Start with the country code").waitFor();
    },
  },
  {
    path: "/sign-up?with=phone",
    name: "verify-phone",
    as: "visitor",
    until: async (page) => {
      await requestTextMessage(page);
      await page.getByRole("heading", { name: "Check your phone" }).waitFor();
    },
  },
  { path: "/app", name: "app-address-form", as: "user", until: fillEmailChange },
  {
    path: "/app",
    name: "app-address-wrong",
    as: "user",
    until: async (page) => {
      await fillEmailChange(page);
      await page.getByLabel("New email address").fill("ada@portico.test");
      await page.getByRole("button", { name: "Send confirmation" }).click();
      await page.getByText("This is already your email address.").waitFor();
    },
  },
  {
    path: "/app",
    name: "app-address-pending",
    as: "user",
    until: async (page) => {
      await fillEmailChange(page);
      await page.getByRole("button", { name: "Send confirmation" }).click();
      await page.getByText("Confirm grace@portico.test").waitFor();
    },
  },
  { path: "/confirm-email-change?code=spent", name: "address-changed", as: "visitor" },
  { path: "/confirm-email-change#message=Accepted&sb=", name: "address-half-changed", as: "visitor" },
  { path: "/app?code=spent", name: "other-browser", as: "visitor", until: (page) => page.getByText("in a different browser").waitFor() },
  { path: "/update-password?code=spent", name: "other-browser-recovery", as: "visitor" },
  // The pages above have sent emails and text messages.
  { path: "/mailbox", name: "mailbox-filled", as: "visitor", until: (page) => page.getByRole("list", { name: "Messages" }).waitFor() },
];

// A page is loaded for each width, on which its use depends, and not for each colour scheme, which
// also the system changes under a loaded page.
describe.each(pages)("$path, $name", ({ path, name, as, until }) => {
  test.each([
    { width: 1280, schemes: ["light", "dark"] },
    { width: 320, schemes: ["dark", "light"] },
  ] as const)("at $width pixels, in $schemes.0 and $schemes.1", async ({ width, schemes }) => {
    const context = await openContext(browser, {
      colorScheme: schemes[0],
      viewport: { width, height: 800 },
      ...(as === "user" ? { storageState: signedIn } : {}),
    });
    try {
      const { page, errors } = await openWatchedPage(context, portico.url);
      await page.goto(`${portico.url}${path}`);
      await page.getByRole("heading", { level: 1 }).first().waitFor();
      await page.waitForLoadState("load");
      await until?.(page);
      await page.waitForFunction(() => document.querySelector('[aria-busy="true"]') === null);
      for (const colorScheme of schemes) {
        await page.emulateMedia({ colorScheme });
        // Colours change by transitions, which are short and yet take a frame
        await page.waitForFunction(() => document.getAnimations().length === 0);
        await takeScreenshot(page, `${name}-${colorScheme}-${width}`);
        const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        expect(overflow).toBe(0);
        await expectAccessible(page);
      }
      // Browsers log the status of the page for unknown addresses.
      expect(errors.filter((line) => name !== "not-found" || !line.includes("404"))).toEqual([]);
    } finally {
      await context.close();
    }
  });
});
