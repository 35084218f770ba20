// The implicit flow in a browser, for an app of another origin: its cookie, and the two host names
// of one server.

import type { Browser, BrowserContext } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { Portico } from "../harness/portico.ts";
import { chooseGoogleAccount, launch, serveApplicationPage, type ApplicationPage } from "./harness.ts";

let app: ApplicationPage;
let portico: Portico;
let browser: Browser;
let context: BrowserContext;

beforeAll(async () => {
  // The tests read only the address of its page.
  app = await serveApplicationPage();
  [portico, browser] = await Promise.all([Portico.start({ config: `[auth]\nsite_url = "${app.origin}"\n` }), launch()]);
});
afterAll(async () => {
  await browser.close();
  await portico.dispose();
  app.close();
});
beforeEach(async () => {
  context = await browser.newContext();
});
afterEach(() => context.close());

test.each(["127.0.0.1", "localhost"])("a flow that begins at %s returns to the app with a session", async (name) => {
  const api = new URL(portico.url);
  api.hostname = name;
  const page = await context.newPage();
  await page.goto(new URL("/auth/v1/authorize?provider=google", api).href);
  await chooseGoogleAccount(page);
  await page.waitForURL(`${app.origin}/**`);
  const { hash, search } = new URL(page.url());
  expect(search).toBe("");
  expect(new URLSearchParams(hash.slice(1)).get("access_token")).toMatch(/^ey/);
});

test("another browser cannot finish the flow", async () => {
  const page = await context.newPage();
  const back = page.waitForRequest((request) => new URL(request.url()).pathname === "/auth/v1/callback");
  await page.route("**/auth/v1/callback?**", (route) => route.abort());
  await page.goto(new URL("/auth/v1/authorize?provider=google", portico.url).href);
  await chooseGoogleAccount(page).catch(() => undefined);
  const callback = (await back).url();
  const other = await browser.newContext();
  try {
    const elsewhere = await other.newPage();
    await elsewhere.goto(callback);
    const { hash, searchParams } = new URL(elsewhere.url());
    expect([hash, searchParams.get("error_code")]).toEqual(["", "bad_oauth_state"]);
  } finally {
    await other.close();
  }
});
