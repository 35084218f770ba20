// The security page and the second step of a sign-in in a browser, against the running program.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { emailAbout } from "../harness/emails.ts";
import { currentStep, oneTimePassword } from "../harness/one-time-password.ts";
import { textTo } from "../harness/text-messages.ts";
import { breakSignOut, expectAccessible, heading, openContext, openWatchedPage, password, signOutHere, signOutInMenu, signOutOf, signUpAs, startSite, takeScreenshot, type WatchedPage } from "./harness.ts";

const config = `
[auth.mfa.totp]
enroll_enabled = true
verify_enabled = true
[auth.mfa.phone]
enroll_enabled = true
verify_enabled = true
max_frequency = "0s"
`;

const site = startSite({ config, files: { "supabase/portico.toml": "[auth.email]\nnotifications = true\n" } });

let count = 0;

/** Opens the account page of a new account. */
async function signUp(): Promise<WatchedPage & { email: string }> {
  const email = `secure-${++count}@portico.test`;
  const watched = await openWatchedPage(site.context, site.portico.url);
  await signUpAs(watched.page, site.portico.url, email);
  return { ...watched, email };
}

/** Signs in with the password, and waits for the second step. */
async function signInTo(page: Page, email: string, path: string): Promise<void> {
  await page.goto(`${site.portico.url}${path}`);
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  // The button carries a mark once a password was used in this site.browser.
  await page.getByRole("button", { name: /^Sign in\s*(Last used)?$/ }).click();
  await heading(page, /^Confirm it’s you$/);
}

/**
 * Adds an authenticator app on the security page, and returns its secret and the recovery codes.
 */
async function addAuthenticator(page: Page): Promise<{ secret: string; step: number; codes: string[] }> {
  await page.goto(`${site.portico.url}/app/security`);
  await page.getByRole("button", { name: "Set up: Authenticator app" }).click();
  const secret = (await page.locator("code").innerText()).replaceAll(" ", "");
  const step = currentStep();
  await page.getByLabel("Six-digit code").fill(oneTimePassword(secret, step));
  const list = page.getByRole("list", { name: "Recovery codes" });
  await list.waitFor();
  const codes = await list.getByRole("listitem").allInnerTexts();
  return { secret, step, codes };
}

