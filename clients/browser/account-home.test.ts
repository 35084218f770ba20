// The account pages in a browser, against the running program: long names, many sessions, the menu,
// failed sign-outs.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { breakSignOut, expectAccessible, heading, openWatchedPage, resize, signOutHere, signOutInMenu, signUpAs, startSite, takeScreenshot, type WatchedPage } from "./harness.ts";

const site = startSite();

const menuButton = (page: Page) => page.getByRole("banner").getByRole("button", { name: "Account" });

let count = 0;
/** Opens the account page of a new account. */
async function signUp(email = `home-${String(++count)}@portico.test`): Promise<WatchedPage & { email: string }> {
  const watched = await openWatchedPage(site.context, site.portico.url);
  await signUpAs(watched.page, site.portico.url, email);
  return { ...watched, email };
}

describe("fifty sessions", () => {
  test("are shortened to this device and four others, until all are wanted", async () => {
    const { page, email } = await signUp();
    await sql(
      site.portico.status.DB_URL,
      `insert into auth.sessions (id, user_id, created_at, updated_at, refreshed_at, aal, user_agent)
       select gen_random_uuid(), id, now() - number * interval '1 hour', now(), now() at time zone 'utc' - number * interval '1 hour', 'aal1',
              'Mozilla/5.0 (X11; Linux x86_64) Firefox/1' || number
         from auth.users, generate_series(1, 49) as number where email = $1`,
      [email],
    );
    await page.reload();
    const list = page.getByRole("region", { name: "Active sessions" });
    await list.getByText("50 sessions").waitFor();
    expect(await list.getByRole("listitem").count()).toBe(5);
    await list.getByRole("listitem").first().getByText("This device").waitFor();
    await list.getByRole("button", { name: "Show all 50" }).click();
    expect(await list.getByRole("listitem").count()).toBe(50);
    // The button is gone: the focus moves to the first session that it showed.
    expect(await page.evaluate(() => document.activeElement?.closest("li") !== null)).toBe(true);
  });
});

describe("the account menu", () => {
  test("opens by mouse, leads to its pages, and closes", async () => {
    const { page, email } = await signUp();
    await menuButton(page).click();
    const menu = page.getByRole("navigation", { name: "Account" });
    await menu.getByText(email).waitFor();
    await menu.getByRole("link", { name: "Change password" }).click();
    await page.waitForURL(`${site.portico.url}/app/security`);
    await heading(page, /^Security$/);
    expect(await menu.isVisible()).toBe(false);
    await menuButton(page).click();
    await page.getByRole("heading", { level: 1 }).click();
    await menu.waitFor({ state: "hidden" });
  });

  test("works by keyboard alone, up to the sign-out", async () => {
    const { page } = await signUp();
    const menu = page.getByRole("navigation", { name: "Account" });
    await menuButton(page).focus();
    await page.keyboard.press("Enter");
    await menu.waitFor();
    await page.keyboard.press("Tab");
    // Beside the text, the button has the user's picture or initial
    const focused = () => page.evaluate(() => Array.from(document.activeElement?.childNodes ?? []).filter(({ nodeType }) => nodeType === Node.TEXT_NODE).map(({ textContent }) => textContent).join(""));
    expect(await focused()).toBe("Open your account");
    await page.keyboard.press("Escape");
    await menu.waitFor({ state: "hidden" });
    await expect.poll(focused).toBe("Account");
    await page.keyboard.press("Space");
    await menu.waitFor();
    for (const label of ["Open your account", "Change password", "Sign out"]) {
      await page.keyboard.press("Tab");
      expect(await focused()).toBe(label);
    }
    await page.keyboard.press("Enter");
    await page.waitForURL(`${site.portico.url}/`);
    expect(await page.evaluate(() => localStorage.getItem("portico.session"))).toBeNull();
  });
});

test("a sign-out that fails has a row of its own, and can be done on this device anyway", async () => {
  const { page } = await signUp();
  await breakSignOut(page);
  const button = page.getByRole("main").getByRole("button", { name: "Sign out", exact: true });
  await button.click();
  const alert = page.getByRole("alert").filter({ hasText: "You are still signed in." });
  await alert.waitFor();
  const [row, greeting, pressed] = await Promise.all([alert.boundingBox(), page.getByRole("heading", { level: 1 }).boundingBox(), button.boundingBox()]);
  expect(row!.y).toBeGreaterThan(Math.max(greeting!.y + greeting!.height, pressed!.y + pressed!.height));
  expect(row!.width).toBeGreaterThan(pressed!.x + pressed!.width - greeting!.x);
  await signOutHere(page, site.portico.url);
});

test("a sign-out in the menu that fails is shown above the page, and can be done on this device anyway", async () => {
  const { page } = await signUp();
  await breakSignOut(page);
  await signOutInMenu(page);
  const alert = page.getByRole("alert").filter({ hasText: "You are still signed in." });
  await alert.waitFor();
  expect(await page.getByRole("main").getByRole("alert").count()).toBe(0);
  expect(await alert.evaluate((element) => element === document.activeElement)).toBe(true);
  await expectAccessible(page);
  await takeScreenshot(page, "sign-out-failed");
  await signOutHere(page, site.portico.url);
});

test("a long name and a long address fit into every width", async () => {
  const local = "wolfeschlegelsteinhausenbergerdorff.hubert-blaine.senior.of-philadelphia";
  const { page } = await signUp(`${local.slice(0, 60)}@a-very-long-subdomain.of-another-long-domain.portico.test`);
  const { data, error } = await site.portico.client({}, site.portico.status.SECRET_KEY).auth.admin.listUsers();
  expect(error).toBeNull();
  const user = data.users.find(({ email }) => email?.startsWith("wolfe"))!;
  const name = `Hubert Blaine ${"Wolfeschlegelsteinhausenbergerdorff".repeat(3)} Senior`;
  expect((await site.portico.client({}, site.portico.status.SECRET_KEY).auth.admin.updateUserById(user.id, { user_metadata: { full_name: name } })).error).toBeNull();
  // The client receives the name with the next session.
  await page.evaluate(() => {
    const session = JSON.parse(localStorage.getItem("portico.session")!) as Record<string, unknown>;
    localStorage.setItem("portico.session", JSON.stringify({ ...session, expires_at: 1 }));
  });
  for (const path of ["/app", "/app/security", "/"]) {
    await page.goto(`${site.portico.url}${path}`);
    await menuButton(page).waitFor();
    if (path === "/app") await heading(page, /^Hello, Hubert/);
    await page.waitForFunction(() => document.querySelector('[aria-busy="true"]') === null);
    await menuButton(page).click();
    for (const width of [320, 360, 1440]) {
      await resize(page, width, 800);
      expect(await page.evaluate(() => document.documentElement.scrollWidth), `${path} at ${String(width)}`).toBe(width);
      const spilled = await page.evaluate(() => {
        const isCut = (element: Element): boolean => getComputedStyle(element).overflow !== "visible";
        const isOutside = (element: Element): boolean => element.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
        return Array.from(document.querySelectorAll("#root *")).filter((element) => isOutside(element) && !isCut(element)).map(({ outerHTML }) => outerHTML.slice(0, 120));
      });
      expect(spilled, `${path} at ${String(width)}`).toEqual([]);
    }
  }
});
