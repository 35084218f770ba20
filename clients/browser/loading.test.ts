// How pages load: the static frame stays until the page is there, scripts load in parallel, and
// failures stay in the frame.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { heading, openWatchedPage, signUpAs, startSite, type WatchedPage } from "./harness.ts";

const brand = '[web.brand]\nname = "Harbour & Sons"\naccent = "#fde047"\n';
const site = startSite({ files: { "supabase/portico.toml": brand } });

const open = (): Promise<WatchedPage> => openWatchedPage(site.context, site.portico.url);

let count = 0;
async function signUp(page: Page): Promise<void> {
  await signUpAs(page, site.portico.url, `loading-${String(++count)}@portico.test`);
}

/** Records, at each change of the document, whether the frame and the page's content are there. */
async function recordContent(page: Page): Promise<() => Promise<string[]>> {
  await page.addInitScript(() => {
    const states: string[] = [];
    Object.assign(window, { states });
    const look = (): void => {
      const root = document.getElementById("root");
      // Until the parser has reached the end of the frame, it is incomplete.
      if (!root || document.readyState === "loading") return;
      const state = [root.querySelector("header a") ? "header" : "", root.querySelector("main > *") ? "main" : "", root.querySelector("footer p") ? "footer" : ""].join(" ");
      if (states.at(-1) !== state) states.push(state);
    };
    new MutationObserver(look).observe(document, { childList: true, subtree: true });
    document.addEventListener("readystatechange", look);
  });
  return () => page.evaluate(() => (window as unknown as { states: string[] }).states);
}

describe("a cold load", () => {
  test("of /sign-in keeps the frame and its content from the first paint on", async () => {
    const { page, errors } = await open();
    const states = await recordContent(page);
    await page.goto(`${site.portico.url}/sign-in`);
    await heading(page, /Welcome back/);
    await page.getByLabel("Password", { exact: true }).waitFor();
    expect(await states()).toEqual(["header main footer"]);
    expect(errors).toEqual([]);
  });

  test("of /app keeps the frame and its content from the first paint on", async () => {
    const { page, errors } = await open();
    await signUp(page);
    const states = await recordContent(page);
    await page.goto(`${site.portico.url}/app`);
    await heading(page, /^Hello/);
    expect(await states()).toEqual(["header main footer"]);
    expect(errors).toEqual([]);
  });

  test.each(["/sign-in", "/app"])("of %s requests every script of the page at once", async (path) => {
    const { page } = await open();
    if (path === "/app") await signUp(page);
    // Scripts that were loaded before would come from the cache, in no time.
    const devtools = await page.context().newCDPSession(page);
    await devtools.send("Network.setCacheDisabled", { cacheDisabled: true });
    await page.goto(`${site.portico.url}${path}`);
    await heading(page, /Welcome back|^Hello/);
    const late = await page.evaluate(() => {
      const scripts = performance.getEntriesByType("resource").filter(({ name }) => /\/assets\/.*\.js$/.test(name)) as PerformanceResourceTiming[];
      const entry = scripts.find(({ name }) => name.includes("/index-"))!;
      return scripts.filter(({ startTime }) => startTime > entry.responseEnd).map(({ name }) => new URL(name).pathname);
    });
    // The form can be filled in before the authentication client is there, and the account be read
    // before the client of realtime is.
    const follows = path === "/sign-in" ? "GoTrueClient" : "phx_join";
    const texts = await Promise.all(late.map(async (name) => (await fetch(`${site.portico.url}${name}`)).text()));
    expect(late.filter((_, at) => !texts[at]!.includes(follows))).toEqual([]);
  });

  test("shows the brand before any script runs", async () => {
    const plain = await site.browser.newContext({ javaScriptEnabled: false });
    try {
      const page = await plain.newPage();
      await page.goto(`${site.portico.url}/sign-in`);
      expect(await page.title()).toBe("Harbour & Sons");
      expect(await page.locator("header").innerText()).toBe("Harbour & Sons");
    } finally {
      await plain.close();
    }
  });
});

test("text on the brand's colour, and in it, is readable in light and dark", async () => {
  for (const colorScheme of ["light", "dark"] as const) {
    const themed = await site.browser.newContext({ colorScheme });
    try {
      const page = await themed.newPage();
      await page.goto(`${site.portico.url}/sign-in`);
      const button = page.getByRole("button", { name: "Sign in", exact: true });
      await button.waitFor();
      const colours = await button.evaluate((element) => [getComputedStyle(element).backgroundColor, getComputedStyle(element).color]);
      expect(colours).toEqual(["rgb(253, 224, 71)", "rgb(0, 0, 0)"]);
      const accent = await page.locator("header svg").first().evaluate((element) => getComputedStyle(element).color);
      expect(accent === "rgb(253, 224, 71)").toBe(colorScheme === "dark");
    } finally {
      await themed.close();
    }
  }
});

describe("addresses", () => {
  const get = (path: string): Promise<Response> => fetch(`${site.portico.url}${path}`, { redirect: "manual", headers: { accept: "text/html" } });

  test("without a page have the status 404 and the page for it", async () => {
    const { page } = await open();
    const response = await page.goto(`${site.portico.url}/nope`);
    expect(response?.status()).toBe(404);
    await heading(page, /Page not found/);
    expect((await page.goto(`${site.portico.url}/sign-in`))?.status()).toBe(200);
  });

  test("that browsers and password managers know exist", async () => {
    const change = await get("/.well-known/change-password");
    expect([change.status, change.headers.get("location")]).toEqual([302, "/app/security"]);
    const icon = await get("/favicon.ico");
    expect([icon.status, icon.headers.get("content-type")]).toEqual([200, "image/x-icon"]);
    const manifest = (await (await get("/site.webmanifest")).json()) as Record<string, unknown>;
    expect(manifest).toMatchObject({ name: "Harbour & Sons", theme_color: "#fde047", start_url: "/app" });
  });
});

test("without a connection, a link to a page that is not loaded stays in the frame, and can be tried again", async () => {
  const { page } = await open();
  await page.goto(`${site.portico.url}/sign-in`);
  await heading(page, /Welcome back/);
  await site.context.setOffline(true);
  await page.getByRole("link", { name: "Forgot password?" }).click();
  await heading(page, /This page couldn’t be loaded/);
  expect(await page.locator("header").innerText()).toContain("Harbour & Sons");
  await page.getByRole("button", { name: "Try again" }).click();
  await page.getByText("We can’t reach the server").waitFor();
  await site.context.setOffline(false);
  await page.getByRole("button", { name: "Try again" }).click();
  await heading(page, /Forgot your password/);
});

test("a script that fails keeps the frame, and can be tried again", async () => {
  const { page } = await open();
  await page.goto(`${site.portico.url}/sign-in`);
  await heading(page, /Welcome back/);
  const script = "**/assets/forgot-password-*.js";
  await page.route(script, (route) => route.abort());
  await page.getByRole("link", { name: "Forgot password?" }).click();
  await heading(page, /This page couldn’t be loaded/);
  expect(await page.locator("header").innerText()).toContain("Harbour & Sons");
  await page.unroute(script);
  await page.getByRole("button", { name: "Try again" }).click();
  await heading(page, /Forgot your password/);
});
