// A real browser in front of the running program.
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";

import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest";

import { Portico, type ProjectFiles } from "../harness/portico.ts";

const artefacts = resolve(import.meta.dirname, "../artefacts");

// The headless shell is Chromium without a user interface. A whole browser draws one for each
// context, which takes about as much of the processor as the pages themselves.
const executable = (): string => {
  const found = [process.env["CHROMIUM_BIN"], "/usr/bin/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(
    (path) => path !== undefined && existsSync(path),
  );
  if (found === undefined) throw new Error("Chromium is missing: run `make setup`");
  return found;
};

export function launch(): Promise<Browser> {
  return chromium.launch({
    executablePath: executable(),
    // A container has neither a sandbox for root nor much shared memory; nothing here needs the
    // network beyond this machine.
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/**
 * Opens a context of the browser, without animations: each of their frames takes the processor's
 * time, and a click waits until its target has stopped moving.
 */
export const openContext = (browser: Browser, options: BrowserContextOptions = {}): Promise<BrowserContext> => browser.newContext({ reducedMotion: "reduce", ...options });

/**
 * Changes the size of the window. The browser first lays the page out at the new width with the
 * rules of the old one: returns when those of the new one apply.
 */
export async function resize(page: Page, width: number, height: number): Promise<void> {
  await page.setViewportSize({ width, height });
  await page.waitForFunction((expected) => window.matchMedia(`(width: ${String(expected)}px)`).matches, width);
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
}

/** The running program and the browser of one test file. */
export interface Site {
  portico: Portico;
  /** The program's origin by the host name at which browsers permit passkeys. */
  localhost: string;
  browser: Browser;
  /** A new one for each test. */
  context: BrowserContext;
}

/** Starts the program with a project and a browser, for all tests of the file that calls this. */
export function startSite(project: ProjectFiles = {}): Site {
  // Filled before the first test runs
  const site = {} as Site;
  beforeAll(async () => {
    [site.portico, site.browser] = await Promise.all([Portico.start(project), launch()]);
    site.localhost = site.portico.url.replace("127.0.0.1", "localhost");
  });
  afterAll(async () => {
    await site.browser.close();
    await site.portico.dispose();
  });
  beforeEach(async () => {
    site.context = await openContext(site.browser);
  });
  afterEach(() => site.context.close());
  return site;
}

/** A server of one page, on an origin of its own. */
export interface ApplicationPage {
  origin: string;
  close: () => void;
}

/** Serves the page of an application, and the script that it may load from `/page.js`. */
export async function serveApplicationPage(html = "<title>App</title>", script = ""): Promise<ApplicationPage> {
  const server = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.writeHead(200, { "content-type": isScript ? "text/javascript" : "text/html; charset=utf-8" }).end(isScript ? script : html);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    origin: `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** A page, and what it does beside what a test asserts. */
export interface WatchedPage {
  page: Page;
  /** Error messages of the console, and uncaught errors. */
  errors: string[];
  /** Bodies sent to the collector of analytics events, in order. */
  events: { name: string; properties: Record<string, unknown> }[];
  /** Method and path of every request to the API, in order. */
  requests: string[];
}

export async function openWatchedPage(context: BrowserContext, origin: string): Promise<WatchedPage> {
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const watched: WatchedPage = { page, errors: [], events: [], requests: [] };
  page.on("console", (message) => {
    if (message.type() === "error") watched.errors.push(`${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => watched.errors.push(String(error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin) return;
    if (url.pathname === "/portico/v1/events") {
      const body = request.postData();
      if (body !== null) watched.events.push(...(JSON.parse(body) as { events: WatchedPage["events"] }).events);
    }
    if (url.pathname.startsWith("/auth/v1") || url.pathname.startsWith("/portico/v1")) {
      watched.requests.push(`${request.method()} ${url.pathname}${url.search}`);
    }
  });
  return watched;
}

/** The password of every account that a test signs up. */
export const password = "correct horse battery";

/** Waits for the page with this title. */
export const heading = (page: Page, name: RegExp): Promise<void> => page.getByRole("heading", { level: 1, name }).waitFor();

/**
 * Signs up by the API in the browser of `page`, and opens the account page of the web application
 * at `origin` with the session where the application stores it.
 */
export async function signUpAs(page: Page, origin: string, email: string): Promise<void> {
  // A document of the origin in which no code of the application runs
  await page.goto(`${origin}/portico/config.json`);
  await page.evaluate(async (account) => {
    const { anonKey } = JSON.parse(document.body.innerText) as { anonKey: string };
    const response = await fetch("/auth/v1/signup", { method: "POST", headers: { apikey: anonKey, "content-type": "application/json" }, body: JSON.stringify(account) });
    const session = (await response.json()) as { access_token?: string };
    if (session.access_token === undefined) throw new Error(`The sign-up begins no session: ${JSON.stringify(session)}`);
    localStorage.setItem("portico.session", JSON.stringify(session));
  }, { email, password });
  await page.goto(`${origin}/app`);
  await heading(page, /^Hello/);
}

/** Signs up on the page of the web application at `origin`, and waits for the account page. */
export async function signUpByForm(page: Page, origin: string, email: string): Promise<void> {
  await page.goto(`${origin}/sign-up`);
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Create account" }).click();
  await heading(page, /^Hello/);
}

/** Signs out on the account page. */
export async function signOutOf(page: Page, origin: string): Promise<void> {
  await page.goto(`${origin}/app`);
  await heading(page, /^Hello/);
  await page.getByRole("main").getByRole("button", { name: "Sign out", exact: true }).click();
  await page.waitForURL(`${origin}/`);
}

/** Makes every sign-out of the page fail on the server. */
export async function breakSignOut(page: Page): Promise<void> {
  await page.route("**/auth/v1/logout**", (route) => route.fulfill({ status: 500, contentType: "application/json", body: '{"code":"unexpected_failure","message":"no"}' }));
}

/** Signs out by the menu in the header. */
export async function signOutInMenu(page: Page): Promise<void> {
  const header = page.getByRole("banner");
  await header.getByRole("button", { name: "Account" }).click();
  await header.getByRole("button", { name: "Sign out", exact: true }).click();
}

/** Waits for the alert of a failed sign-out, and completes it on this device. */
export async function signOutHere(page: Page, origin: string): Promise<void> {
  const alert = page.getByRole("alert").filter({ hasText: "You are still signed in." });
  await alert.getByRole("button", { name: "Sign out on this device anyway" }).click();
  await page.waitForURL(`${origin}/`);
  await page.getByRole("button", { name: "Continue with Google" }).waitFor();
  expect(await page.evaluate(() => localStorage.getItem("portico.session"))).toBeNull();
}

// The package's own entry is axe with its comments and long names, which the browser would compile
// for each page: that took longer than the check.
const axeSource = readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Defines `axe` in the page, once for each document. */
async function loadAxe(page: Page): Promise<void> {
  if (await page.evaluate(() => "axe" in window)) return;
  // By the debugger's protocol: the page's content security policy blocks a script element. The
  // session ends with the page, since its end would remove the page's virtual authenticator.
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: await axeSource });
}

/** Fails with the violations that axe finds on the page. */
export async function expectAccessible(page: Page): Promise<void> {
  await loadAxe(page);
  const violations = await page.evaluate(async () => {
    const { axe } = window as unknown as { axe: { run: (options: object) => Promise<{ violations: { id: string; nodes: { html: string; failureSummary: string }[] }[] }> } };
    const result = await axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] });
    return result.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} (${failureSummary})`).join("; ")}`);
  });
  expect(violations).toEqual([]);
}

/** Stores a screenshot of the page among the artefacts. */
export async function takeScreenshot(page: Page, name: string): Promise<void> {
  await mkdir(artefacts, { recursive: true });
  await page.screenshot({ path: join(artefacts, `${name}.png`), fullPage: true });
}

/** Chooses the first account on the emulated Google's page. */
export async function chooseGoogleAccount(page: Page): Promise<void> {
  await page.waitForURL(/\/portico\/google\//);
  await page.locator("button[name=account], a[data-account], button[data-account]").first().click();
}
