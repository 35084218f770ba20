// The implicit flow in a browser, for an app of another origin: its cookie, and the two host names
// of one server.
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import type { Browser, BrowserContext } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";

import { Portico } from "../harness/portico.ts";
import { chooseGoogleAccount, launch } from "./harness.ts";

let app: Server;
let origin: string;
let portico: Portico;
let browser: Browser;
let context: BrowserContext;

beforeAll(async () => {
  // The page of an app. The tests read only its address.
  app = createServer((_request, response) => response.setHeader("content-type", "text/html").end("<title>App</title>"));
  await new Promise<void>((resolve) => app.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(app.address() as AddressInfo).port}`;
  [portico, browser] = await Promise.all([Portico.start({ config: `[auth]\nsite_url = "${origin}"\n` }), launch()]);
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
  await page.waitForURL(`${origin}/**`);
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
