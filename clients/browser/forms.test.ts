// Forms of the web app against the running program: the email change, sign-in by phone, and links
// in other browsers.
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { codeIn, emailAbout, emailTo, linkIn } from "../harness/emails.ts";
import { oneTimePassword } from "../harness/one-time-password.ts";
import { Portico } from "../harness/portico.ts";
import { textTo } from "../harness/text-messages.ts";
import { heading, launch, openContext, openWatchedPage, password, signUpByForm, type WatchedPage } from "./harness.ts";

let browser: Browser;
let context: BrowserContext;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());
beforeEach(async () => {
  context = await openContext(browser);
});
afterEach(() => context.close());

let count = 0;
const newEmail = (): string => `form-${String(++count)}@portico.test`;
const newPhone = (): string => `1555100${String(++count).padStart(4, "0")}`;
const card = (page: Page) => page.getByRole("region", { name: "Email address" });

async function open(portico: Portico, path: string, within = context): Promise<WatchedPage> {
  const watched = await openWatchedPage(within, portico.url);
  await watched.page.goto(`${portico.url}${path}`);
  return watched;
}

/** Signs up on a server that requires a confirmed address. */
async function signUp(portico: Portico, page: Page): Promise<string> {
  const email = newEmail();
  await page.goto(`${portico.url}/sign-up`);
  await page.getByLabel("Email").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Create account" }).click();
  await heading(page, /Check your inbox/);
  await page.getByLabel(/code/i).fill(codeIn(await emailTo(portico.status.MAILPIT_URL, email)));
  await heading(page, /^Hello/);
  return email;
}

async function requestEmailChange(page: Page, newAddress: string): Promise<void> {
  await page.getByRole("button", { name: "Change email" }).click();
  await page.getByLabel("New email address").fill(newAddress);
  await page.getByRole("button", { name: "Send confirmation" }).click();
}

describe("an email change", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\n' });
  });
  afterAll(() => portico.dispose());
  const mailbox = (): string => portico.status.MAILPIT_URL;

  test("is confirmed by the links in both emails", async () => {
    const { page, errors } = await open(portico, "/");
    const email = await signUp(portico, page);
    const newAddress = newEmail();
    await page.getByRole("button", { name: "Change email" }).click();
    await page.getByText(`one to ${email}. Open both to make the change.`).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await requestEmailChange(page, newAddress);
    await page.getByText(`Confirm ${newAddress}`).waitFor();
    await page.reload();
    await page.getByText(`Confirm ${newAddress}`).waitFor();

    await page.goto(linkIn(await emailTo(mailbox(), newAddress)));
    await heading(page, /One more step/);
    expect(new URL(page.url()).pathname).toBe("/confirm-email-change");
    // The account page shows what is left to do, also after a reload
    await page.getByRole("link", { name: "Open your account" }).click();
    const left = `${newAddress} is confirmed. To make the change, open the link in the email to ${email}`;
    await card(page).getByText(left).waitFor();
    await page.reload();
    await card(page).getByText(left).waitFor();
    await page.goto(linkIn(await emailTo(mailbox(), email, 1)));
    await heading(page, /Email address confirmed/);
    await page.getByText(`Your email address is now ${newAddress}.`).waitFor();
    expect(new URL(page.url()).search + new URL(page.url()).hash).toBe("");
    await page.getByRole("link", { name: "Open your account" }).click();
    await card(page).getByText(newAddress).waitFor();
    expect(await page.getByText(/^Confirm /).count()).toBe(0);
    expect(errors).toEqual([]);
  });

  test("confirmed in another browser is shown in both", async () => {
    const { page } = await open(portico, "/");
    const email = await signUp(portico, page);
    const newAddress = newEmail();
    await requestEmailChange(page, newAddress);
    await page.getByText(`Confirm ${newAddress}`).waitFor();
    const elsewhere = await openContext(browser);
    try {
      const other = await open(portico, "/", elsewhere);
      await other.page.goto(linkIn(await emailTo(mailbox(), email, 1)));
      await heading(other.page, /One more step/);
      await other.page.goto(linkIn(await emailTo(mailbox(), newAddress)));
      await heading(other.page, /Email address changed/);
      expect(other.errors).toEqual([]);
    } finally {
      await elsewhere.close();
    }
    // The first browser looks for the change at an interval.
    await page.getByText("Your email address was changed.").waitFor();
    await card(page).getByText(newAddress).waitFor();
  });

  test("to a taken address is rejected at the field; a spent link explains what to do", async () => {
    const { page } = await open(portico, "/");
    const first = await signUp(portico, page);
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForURL(`${portico.url}/`);
    const email = await signUp(portico, page);
    await requestEmailChange(page, first);
    await page.getByText("An account with this email address already exists.").waitFor();
    expect(await page.getByLabel("New email address").inputValue()).toBe(first);
    const newAddress = newEmail();
    await page.getByLabel("New email address").fill(newAddress);
    await page.getByRole("button", { name: "Send confirmation" }).click();
    await page.getByText(`Confirm ${newAddress}`).waitFor();
    const link = linkIn(await emailTo(mailbox(), email, 1));
    await page.goto(link);
    await heading(page, /One more step/);
    await page.goto(link);
    await heading(page, /The change was not confirmed/);
  });
});

