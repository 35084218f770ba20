// The passkeys of the web application's own pages, in a browser with an authenticator, against the
// running program.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { emailTo } from "../harness/emails.ts";
import { expectAccessible, heading, openWatchedPage, signOutOf, signUpAs, startSite, takeScreenshot, type WatchedPage } from "./harness.ts";

const site = startSite({
  config: "[auth.passkey]\nenabled = true\n",
  files: { "supabase/portico.toml": "[auth.email]\nnotifications = true\n" },
});

let count = 0;

/** Opens the account page of a new account. */
async function signUp(): Promise<WatchedPage & { email: string }> {
  const email = `passkey-${++count}@portico.test`;
  const watched = await openWatchedPage(site.context, site.localhost);
  await signUpAs(watched.page, site.localhost, email);
  return { ...watched, email };
}

describe("a passkey", () => {
  /** Attaches an authenticator to the page, as a device has one. */
  async function attachAuthenticator(page: Page): Promise<void> {
    const cdp = await site.context.newCDPSession(page);
    await cdp.send("WebAuthn.enable");
    await cdp.send("WebAuthn.addVirtualAuthenticator", {
      options: {
        protocol: "ctap2",
        transport: "internal",
        hasResidentKey: true,
        hasUserVerification: true,
        isUserVerified: true,
        automaticPresenceSimulation: true,
      },
    });
  }

  /** Opens a page whose visitor has an account with a passkey, and has signed out. */
  async function openWithPasskey(): Promise<Page> {
    const { page } = await signUp();
    await attachAuthenticator(page);
    await page.goto(`${site.localhost}/app/security`);
    await page.getByRole("button", { name: "Add a passkey" }).click();
    await page.getByLabel("Name of the passkey").waitFor();
    await signOutOf(page, site.localhost);
    return page;
  }

  test("is offered once, named, used to sign in, and removed", async () => {
    const { page, email } = await signUp();
    await attachAuthenticator(page);
    await page.reload();
    await page.getByRole("button", { name: "Add a passkey" }).click();
    await page.getByText("Your passkey was added.").waitFor();
    const notice = await emailTo(site.portico.status.MAILPIT_URL, email);
    expect(notice.Subject).toBe("A passkey was added to your account");

    await page.getByRole("link", { name: "Manage your passkeys" }).click();
    await page.getByRole("button", { name: /^Rename / }).click();
    await page.getByLabel("Name of the passkey").fill("This laptop");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Rename This laptop" }).waitFor();
    expect(await page.getByText("not used yet").count()).toBe(1);
    await expectAccessible(page);
    await takeScreenshot(page, "security-passkeys");

    await signOutOf(page, site.localhost);
    // The authenticator would take the browser's suggestion at once, and leave nothing for the
    // button.
    await page.addInitScript(() => {
      PublicKeyCredential.isConditionalMediationAvailable = () => Promise.resolve(false);
    });
    await page.goto(`${site.localhost}/sign-in?next=${encodeURIComponent("/app/security")}`);
    const button = page.getByRole("button", { name: "Sign in with a passkey" });
    await button.waitFor();
    await expectAccessible(page);
    await takeScreenshot(page, "sign-in-passkey");
    await button.click();
    await page.getByRole("button", { name: "Rename This laptop" }).waitFor();
    await page.getByText(/· used/).waitFor();

    await page.getByRole("button", { name: "Remove This laptop" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
    await page.getByText("You have no passkeys yet.").waitFor();
  });

  test("is suggested in the email field", async () => {
    const page = await openWithPasskey();
    // The authenticator of the test chooses the suggestion at once.
    await page.goto(`${site.localhost}/sign-in`);
    await heading(page, /^Hello/);
    await page.getByText(/Signed in with a passkey/).waitFor();
  });

  test("is suggested again after the server has rejected it", async () => {
    const page = await openWithPasskey();
    let attempts = 0;
    await page.route("**/auth/v1/passkeys/authentication/verify", async (route) => {
      attempts += 1;
      if (attempts > 1) await route.continue();
      else await route.fulfill({ status: 400, contentType: "application/json", body: '{"code":"webauthn_verification_failed","message":"no"}' });
    });
    await page.goto(`${site.localhost}/sign-in`);
    await heading(page, /^Hello/);
    expect(attempts).toBe(2);
  });

  test("cannot exist at an IP address, which the page says", async () => {
    await signUp();
    const state = await site.context.storageState();
    const session = state.origins.find((entry) => entry.origin === site.localhost)!.localStorage.find(({ name }) => name === "portico.session")!.value;
    const { page } = await openWatchedPage(site.context, site.portico.url);
    await page.goto(site.portico.url);
    await page.evaluate((value) => {
      localStorage.setItem("portico.session", value);
    }, session);
    await page.goto(`${site.portico.url}/app/security`);
    const link = page.getByRole("link", { name: "Open this page at localhost" });
    expect(await link.getAttribute("href")).toBe(`${site.localhost}/app/security`);
  });
});
