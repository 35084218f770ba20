// The pages for visitors in a browser, against the running program: providers, their failures, and
// the rules of passwords.
import type { Page } from "playwright-core";
import { describe, expect, test } from "vitest";

import { chooseGoogleAccount, heading, openContext, openWatchedPage, resize, startSite } from "./harness.ts";

const providers = ["github", "gitlab", "discord", "azure"];
const config = `
[auth]
minimum_password_length = 10
password_requirements = "lower_upper_letters_digits_symbols"
${providers.map((name) => `[auth.external.${name}]\nenabled = true\nclient_id = "client"\nsecret = "secret"`).join("\n")}
`;
const brand = '[web.brand]\nname = "Harbour"\naccent = "#7c9cf5"\n';
const site = startSite({ config, files: { "supabase/portico.toml": brand } });

const googleButton = (page: Page) => page.getByRole("button", { name: /Continue with Google/ });

async function open(path: string): Promise<Page> {
  const { page } = await openWatchedPage(site.context, site.localhost);
  await page.goto(`${site.localhost}${path}`);
  return page;
}

test("the server prints the address at which its pages can use passkeys, and that of its API", () => {
  expect(site.portico.log).toMatch(new RegExp(`Web app +${site.localhost}\\n`));
  expect(site.portico.log).toMatch(new RegExp(`Mailbox +${site.localhost}/mailbox\\n`));
  expect(site.portico.log).toMatch(new RegExp(`API +${site.portico.url}\\n`));
});

describe("signing in with Google", () => {
  test("works at the printed address, and marks the method from then on", async () => {
    const page = await open("/sign-in");
    await googleButton(page).click();
    await chooseGoogleAccount(page);
    await heading(page, /^Hello/);
    expect(page.url()).toBe(`${site.localhost}/app`);
    await page.getByRole("main").getByRole("button", { name: "Sign out", exact: true }).click();
    await page.waitForURL(`${site.localhost}/`);
    await googleButton(page).getByText("Last used").waitFor();
  });

  test("that is cancelled says so, keeps the page that was requested, and marks nothing", async () => {
    const page = await open("/app?tab=sessions");
    await page.waitForURL(/\/sign-in\?next=/);
    await googleButton(page).click();
    await page.getByText("Make it fail").click();
    await page.getByRole("button", { name: /Decline/ }).click();
    await page.getByRole("alert").getByText("You cancelled signing in with Google.").waitFor();
    expect(page.url()).toBe(`${site.localhost}/sign-in?next=${encodeURIComponent("/app?tab=sessions")}`);
    await googleButton(page).waitFor();
    expect(await page.getByText("Last used").count()).toBe(0);
    // The next attempt leads to the page.
    await googleButton(page).click();
    await chooseGoogleAccount(page);
    await page.waitForURL(`${site.localhost}/app?tab=sessions`);
    await heading(page, /^Hello/);
  });

  test("leads back to the account when its last address is opened again", async () => {
    const page = await open("/sign-in");
    const callback = page.waitForRequest((request) => new URL(request.url()).pathname === "/auth/v1/callback");
    await googleButton(page).click();
    await chooseGoogleAccount(page);
    await heading(page, /^Hello/);
    await page.goto((await callback).url());
    await heading(page, /^Hello/);
    expect(page.url()).toBe(`${site.localhost}/app`);
  });
});

test("an error without a known origin is shown on our own sign-in page, in development", async () => {
  const page = await open("/auth/v1/callback?code=unknown&state=unknown");
  await page.getByRole("alert").getByText("This sign-in took too long or was started elsewhere. Try again.").waitFor();
  expect(page.url()).toBe(`${site.localhost}/sign-in`);
  await googleButton(page).waitFor();
});

describe("providers", () => {
  test("have logos, and stand in two columns on a wide screen and in one on a narrow one", async () => {
    const page = await open("/sign-in");
    for (const [width, columns] of [
      [1440, 2],
      [320, 1],
    ] as const) {
      await resize(page, width, 900);
      const lefts = new Set<number>();
      for (const name of ["GitHub", "GitLab", "Discord", "Microsoft"]) {
        const button = page.getByRole("button", { name: `Continue with ${name}` });
        await button.waitFor();
        expect(await button.locator("svg").count(), name).toBe(1);
        expect((await button.innerText()).trim()).toBe(name);
        lefts.add((await button.boundingBox())!.x);
      }
      expect(lefts.size).toBe(columns);
    }
  });
});

test("in forced colours, controls have borders", async () => {
  await site.context.close();
  site.context = await openContext(site.browser, { forcedColors: "active" });
  const page = await open("/sign-in");
  for (const control of [page.getByRole("button", { name: "Sign in", exact: true }), page.getByLabel("Email"), googleButton(page)]) {
    const width = await control.evaluate((element) => parseFloat(getComputedStyle(element).borderTopWidth));
    expect(width).toBeGreaterThanOrEqual(1);
  }
  await page.goto(`${site.localhost}/`);
  const link = page.getByRole("main").getByRole("link", { name: "Sign in" });
  expect(await link.evaluate((element) => getComputedStyle(element).outlineStyle)).toBe("solid");
});

test("the rules for a password are shown before it is typed, and name what is missing after", async () => {
  const page = await open("/sign-up");
  const field = page.getByLabel("Password", { exact: true });
  const rules = "At least 10 characters, with a lower-case letter, an upper-case letter, a digit, and a symbol.";
  await page.getByText(rules).waitFor();
  expect(await field.getAttribute("minlength")).toBe("10");
  await page.getByLabel("Email").fill("rules@portico.test");
  await field.fill("correct horse");
  await page.getByRole("button", { name: "Create account" }).click();
  await page.getByText("Add an upper-case letter, a digit, and a symbol.").waitFor();
  await field.fill("Short 1!");
  await page.getByRole("button", { name: "Create account" }).click();
  await page.getByText("Use at least 10 characters.").waitFor();
  await field.fill("Correct horse 1!");
  await page.getByRole("button", { name: "Create account" }).click();
  await heading(page, /^Hello/);
});

test.each(["light", "dark"] as const)("the brand's colour has a readable contrast, %s", async (colorScheme) => {
  await site.context.close();
  site.context = await openContext(site.browser, { colorScheme });
  const page = await open("/sign-in");
  const button = page.getByRole("button", { name: "Sign in", exact: true });
  await button.waitFor();
  // Drawn on a canvas, every notation of a colour becomes red, green and blue.
  const contrasts = await button.evaluate((element) => {
    const pen = document.createElement("canvas").getContext("2d")!;
    const luminance = (colour: string): number => {
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [red, green, blue] = Array.from(pen.getImageData(0, 0, 1, 1).data.slice(0, 3), (value) => {
        const part = value / 255;
        return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      }) as [number, number, number];
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    const contrast = (first: string, second: string): number => {
      const [dark, light] = [luminance(first), luminance(second)].sort((a, b) => a - b) as [number, number];
      return (light + 0.05) / (dark + 0.05);
    };
    const own = getComputedStyle(element);
    const mark = getComputedStyle(document.querySelector("header svg")!);
    return [contrast(own.color, own.backgroundColor), contrast(mark.color, getComputedStyle(document.documentElement).backgroundColor)];
  });
  for (const contrast of contrasts) expect(contrast).toBeGreaterThanOrEqual(4.5);
});