describe("a code in an email", () => {
  let portico: Portico;
  beforeAll(async () => {
    const config = `[auth.email]
enable_confirmations = true
max_frequency = "0s"
[auth.mfa.totp]
enroll_enabled = true
verify_enabled = true
`;
    portico = await Portico.start({ config });
  });
  afterAll(() => portico.dispose());
  const mailbox = (): string => portico.status.MAILPIT_URL;
  const session = (page: Page): Promise<Record<string, unknown>> =>
    page.evaluate(() => {
      const stored = JSON.parse(localStorage.getItem("portico.session")!) as { access_token: string };
      return JSON.parse(atob(stored.access_token.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/"))) as Record<string, unknown>;
    });

  test("of each address changes the email address, and keeps the session with its second factor", async () => {
    const { page, errors } = await open(portico, "/");
    const email = await signUp(portico, page);
    await page.goto(`${portico.url}/app/security`);
    await page.getByRole("button", { name: "Set up: Authenticator app" }).click();
    const secret = (await page.locator("code").innerText()).replaceAll(" ", "");
    await page.getByLabel("Six-digit code").fill(oneTimePassword(secret));
    await page.getByRole("button", { name: "I have saved them" }).click();
    const before = await session(page);
    expect(before["aal"]).toBe("aal2");

    await page.goto(`${portico.url}/app`);
    const newAddress = newEmail();
    await requestEmailChange(page, newAddress);
    await page.getByRole("button", { name: "Enter the codes instead" }).click();
    await page.getByRole("button", { name: `Use the code sent to ${email}` }).click();
    const current = page.getByLabel(`Code sent to ${email}`);
    await current.fill("000000");
    await page.getByText("This code or link is wrong or has expired.").waitFor();
    await current.fill(codeIn(await emailAbout(mailbox(), email, "Approve changing your email address")));
    await page.getByText(`${email} is confirmed.`, { exact: true }).waitFor();
    await page.getByLabel(`Code sent to ${newAddress}`).fill(codeIn(await emailTo(mailbox(), newAddress)));
    await page.getByText("Your email address was changed.").waitFor();
    await card(page).getByText(newAddress).waitFor();

    const after = await session(page);
    expect([after["aal"], after["session_id"], after["email"]]).toEqual(["aal2", before["session_id"], newAddress]);
    await page.getByRole("region", { name: "Active sessions" }).getByText("1 session", { exact: true }).waitFor();
    // The browser logs the status of the wrong code.
    expect(errors.filter((line) => !line.includes("403"))).toEqual([]);
  });

  test("proves an address that Google has not verified, and leads to the page that was requested", async () => {
    const { page } = await open(portico, "/app?tab=sessions");
    const email = newEmail();
    await page.getByRole("button", { name: "Continue with Google" }).click();
    await page.getByText("Add an account").click();
    await page.getByLabel("Name").fill("Grace");
    await page.getByLabel("Email").fill(email);
    await page.getByLabel(/has not verified/).check();
    await page.getByRole("button", { name: "Add and continue" }).click();
    await heading(page, /Check your inbox/);
    expect(page.url()).toBe(`${portico.url}/verify`);
    await page.getByText(`Google hasn’t verified that ${email} is yours.`).waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
    await page.getByLabel("Six-digit code").fill(codeIn(await emailTo(mailbox(), email)));
    await page.waitForURL(`${portico.url}/app?tab=sessions`);
    await heading(page, /^Hello/);
    await card(page).getByText(email).waitFor();
  });

  test("is not asked for because an address says so", async () => {
    const fields = "error=access_denied&error_code=provider_email_needs_verification";
    const { page } = await open(portico, `/app?${fields}#${fields}&email=mallory%40portico.test&sb=`);
    await page.getByRole("alert").getByText("Confirm your email address first: we sent you an email.").waitFor();
    expect(page.url()).toBe(`${portico.url}/sign-in`);
  });
});

describe("a link that is opened in another browser", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\notp_length = 8\n' });
  });
  afterAll(() => portico.dispose());

  test("spends the code of its email, and both pages link to the next step", async () => {
    const { page } = await open(portico, "/sign-up");
    const email = newEmail();
    await page.getByLabel("Email").fill(email);
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Create account" }).click();
    await heading(page, /Check your inbox/);
    await page.getByText("an email with an eight-digit code and a link").waitFor();
    const mail = await emailTo(portico.status.MAILPIT_URL, email);
    const elsewhere = await openContext(browser);
    try {
      const other = (await open(portico, "/", elsewhere)).page;
      await other.goto(linkIn(mail));
      await other.getByRole("link", { name: "Sign in with a new code" }).click();
      await heading(other, /Sign in with a code/);
      await other.getByLabel("Email").fill(email);
      await other.getByRole("button", { name: "Send code" }).click();
      await heading(other, /Check your inbox/);
      await other.getByLabel(/code/i).fill(codeIn(await emailTo(portico.status.MAILPIT_URL, email, 1)));
      await heading(other, /^Hello/);
    } finally {
      await elsewhere.close();
    }
    // In the browser of the sign-up, the code of the first email is spent, but the account is
    // confirmed.
    await page.getByLabel(/code/i).fill(codeIn(mail));
    await page.getByText("Already opened the link in that email?").waitFor();
    await page.getByRole("link", { name: "sign in", exact: true }).click();
    await page.getByLabel("Email").fill(email);
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await heading(page, /^Hello/);
  });
});

