// Forms of the web app against the running program: another e-mail address, sign-in by phone, and links in other browsers.
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { codeIn, linkIn, mailTo } from "../harness/mail.ts";
import { Portico } from "../harness/portico.ts";
import { textTo } from "../harness/texts.ts";
import { launch, watch, type Watched } from "./harness.ts";

let browser: Browser;
let context: BrowserContext;
beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());
beforeEach(async () => {
  context = await browser.newContext();
});
afterEach(() => context.close());

let count = 0;
const address = (): string => `form-${String(++count)}@portico.test`;
const number = (): string => `1555100${String(++count).padStart(4, "0")}`;
const password = "correct horse battery";
const heading = (page: Page, name: RegExp): Promise<void> => page.getByRole("heading", { level: 1, name }).waitFor();
const card = (page: Page) => page.getByRole("region", { name: "E-mail address" });

async function open(portico: Portico, path: string, within = context): Promise<Watched> {
  const watched = await watch(within, portico.url);
  await watched.page.goto(`${portico.url}${path}`);
  return watched;
}

async function signUp(portico: Portico, page: Page, confirms: boolean): Promise<string> {
  const email = address();
  await page.goto(`${portico.url}/sign-up`);
  await page.getByLabel("E-mail").fill(email);
  await page.getByLabel("Password", { exact: true }).fill(password);
  await page.getByRole("button", { name: "Create account" }).click();
  if (confirms) {
    await heading(page, /Check your inbox/);
    await page.getByLabel(/code/i).fill(codeIn(await mailTo(portico.status.MAILPIT_URL, email)));
  }
  await heading(page, /^Hello/);
  return email;
}

async function askFor(page: Page, wanted: string): Promise<void> {
  await page.getByRole("button", { name: "Change address" }).click();
  await page.getByLabel("New e-mail address").fill(wanted);
  await page.getByRole("button", { name: "Ask for the change" }).click();
}

describe("another e-mail address", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\n' });
  });
  afterAll(() => portico.dispose());
  const mailbox = (): string => portico.status.MAILPIT_URL;

  test("is confirmed by the links in both mails", async () => {
    const { page, errors } = await open(portico, "/");
    const email = await signUp(portico, page, true);
    const wanted = address();
    await page.getByRole("button", { name: "Change address" }).click();
    await page.getByText(`one to ${email}. The change is made when both are opened.`).waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await askFor(page, wanted);
    await page.getByText(`Waiting for ${wanted} to be confirmed`).waitFor();
    await page.reload();
    await page.getByText(`Waiting for ${wanted} to be confirmed`).waitFor();

    await page.goto(linkIn(await mailTo(mailbox(), wanted)));
    await heading(page, /One more to go/);
    expect(new URL(page.url()).pathname).toBe("/confirm-email-change");
    await page.goto(linkIn(await mailTo(mailbox(), email, 1)));
    await heading(page, /Your address is confirmed/);
    await page.getByText(`From now on it is ${wanted}.`).waitFor();
    expect(new URL(page.url()).search + new URL(page.url()).hash).toBe("");
    await page.getByRole("link", { name: "Open your account" }).click();
    await card(page).getByText(wanted).waitFor();
    expect(await page.getByText(/Waiting for/).count()).toBe(0);
    expect(errors).toEqual([]);
  });

  test("confirmed in another browser is told in both", async () => {
    const { page } = await open(portico, "/");
    const email = await signUp(portico, page, true);
    const wanted = address();
    await askFor(page, wanted);
    await page.getByText(`Waiting for ${wanted}`).waitFor();
    const elsewhere = await browser.newContext();
    try {
      const other = await open(portico, "/", elsewhere);
      await other.page.goto(linkIn(await mailTo(mailbox(), email, 1)));
      await heading(other.page, /One more to go/);
      await other.page.goto(linkIn(await mailTo(mailbox(), wanted)));
      await heading(other.page, /Your address is changed/);
      expect(other.errors).toEqual([]);
    } finally {
      await elsewhere.close();
    }
    // The first browser asks now and then, without anybody doing anything.
    await page.getByText("Your address is changed.").waitFor();
    await card(page).getByText(wanted).waitFor();
  });

  test("that somebody has is refused at the field; a used-up link says what to do", async () => {
    const { page } = await open(portico, "/");
    const first = await signUp(portico, page, true);
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForURL(`${portico.url}/`);
    const email = await signUp(portico, page, true);
    await askFor(page, first);
    await page.getByText("There is already an account with this address.").waitFor();
    expect(await page.getByLabel("New e-mail address").inputValue()).toBe(first);
    const wanted = address();
    await page.getByLabel("New e-mail address").fill(wanted);
    await page.getByRole("button", { name: "Ask for the change" }).click();
    await page.getByText(`Waiting for ${wanted}`).waitFor();
    const link = linkIn(await mailTo(mailbox(), email, 1));
    await page.goto(link);
    await heading(page, /One more to go/);
    await page.goto(link);
    await heading(page, /The change was not confirmed/);
  });
});