describe("an authenticator app", () => {
  test("is asked for at the next sign-in, which leads on to the page that was requested", async () => {
    const { page, email, errors } = await signUp();
    const { secret, step, codes } = await addAuthenticator(page);
    expect(codes).toHaveLength(10);
    // The secret is shown only while it is needed.
    expect(await page.getByAltText(/QR code/).count()).toBe(0);
    await page.getByRole("button", { name: "I have saved them" }).click();
    await page.getByText("10 codes left").waitFor();

    const subject = "A new verification method was added to your account";
    const notice = await emailAbout(site.portico.status.MAILPIT_URL, email, subject);
    expect(notice.HTML).toContain(`href="${site.portico.url.replace("127.0.0.1", "localhost")}/app/security"`);

    await signOutOf(page, site.portico.url);
    await signInTo(page, email, "/app/security");
    expect(new URL(page.url()).pathname + new URL(page.url()).search).toBe("/mfa?next=%2Fapp%2Fsecurity");
    // A code that was used once does not work again.
    await page.getByLabel("Six-digit code").fill(oneTimePassword(secret, step));
    await page.getByText("That code isn’t right.").waitFor();
    expect(await page.getByLabel("Six-digit code").inputValue()).toBe(oneTimePassword(secret, step));
    await page.getByLabel("Six-digit code").fill(oneTimePassword(secret, step + 1));
    await page.waitForURL(`${site.portico.url}/app/security`);
    await page.getByText("Your account has a password.").waitFor();
    await page.reload();
    await page.getByText("10 codes left").waitFor();
    expect(errors.filter((line) => !line.includes("422"))).toEqual([]);
  });

  test("is left by signing out, on this device when the server fails", async () => {
    const { page, email } = await signUp();
    await addAuthenticator(page);
    for (const signOut of [() => signOutInMenu(page), () => page.getByRole("main").getByRole("button", { name: "Sign out", exact: true }).click()]) {
      await page.evaluate(() => {
        localStorage.removeItem("portico.session");
      });
      await signInTo(page, email, "/app/security");
      await breakSignOut(page);
      await signOut();
      const text = page.getByRole("alert").getByText("You are still signed in.");
      await text.waitFor();
      // The button is beside the text only where that leaves room for it.
      const [alertBox, textBox] = await Promise.all([page.getByRole("alert").boundingBox(), text.boundingBox()]);
      expect(textBox!.width).toBeGreaterThan(alertBox!.width / 2);
      expect(new URL(page.url()).pathname).toBe("/mfa");
      await signOutHere(page, site.portico.url);
    }
  });

  test("is replaced by a recovery code, once", async () => {
    const { page, email } = await signUp();
    const { codes } = await addAuthenticator(page);
    await signOutOf(page, site.portico.url);
    await signInTo(page, email, "/app/security");
    await page.getByRole("button", { name: "Use a recovery code" }).click();
    await page.getByLabel("Recovery code").fill(codes[0]!.toUpperCase());
    await page.keyboard.press("Enter");
    await page.getByText("9 codes left").waitFor();
    const subject = "A recovery code was used to sign in to your account";
    const notice = await emailAbout(site.portico.status.MAILPIT_URL, email, subject);
    expect(notice.Text).toContain("Codes left: 9.");

    await signOutOf(page, site.portico.url);
    await signInTo(page, email, "/app");
    await page.getByRole("button", { name: "Use a recovery code" }).click();
    await page.getByLabel("Recovery code").fill(codes[0]!);
    await page.keyboard.press("Enter");
    await page.getByText("That recovery code is wrong or was used before.").waitFor();
    await page.getByLabel("Recovery code").fill(codes[1]!);
    await page.keyboard.press("Enter");
    await heading(page, /^Hello/);
  });

  test("is removed by its owner, with the recovery codes, by keyboard alone", async () => {
    const { page } = await signUp();
    await addAuthenticator(page);
    await page.getByRole("button", { name: "I have saved them" }).focus();
    await page.keyboard.press("Enter");
    const opener = page.getByRole("button", { name: "Remove Authenticator app" });
    await opener.focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await expect.poll(() => opener.evaluate((element) => document.activeElement === element)).toBe(true);
    await page.keyboard.press("Enter");
    await dialog.getByRole("button", { name: "Remove" }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("Off", { exact: true }).waitFor();
    expect(await page.getByText("Recovery codes", { exact: true }).count()).toBe(0);
    await page.goto(`${site.portico.url}/app`);
    await heading(page, /^Hello/);
  });

  test("ends the other sessions, and stands before a new password", async () => {
    const { page, email } = await signUp();
    const other = await openContext(site.browser);
    const elsewhere = await openWatchedPage(other, site.portico.url);
    await elsewhere.page.goto(`${site.portico.url}/sign-in`);
    await elsewhere.page.getByLabel("Email").fill(email);
    await elsewhere.page.getByLabel("Password", { exact: true }).fill(password);
    await elsewhere.page.getByRole("button", { name: "Sign in", exact: true }).click();
    await heading(elsewhere.page, /^Hello/);
    await addAuthenticator(page);
    const sessions = await page.evaluate(async () => {
      const { access_token } = JSON.parse(localStorage.getItem("portico.session")!) as { access_token: string };
      const response = await fetch("/auth/v1/sessions", { headers: { Authorization: `Bearer ${access_token}`, apikey: access_token } });
      return ((await response.json()) as unknown[]).length;
    });
    expect(sessions).toBe(1);
    await other.close();
    await signOutOf(page, site.portico.url);
    await signInTo(page, email, "/app");
    await page.goto(`${site.portico.url}/update-password`);
    await heading(page, /^Confirm it’s you$/);
  });
});

test("a phone is added, and its codes confirm a sign-in", async () => {
  const { page, email } = await signUp();
  await page.goto(`${site.portico.url}/app/security`);
  await page.getByRole("button", { name: "Set up: Text message" }).click();
  await page.getByLabel("Phone number").fill("+41 79 123 45 67");
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByRole("button", { name: "Text me a code" }).click();
  await page.getByLabel("Six-digit code").waitFor();
  const first = await textTo(site.portico.status.MAILPIT_URL, "41791234567");
  await page.getByLabel("Six-digit code").fill(first.code);
  await page.getByRole("list", { name: "Recovery codes" }).waitFor();
  await signOutOf(page, site.portico.url);
  await signInTo(page, email, "/app");
  await page.getByText("We’ll text a code to +41791234567.").waitFor();
  await page.getByRole("button", { name: "Text me a code" }).click();
  await page.getByLabel("Six-digit code").waitFor();
  const second = await textTo(site.portico.status.MAILPIT_URL, "41791234567", 1);
  await page.getByLabel("Six-digit code").fill(second.code);
  await heading(page, /^Hello/);
});

test("a password is changed with the current one", async () => {
  const { page, email } = await signUp();
  await page.goto(`${site.portico.url}/app/security`);
  await page.getByRole("button", { name: "Change password" }).click();
  await page.getByLabel("Current password").fill("not my password");
  await page.getByLabel("New password").fill("battery staple horse");
  await page.getByRole("button", { name: "Save password" }).click();
  await page.getByText("Your current password is wrong.").waitFor();
  await page.getByLabel("Current password").fill(password);
  await page.getByRole("button", { name: "Save password" }).click();
  await page.getByText("Your password is changed. Your other devices were signed out.").waitFor();
  const notice = await emailAbout(site.portico.status.MAILPIT_URL, email, "Your password was changed");
  expect(notice.HTML).toContain(`href="${site.portico.url.replace("127.0.0.1", "localhost")}/forgot-password"`);
});

describe("the pages", () => {
  for (const scheme of ["light", "dark"] as const) {
    for (const width of [360, 1440]) {
      test(`are accessible and fit, ${scheme}, ${width} wide`, async () => {
        await site.context.close();
        site.context = await openContext(site.browser, { colorScheme: scheme, viewport: { width, height: 900 } });
        const { page, email } = await signUp();
        const show = async (name: string): Promise<void> => {
          await expectAccessible(page);
          expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
          await takeScreenshot(page, `${name}-${scheme}-${width}`);
        };
        await page.goto(`${site.portico.url}/app/security`);
        await page.getByRole("button", { name: "Change password" }).click();
        await page.getByLabel("Current password").waitFor();
        await page.getByRole("button", { name: "Set up: Authenticator app" }).click();
        await page.getByAltText(/QR code/).waitFor();
        await show("security-setup");
        await addAuthenticator(page);
        await show("security-codes");
        await page.getByRole("button", { name: "I have saved them" }).click();
        await show("security");
        await signOutOf(page, site.portico.url);
        await signInTo(page, email, "/app");
        await show("mfa");
        await page.getByRole("button", { name: "Use a recovery code" }).click();
        await show("mfa-recovery");
      });
    }
  }
});