describe("by phone", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth.sms]\nenable_signup = true\nmax_frequency = "0s"\n' });
  });
  afterAll(() => portico.dispose());
  const codeTo = async (phone: string, after = 0): Promise<string> => (await textTo(portico.status.MAILPIT_URL, phone, after)).code;

  test("an account is created, and signed in to again", async () => {
    const { page, events, errors } = await open(portico, "/sign-up");
    const phone = newPhone();
    await page.getByRole("link", { name: "Use your phone number instead" }).click();
    await page.getByLabel("Phone number").fill(`+${phone.slice(0, 1)} ${phone.slice(1, 4)} ${phone.slice(4)}`);
    await page.getByRole("button", { name: "Text me a code" }).click();
    await heading(page, /Check your phone/);
    await page.getByRole("button", { name: /Resend in \d+ s/ }).waitFor();
    const right = await codeTo(phone);
    await page.getByLabel(/code/i).fill(right === "000000" ? "000001" : "000000");
    await page.getByText("This code is wrong or has expired.").waitFor();
    // A reload keeps the pending code.
    await page.reload();
    await heading(page, /Check your phone/);
    await page.getByLabel(/code/i).fill(right);
    await heading(page, /^Hello/);
    await page.getByRole("main").getByText(`+${phone}`).first().waitFor();
    await expect.poll(() => events.filter(({ name }) => name === "sign_in").map(({ properties }) => properties)).toEqual([{ method: "phone" }]);
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForURL(`${portico.url}/`);

    await page.goto(`${portico.url}/sign-in?with=phone`);
    await page.getByLabel("Phone number").fill(`+${phone}`);
    await page.getByRole("button", { name: "Text me a code" }).click();
    await heading(page, /Check your phone/);
    await page.getByLabel(/code/i).fill(await codeTo(phone, 1));
    await heading(page, /^Hello/);
    // Browsers log the error response to the wrong code in their console.
    expect(errors.filter((line) => !line.includes("403"))).toEqual([]);
  });

  test("an unknown number creates no account at sign-in, and stays in the form", async () => {
    const { page } = await open(portico, "/sign-in?with=phone");
    const phone = newPhone();
    await page.getByLabel("Phone number").fill(`+${phone}`);
    await page.getByRole("button", { name: "Text me a code" }).click();
    await page.getByText(`There is no account with +${phone}.`).waitFor();
    expect(await page.getByLabel("Phone number").inputValue()).toBe(`+${phone}`);
    await page.getByRole("link", { name: "Create one" }).click();
    await heading(page, /Create your account/);
    await page.getByLabel("Phone number").waitFor();
  });

  test("is not offered where the server has phone sign-in disabled", async () => {
    const without = await Portico.start();
    try {
      const { page } = await open(without, "/sign-in");
      await page.getByRole("button", { name: "Continue with Google" }).waitFor();
      expect(await page.getByRole("link", { name: /phone/ }).count()).toBe(0);
    } finally {
      await without.dispose();
    }
  });
});

