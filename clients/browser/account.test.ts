// The web application in a browser, against the running program.
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { codeIn, emailTo, linkIn } from "../harness/emails.ts";
import { Portico } from "../harness/portico.ts";
import { breakSignOut, chooseGoogleAccount, heading, openContext, openWatchedPage, password, signUpAs, signUpByForm, startSite, type WatchedPage } from "./harness.ts";

const site = startSite();

let count = 0;
const newEmail = (): string => `visitor-${++count}@portico.test`;

const open = async (path: string): Promise<WatchedPage> => {
  const watched = await openWatchedPage(site.context, site.portico.url);
  await watched.page.goto(`${site.portico.url}${path}`);
  return watched;
};

async function signUp(page: Page, email = newEmail()): Promise<string> {
  await signUpAs(page, site.portico.url, email);
  return email;
}

const stored = (page: Page): Promise<Record<string, unknown> | null> =>
  page.evaluate(() => JSON.parse(localStorage.getItem("portico.session") ?? "null") as Record<string, unknown> | null);

describe("a visitor signs in with a Google account", () => {
  test("and arrives at /app, without the code in the address", async () => {
    const { page, requests, events, errors } = await open("/");
    const authorize = page.waitForRequest((request) => new URL(request.url()).pathname === "/auth/v1/authorize");
    await page.getByRole("button", { name: "Continue with Google" }).click();
    const parameters = new URL((await authorize).url()).searchParams;
    expect(parameters.get("provider")).toBe("google");
    expect(parameters.get("redirect_to")).toBe(`${site.portico.url}/app`);
    expect(parameters.get("code_challenge_method")).toBe("s256");
    await chooseGoogleAccount(page);
    await heading(page, /^Hello/);
    expect(page.url()).toBe(`${site.portico.url}/app`);
    expect(requests.some((request) => request.startsWith("POST /auth/v1/token?grant_type=pkce"))).toBe(true);
    await expect.poll(() => events.filter(({ name }) => name === "sign_in")).toEqual([expect.objectContaining({ properties: { method: "google" } })]);
    expect(errors).toEqual([]);
  });

  test("a cancelled sign-in shows an alert and leaves no session", async () => {
    const { page } = await open("/sign-in");
    await page.getByRole("button", { name: "Continue with Google" }).click();
    await page.getByText("Make it fail").click();
    await page.getByRole("button", { name: /decline/i }).click();
    await page.getByRole("alert").waitFor();
    expect(new URL(page.url()).search).toBe("");
    expect(await stored(page)).toBeNull();
  });

  test("the sign-in leads to the page that was requested", async () => {
    const { page } = await open("/app?tab=sessions");
    await page.waitForURL(/\/sign-in\?next=/);
    await page.getByRole("button", { name: "Continue with Google" }).click();
    await chooseGoogleAccount(page);
    await heading(page, /^Hello/);
    await page.waitForURL(`${site.portico.url}/app?tab=sessions`);
  });
});

describe("signing in", () => {
  test("with email and password is reported once, as email", async () => {
    const { page, events } = await open("/");
    const email = newEmail();
    await signUpByForm(page, site.portico.url, email);
    await page.getByRole("main").getByText(email).first().waitFor();
    await expect.poll(() => events.filter(({ name }) => name === "sign_in")).toEqual([expect.objectContaining({ properties: { method: "email" } })]);
    await page.reload();
    await heading(page, /^Hello/);
    await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    expect(events.filter(({ name }) => name === "sign_in")).toHaveLength(1);
  });

  test("with a wrong password shows an alert and keeps the input", async () => {
    const { page } = await open("/sign-in");
    await page.getByLabel("Email").fill("nobody@portico.test");
    await page.getByLabel("Password", { exact: true }).fill("wrong password");
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("alert").waitFor();
    expect(await page.getByRole("alert").innerText()).toContain("Wrong email or password");
    expect(await page.getByLabel("Email").inputValue()).toBe("nobody@portico.test");
  });
});

describe("signing out", () => {
  test("reports the event, then sends the request, then removes the session", async () => {
    const { page } = await open("/");
    await signUp(page);
    const order: string[] = [];
    page.on("request", (request) => {
      const { pathname } = new URL(request.url());
      if (pathname === "/portico/v1/events" && request.postData()?.includes("sign_out")) order.push("event");
      if (pathname === "/auth/v1/logout") order.push("logout");
    });
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForURL(`${site.portico.url}/`);
    expect(order).toEqual(["event", "logout"]);
    expect(await stored(page)).toBeNull();
    await page.getByRole("button", { name: "Continue with Google" }).waitFor();
  });

  test("that fails is logged and shown, and keeps the session", async () => {
    const { page, errors } = await open("/");
    await signUp(page);
    await breakSignOut(page);
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.getByText("You are still signed in.").waitFor();
    expect(errors.some((line) => line.startsWith("Error signing out"))).toBe(true);
    expect(await stored(page)).not.toBeNull();
  });
});

