// The account page follows sign-ins and sign-outs of other browsers at once.
import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { Portico, write } from "../harness/portico.ts";
import { expectAccessible, heading, openContext, openWatchedPage, password, resize, signUpAs, startSite, takeScreenshot } from "./harness.ts";

const site = startSite();

const IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1";

const sessionList = (page: Page) => page.getByRole("region", { name: "Active sessions" });
const rows = (page: Page) => sessionList(page).getByRole("listitem");
const signedOut = (page: Page): Promise<void> => heading(page, /^You have been signed out$/);

/** Waits until the page has joined its channel, for the `count`th time. */
function joined(page: Page, count = 1): Promise<void> {
  return new Promise((done) => {
    let joins = 0;
    page.on("websocket", (socket) => {
      socket.on("framereceived", ({ payload }) => {
        if (String(payload).includes('"phx_reply"') && String(payload).includes('"postgres_changes"') && ++joins === count) done();
      });
    });
  });
}

/** Opens the account page of a new account, and waits until it follows changes. */
async function openAccount(email: string): Promise<Page> {
  const { page } = await openWatchedPage(site.context, site.portico.url);
  const isLive = joined(page);
  await signUpAs(page, site.portico.url, email);
  await isLive;
  return page;
}

async function signInByForm(page: Page, email: string): Promise<void> {
  await page.goto(`${site.portico.url}/sign-in`);
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await heading(page, /^Hello/);
}

/** Signs in to the account with another browser, an iPhone, and returns its account page. */
async function signInElsewhere(email: string): Promise<Page> {
  const context = await openContext(site.browser, { userAgent: IPHONE });
  const { page } = await openWatchedPage(context, site.portico.url);
  const isLive = joined(page);
  await signInByForm(page, email);
  await isLive;
  return page;
}

test("a sign-in elsewhere appears at once, and ends at once when it is signed out here", async () => {
  const email = "live-1@portico.test";
  const page = await openAccount(email);
  await sessionList(page).getByText("1 session").waitFor();
  const other = await signInElsewhere(email);
  await sessionList(page).getByText("2 sessions").waitFor();
  await rows(page).filter({ hasText: "Safari on iPhone" }).getByText("New", { exact: true }).waitFor();
  await sessionList(page).getByRole("status").getByText("New sign-in: Safari on iPhone.").waitFor({ state: "attached" });
  await expectAccessible(page);
  for (const colorScheme of ["light", "dark"] as const) {
    for (const width of [360, 1440]) {
      await page.emulateMedia({ colorScheme });
      await resize(page, width, 900);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
      await takeScreenshot(page, `live-sessions-${colorScheme}-${String(width)}`);
    }
  }

  await rows(page).filter({ hasText: "Safari on iPhone" }).getByRole("button", { name: "Sign out Safari on iPhone" }).click();
  await signedOut(other);
  expect(await other.evaluate(() => localStorage.getItem("portico.session"))).toBeNull();
  await takeScreenshot(other, "live-sessions-signed-out");
  await expectAccessible(other);
  // The page that it leads to continues where this one was
  await other.getByRole("link", { name: "Sign in again" }).click();
  await heading(other, /^Welcome back$/);
  await sessionList(page).getByText("1 session").waitFor();
  await other.context().close();
});

test("a page whose session is ended elsewhere is signed out, with the other tabs of its browser", async () => {
  const email = "live-2@portico.test";
  const page = await openAccount(email);
  const { page: tab } = await openWatchedPage(site.context, site.portico.url);
  await tab.goto(`${site.portico.url}/app/security`);
  await heading(tab, /^Security$/);
  const other = await signInElsewhere(email);
  await sessionList(other).getByRole("button", { name: "Sign out all others" }).click();
  await other.getByRole("dialog").getByRole("button", { name: "Sign out all others" }).click();
  await signedOut(page);
  await signedOut(tab);
  expect(await page.evaluate(() => document.activeElement?.id)).toBe("main");
  await sessionList(other).getByText("1 session").waitFor();
  // The page of the account takes the place of the notice when another tab signs in
  expect(await page.title()).toMatch(/^Signed out · /);
  await signInByForm(tab, email);
  await heading(page, /^Hello/);
  await expect.poll(() => page.title()).toMatch(/^Your account · /);
  await other.context().close();
});

test("a session that SQL ends disappears, and other accounts learn nothing", async () => {
  const email = "live-3@portico.test";
  const page = await openAccount(email);
  const elsewhere = await openContext(site.browser);
  const { page: stranger } = await openWatchedPage(elsewhere, site.portico.url);
  const isLive = joined(stranger);
  const frames: string[] = [];
  stranger.on("websocket", (socket) => {
    socket.on("framereceived", ({ payload }) => frames.push(String(payload)));
  });
  await signUpAs(stranger, site.portico.url, "live-4@portico.test");
  await isLive;
  const other = await signInElsewhere(email);
  await sessionList(page).getByText("2 sessions").waitFor();
  const end = "delete from auth.sessions where user_id = (select id from auth.users where email = $1) and user_agent like $2";
  await sql(site.portico.status.DB_URL, end, [email, "%iPhone%"]);
  await sessionList(page).getByText("1 session").waitFor();
  await signedOut(other);
  // The stranger's own message is behind those of the other account
  await sql(site.portico.status.DB_URL, "insert into auth.sessions (id, user_id, created_at) select gen_random_uuid(), id, now() from auth.users where email = $1", ["live-4@portico.test"]);
  await sessionList(stranger).getByText("2 sessions").waitFor();
  expect(frames.filter((frame) => frame.includes("sessions_changed")).length).toBe(1);
  await Promise.all([elsewhere.close(), other.context().close()]);
});

test("what happens while the server restarts is shown after it", async () => {
  let own = await Portico.start();
  const context = await openContext(site.browser);
  try {
    const { page } = await openWatchedPage(context, own.url);
    const [first, second] = [joined(page), joined(page, 2)];
    await signUpAs(page, own.url, "live-5@portico.test");
    await first;
    await write(own.folder, "supabase/config.toml", `[api]\nport = ${new URL(own.url).port}\n[db]\nport = 0\n[inbucket]\nport = 0\n`);
    await own.stop();
    own = await Portico.start({ folder: own.folder });
    await sql(own.status.DB_URL, "insert into auth.sessions (id, user_id, created_at, user_agent) select gen_random_uuid(), id, now(), $1 from auth.users", [IPHONE]);
    await second;
    await sessionList(page).getByText("2 sessions").waitFor();
  } finally {
    await context.close();
    await own.dispose();
  }
});

test("without the realtime service the page opens no socket, and its list works", async () => {
  const own = await Portico.start({ config: "[realtime]\nenabled = false\n" });
  const context = await openContext(site.browser);
  try {
    const { page, errors } = await openWatchedPage(context, own.url);
    let sockets = 0;
    page.on("websocket", () => sockets++);
    await signUpAs(page, own.url, "live-6@portico.test");
    await sessionList(page).getByText("1 session").waitFor();
    await page.waitForLoadState("networkidle");
    expect([sockets, errors]).toEqual([0, []]);
  } finally {
    await context.close();
    await own.dispose();
  }
});