describe("a brand", () => {
  const mark = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><circle cx="4" cy="4" r="4" fill="#7c3aed"/></svg>';
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({
      config: "[auth]\nenable_manual_linking = true\n",
      files: {
        "supabase/portico.toml": '[web.brand]\nname = "Harbour"\naccent = "#7c3aed"\nmark = "brand/mark.svg"\n',
        "supabase/brand/mark.svg": mark,
        "brand/mark.svg": mark,
      },
    });
  });
  afterAll(() => portico.dispose());

  test("shows its mark; further sign-in methods are offered where linking is allowed", async () => {
    const { page, errors } = await open(portico, "/");
    const image = page.locator("header img");
    await image.waitFor();
    expect(await image.evaluate((element: HTMLImageElement) => element.decode().then(() => element.naturalWidth > 0))).toBe(true);
    const source = (await image.getAttribute("src"))!;
    expect(await page.locator('link[rel="icon"]').getAttribute("href")).toBe(source);
    const response = await fetch(new URL(source, portico.url));
    expect([response.headers.get("content-type"), response.headers.get("content-security-policy")]).toEqual(["image/svg+xml", expect.stringContaining("sandbox")]);
    expect(await response.text()).toBe(mark);
    await signUpByForm(page, portico.url, newEmail());
    await page.getByRole("button", { name: "Add Google" }).waitFor();
    expect(errors).toEqual([]);
  });
});

test("the mailbox shows new messages without a reload", async () => {
  const portico = await Portico.start();
  try {
    const { page } = await open(portico, "/mailbox");
    await page.getByText("No messages yet").waitFor();
    const email = newEmail();
    const client = portico.client();
    await client.auth.signUp({ email, password });
    expect((await client.auth.resetPasswordForEmail(email)).error).toBeNull();
    await page.getByRole("list", { name: "Messages" }).getByText(email, { exact: true }).waitFor();
    // Another website in the same browser cannot read it, although the port is on the same machine.
    const otherSite = await context.newPage();
    await otherSite.route("http://stranger.test/", (route) => route.fulfill({ contentType: "text/html", body: "<title>A stranger</title>" }));
    await otherSite.goto("http://stranger.test/");
    const read = await otherSite.evaluate(
      (url) => fetch(url).then((response) => response.text(), () => "refused"),
      `${portico.status.MAILPIT_URL}/api/v1/messages`,
    );
    expect(read).toBe("refused");
  } finally {
    await portico.dispose();
  }
});