describe("the session", () => {
  test("is stored with tokens, expiry, type and user", async () => {
    const { page } = await open("/");
    const email = newEmail();
    await signUpByForm(page, site.portico.url, email);
    expect(await stored(page)).toMatchObject({
      access_token: expect.any(String) as unknown,
      refresh_token: expect.any(String) as unknown,
      expires_at: expect.any(Number) as unknown,
      token_type: "bearer",
      user: { email },
    });
  });

  test("of one tab is the session of all tabs", async () => {
    const first = await open("/");
    const second = await open("/");
    await second.page.getByRole("button", { name: "Continue with Google" }).waitFor();
    await signUp(first.page);
    await second.page.getByRole("link", { name: "Open your account" }).waitFor();
    await second.page.goto(`${site.portico.url}/app`);
    await heading(second.page, /^Hello/);
    await first.page.getByRole("button", { name: "Sign out", exact: true }).click();
    await heading(second.page, /You have been signed out/);
  });
});

test("no screen flashes the wrong state", async () => {
  const { page } = await open("/");
  await signUp(page);
  // Records every text that the page shows, from its start.
  await page.addInitScript(() => {
    const seen: string[] = [];
    Object.assign(window, { seen });
    new MutationObserver(() => seen.push(document.body.innerText)).observe(document, { childList: true, subtree: true });
  });
  await page.goto(`${site.portico.url}/app`);
  await heading(page, /^Hello/);
  const seen = await page.evaluate(() => (window as unknown as { seen: string[] }).seen.join("\n"));
  expect(seen).not.toContain("Welcome back");
  await page.goto(`${site.portico.url}/`);
  await page.getByRole("link", { name: "Open your account" }).waitFor();
  const onLanding = await page.evaluate(() => (window as unknown as { seen: string[] }).seen.join("\n"));
  expect(onLanding).not.toContain("Continue with Google");
});

test("entries under earlier session keys are deleted at start-up", async () => {
  const { page } = await open("/");
  await page.evaluate(() => {
    localStorage.setItem("supabase.auth.token", "old");
    localStorage.setItem("sb-abcdefghijklmnop-auth-token", "old");
    localStorage.setItem("sb-abcdefghijklmnop-auth-token-code-verifier", "old");
    localStorage.setItem("theme-of-another-program", "kept");
  });
  await page.reload();
  await page.getByRole("button", { name: "Continue with Google" }).waitFor();
  const keys = await page.evaluate(() => Object.keys(localStorage));
  expect(keys).toContain("theme-of-another-program");
  expect(keys.filter((key) => key.startsWith("sb-") || key === "supabase.auth.token")).toEqual([]);
});

describe("when the session cannot be refreshed", () => {
  const expire = (page: Page): Promise<void> =>
    page.evaluate(() => {
      const session = JSON.parse(localStorage.getItem("portico.session")!) as Record<string, unknown>;
      localStorage.setItem("portico.session", JSON.stringify({ ...session, expires_at: 1, expires_in: 0 }));
    });

  test("permanently, it is removed, and the page links to the sign-in", async () => {
    const { page } = await open("/");
    await signUp(page);
    await page.route("**/auth/v1/token?grant_type=refresh_token", (route) =>
      route.fulfill({ status: 400, contentType: "application/json", body: '{"code":"refresh_token_not_found","message":"Invalid Refresh Token: Refresh Token Not Found"}' }),
    );
    await expire(page);
    await page.goto(`${site.portico.url}/app?tab=sessions`);
    await heading(page, /You have been signed out/);
    expect(await page.title()).toMatch(/^Signed out · /);
    expect(await stored(page)).toBeNull();
    const back = await page.getByRole("link", { name: "Sign in again" }).getAttribute("href");
    expect(decodeURIComponent(back ?? "")).toContain("/app?tab=sessions");
  });

  test("temporarily, the refresh is retried until it succeeds", async () => {
    const { page } = await open("/");
    await signUp(page);
    let attempts = 0;
    await page.route("**/auth/v1/token?grant_type=refresh_token", async (route) => {
      attempts += 1;
      if (attempts <= 2) await route.fulfill({ status: 503, body: "" });
      else await route.continue();
    });
    await expire(page);
    await page.goto(`${site.portico.url}/app`);
    await heading(page, /^Hello/);
    expect(await page.title()).toMatch(/^Your account · /);
    expect(attempts).toBeGreaterThan(2);
  });
});

test("calls carry the public key before sign-in, and the user's token after it", async () => {
  const { page } = await open("/");
  const headers: Record<string, string>[] = [];
  page.on("request", (request) => {
    if (new URL(request.url()).pathname.startsWith("/auth/v1/")) headers.push(request.headers());
  });
  await page.goto(`${site.portico.url}/sign-in`);
  await heading(page, /Welcome back/);
  await expect.poll(() => headers.length).toBeGreaterThan(0);
  expect(headers.every((sent) => sent["apikey"] === site.portico.status.PUBLISHABLE_KEY)).toBe(true);
  await signUpByForm(page, site.portico.url, newEmail());
  const session = await stored(page);
  await expect.poll(() => headers.some((sent) => sent["authorization"] === `Bearer ${String(session?.["access_token"])}`)).toBe(true);
});