describe("a link that is opened in another browser", () => {
  let portico: Portico;
  beforeAll(async () => {
    portico = await Portico.start({ config: '[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\notp_length = 8\n' });
  });
  afterAll(() => portico.dispose());

  test("uses up the code of its mail, and both pages lead on", async () => {
    const { page } = await open(portico, "/sign-up");
    const email = address();
    await page.getByLabel("E-mail").fill(email);
    await page.getByLabel("Password", { exact: true }).fill(password);
    await page.getByRole("button", { name: "Create account" }).click();
    await heading(page, /Check your inbox/);
    await page.getByText("a mail with an eight-digit code and a link").waitFor();
    const mail = await mailTo(portico.status.MAILPIT_URL, email);
    const elsewhere = await browser.newContext();
    try {
      const other = (await open(portico, "/", elsewhere)).page;
      await other.goto(linkIn(mail));
      await other.getByRole("link", { name: "Sign in with a new code" }).click();
      await heading(other, /Sign in with a code/);
      await other.getByLabel("E-mail").fill(email);
      await other.getByRole("button", { name: "Send me a code" }).click();
      await heading(other, /Check your inbox/);
      await other.getByLabel(/code/i).fill(codeIn(await mailTo(portico.status.MAILPIT_URL, email, 1)));
      await heading(other, /^Hello/);
    } finally {
      await elsewhere.close();
    }
    // Where the sign-up began, the code of the first mail is dead, but the account is confirmed.
    await page.getByLabel(/code/i).fill(codeIn(mail));
    await page.getByText("Opened the link in that mail elsewhere?").waitFor();
    await page.getByRole("link", { name: "sign in", exact: true }).click();
    await page.getByLabel("E-mail").fill(email);
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

  test("an account is made, and signed in to again", async () => {
    const { page, events, errors } = await open(portico, "/sign-up");
    const phone = number();
    await page.getByRole("link", { name: "Use your phone number instead" }).click();
    await page.getByLabel("Phone number").fill(`+${phone.slice(0, 1)} ${phone.slice(1, 4)} ${phone.slice(4)}`);
    await page.getByRole("button", { name: "Text me a code" }).click();
    await heading(page, /Check your phone/);
    await page.getByRole("button", { name: /Send again in \d+ s/ }).waitFor();
    const right = await codeTo(phone);
    await page.getByLabel(/code/i).fill(right === "000000" ? "000001" : "000000");
    await page.getByText("This code is wrong or no longer valid.").waitFor();
    // A reload asks nothing again.
    await page.reload();
    await heading(page, /Check your phone/);
    await page.getByLabel(/code/i).fill(right);
    await heading(page, /^Hello/);
    await page.getByText(`+${phone}`).first().waitFor();
    await expect.poll(() => events.filter(({ name }) => name === "sign_in").map(({ properties }) => properties)).toEqual([{ method: "phone" }]);
    await page.getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForURL(`${portico.url}/`);

    await page.goto(`${portico.url}/sign-in?with=phone`);
    await page.getByLabel("Phone number").fill(`+${phone}`);
    await page.getByRole("button", { name: "Text me a code" }).click();
    await heading(page, /Check your phone/);
    await page.getByLabel(/code/i).fill(await codeTo(phone, 1));
    await heading(page, /^Hello/);
    // The refused code is an answer that browsers note in their console.
    expect(errors.filter((line) => !line.includes("403"))).toEqual([]);
  });

  test("an unknown number makes no account at sign-in, and is kept", async () => {
    const { page } = await open(portico, "/sign-in?with=phone");
    const phone = number();
    await page.getByLabel("Phone number").fill(`+${phone}`);
    await page.getByRole("button", { name: "Text me a code" }).click();
    await page.getByText(`There is no account with +${phone} yet.`).waitFor();
    expect(await page.getByLabel("Phone number").inputValue()).toBe(`+${phone}`);
    await page.getByRole("link", { name: "Create one" }).click();
    await heading(page, /Create your account/);
    await page.getByLabel("Phone number").waitFor();
  });

  test("is not offered where the server has no phones", async () => {
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

describe("a product of its own name", () => {
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

  test("wears its mark, and offers further ways in where linking is allowed", async () => {
    const { page, errors } = await open(portico, "/");
    const image = page.locator("header img");
    await image.waitFor();
    expect(await image.evaluate((element: HTMLImageElement) => element.decode().then(() => element.naturalWidth > 0))).toBe(true);
    const source = (await image.getAttribute("src"))!;
    expect(await page.locator('link[rel="icon"]').getAttribute("href")).toBe(source);
    const answer = await fetch(new URL(source, portico.url));
    expect([answer.headers.get("content-type"), answer.headers.get("content-security-policy")]).toEqual(["image/svg+xml", expect.stringContaining("sandbox")]);
    expect(await answer.text()).toBe(mark);
    await signUp(portico, page, false);
    await page.getByRole("button", { name: "Add Google" }).waitFor();
    expect(errors).toEqual([]);
  });
});

test("the mailbox shows what comes in, without being asked again and again", async () => {
  const portico = await Portico.start();
  try {
    const { page } = await open(portico, "/mailbox");
    await page.getByText("Nothing here yet").waitFor();
    const email = address();
    const client = portico.client();
    await client.auth.signUp({ email, password });
    expect((await client.auth.resetPasswordForEmail(email)).error).toBeNull();
    await page.getByRole("list", { name: "Messages" }).getByText(email, { exact: true }).waitFor();
    // Another website in the same browser reads nothing, though the port is the same machine's.
    const stranger = await context.newPage();
    await stranger.route("http://stranger.test/", (route) => route.fulfill({ contentType: "text/html", body: "<title>A stranger</title>" }));
    await stranger.goto("http://stranger.test/");
    const read = await stranger.evaluate(
      (url) => fetch(url).then((answer) => answer.text(), () => "refused"),
      `${portico.status.MAILPIT_URL}/api/v1/messages`,
    );
    expect(read).toBe("refused");
  } finally {
    await portico.dispose();
  }
});
