// A real browser in front of the running program.
import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join, resolve } from "node:path";

import { source as axeSource } from "axe-core";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { expect } from "vitest";

const artefacts = resolve(import.meta.dirname, "../artefacts");

const executable = (): string => {
  const found = [process.env["CHROMIUM_BIN"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(
    (path) => path !== undefined && existsSync(path),
  );
  if (found === undefined) throw new Error("Chromium is missing: run `make setup`");
  return found;
};

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: executable(),
    // A container has neither a sandbox for root nor much shared memory; nothing here needs the network beyond this machine.
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** What a page did that nobody asserted on: errors that nobody caught. */
export interface Watched {
  page: Page;
  /** Lines of the console of kind `error`, and uncaught errors. */
  errors: string[];
  /** Bodies sent to the collector of analytics events, in order. */
  events: { name: string; properties: Record<string, unknown> }[];
  /** Method and path of every request to the API, in order. */
  requests: string[];
}

export async function watch(context: BrowserContext, origin: string): Promise<Watched> {
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const watched: Watched = { page, errors: [], events: [], requests: [] };
  page.on("console", (message) => {
    if (message.type() === "error") watched.errors.push(`${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => watched.errors.push(String(error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin) return;
    if (url.pathname === "/portico/v1/events") {
      const body = request.postData();
      if (body !== null) watched.events.push(...(JSON.parse(body) as { events: Watched["events"] }).events);
    }
    if (url.pathname.startsWith("/auth/v1") || url.pathname.startsWith("/portico/v1")) {
      watched.requests.push(`${request.method()} ${url.pathname}${url.search}`);
    }
  });
  return watched;
}

/** Fails with what axe finds on the page as it is now. */
export async function expectAccessible(page: Page): Promise<void> {
  // By evaluation and not by a script element, which the page's content security policy would refuse.
  await page.evaluate(axeSource);
  const violations = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: (options: object) => Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }> } };
    const result = await axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    return result.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} (${failureSummary})`).join("; ")}`);
  });
  expect(violations).toEqual([]);
}

/** Keeps a picture of the page for people to look at. */
export async function picture(page: Page, name: string): Promise<void> {
  await mkdir(artefacts, { recursive: true });
  await page.screenshot({ path: join(artefacts, `${name}.png`), fullPage: true });
}

/** On the emulated Google's page: the first person of the list. */
export async function chooseGooglePerson(page: Page): Promise<void> {
  await page.waitForURL(/\/portico\/google\//);
  await page.locator("button[name=account], a[data-account], button[data-account]").first().click();
}