test("an error in the address is shown and removed from it", async () => {
  const { page } = await open("/app#error=access_denied&error_code=otp_expired&error_description=Email+link+is+invalid+or+has+expired");
  await page.getByText("Email link is invalid or has expired").waitFor();
  expect(page.url()).not.toContain("error");
});

describe("a failure on the server", () => {
  const sentence = "Something went wrong on our side. Try again later. Request ID: ";

  test("names its request, also after another one has failed", async () => {
    const { page } = await open("/");
    const fail = (path: string, id: string) =>
      page.route(`**${path}**`, (route) =>
        route.fulfill({ status: 500, contentType: "application/json", headers: { "X-Request-Id": id }, body: '{"code":"unexpected_failure","message":"relation x"}' }),
      );
    await signUp(page);
    await fail("/auth/v1/sessions", "0198c0de-1");
    await page.reload();
    const list = page.getByRole("region", { name: "Active sessions" });
    await list.getByText(`${sentence}0198c0de-1`).waitFor();
    await fail("/auth/v1/logout", "0198c0de-2");
    await page.getByRole("main").getByRole("button", { name: "Sign out", exact: true }).click();
    await page.getByText(`You are still signed in. ${sentence}0198c0de-2`).waitFor();
    expect(await list.getByRole("alert").innerText()).toContain(`${sentence}0198c0de-1`);
    expect(await page.getByText("relation x").count()).toBe(0);
  });

  test("that led back here names its request, and is removed from the address", async () => {
    const { page } = await open("/sign-in?error=server_error&error_code=unexpected_failure&error_description=Call+555-0100&error_id=0198c0de-3");
    await page.getByRole("alert").getByText(`${sentence}0198c0de-3`).waitFor();
    expect(page.url()).toBe(`${site.portico.url}/sign-in`);
    expect(await page.getByText("555-0100").count()).toBe(0);
  });
});

test("the account page ends the other sessions", async () => {
  const { page } = await open("/");
  const email = await signUp(page);
  const elsewhere = site.portico.client();
  expect((await elsewhere.auth.signInWithPassword({ email, password })).error).toBeNull();
  await page.reload();
  await heading(page, /^Hello/);
  await page.getByRole("button", { name: /sign out.*others|end.*others/i }).first().click();
  const dialog = page.getByRole("dialog");
  if (await dialog.isVisible()) await dialog.getByRole("button", { name: /sign out|end/i }).first().click();
  await expect.poll(async () => (await elsewhere.auth.refreshSession()).error?.status ?? 0).toBeGreaterThanOrEqual(400);
});

test("an unknown address shows a page with a link to the start page", async () => {
  const { page } = await open("/no/such/place");
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.getByRole("link", { name: /home/i }).first().click();
  await page.waitForURL(`${site.portico.url}/`);
});

test("sign-in leads only to addresses of its own origin", async () => {
  const { page } = await open("/sign-in?next=https://elsewhere.test/");
  await page.getByRole("button", { name: "Continue with Google" }).click();
  await chooseGoogleAccount(page);
  await heading(page, /^Hello/);
  expect(new URL(page.url()).origin).toBe(site.portico.url);
});

describe("with confirmation by email", () => {
  let confirming: Portico;
  beforeAll(async () => {
    confirming = await Portico.start({ config: "[auth.email]\nenable_confirmations = true\n" });
  });
  afterAll(() => confirming.dispose());

  const signUpUnconfirmed = async (): Promise<{ page: Page; email: string }> => {
    const { page } = await openWatchedPage(site.context, confirming.url);
    const email = newEmail();
    await page.goto(`${confirming.url}/sign-up`);
    await page.getByLabel("Email").fill(email);
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Create account" }).click();
    await heading(page, /Check your inbox/);
    return { page, email };
  };

  test("a new user enters the code from the email", async () => {
    const { page, email } = await signUpUnconfirmed();
    const code = codeIn(await emailTo(confirming.status.MAILPIT_URL, email));
    await page.getByLabel(/code/i).fill(code);
    await heading(page, /^Hello/);
  });

  test("a new user opens the link in the same browser", async () => {
    const { page, email } = await signUpUnconfirmed();
    await page.goto(linkIn(await emailTo(confirming.status.MAILPIT_URL, email)));
    await heading(page, /^Hello/);
    expect(page.url()).toBe(`${confirming.url}/app`);
  });

  test("the link opened in another browser explains what to do", async () => {
    const { email } = await signUpUnconfirmed();
    const elsewhere = await openContext(site.browser);
    const page = await elsewhere.newPage();
    page.setDefaultTimeout(60_000);
    await page.goto(linkIn(await emailTo(confirming.status.MAILPIT_URL, email)));
    await page.getByText("different browser").first().waitFor();
    await elsewhere.close();
  });
});
