// The picture of an account in a browser: chosen, dropped, cropped, replaced and removed.
import { deflateSync } from "node:zlib";

import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { chooseGoogleAccount, expectAccessible, heading, openContext, openWatchedPage, signUpAs, startSite, takeScreenshot } from "./harness.ts";

const site = startSite({ config: "[storage.image_transformation]\nenabled = true\n" });

/** A PNG whose left half is red and whose right half is blue. */
function png(width = 640, height = 320): Buffer {
  const row = Buffer.concat([Buffer.of(0), ...Array.from({ length: width }, (_, x) => (x < width / 2 ? Buffer.of(220, 30, 30) : Buffer.of(30, 30, 220)))]);
  const chunk = (type: string, data: Buffer): Buffer => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(checksum(body));
    return Buffer.concat([length, body, sum]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const rows = Buffer.concat(Array.from({ length: height }, () => row));
  return Buffer.concat([Buffer.from("89504e470d0a1a0a", "hex"), chunk("IHDR", header), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]);
}

/** The CRC-32 of PNG. */
function checksum(bytes: Buffer): number {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}

const picture = (name = "me.png", buffer = png()) => ({ name, mimeType: "image/png", buffer });
const changeButton = (page: Page) => page.getByRole("button", { name: "Change your picture" });
const dialog = (page: Page) => page.getByRole("dialog");

/** Opens the dialog and chooses a file in it. */
async function choose(page: Page, file = picture()): Promise<void> {
  await changeButton(page).click();
  const chooser = page.waitForEvent("filechooser");
  await dialog(page).getByRole("button", { name: "Choose a picture" }).click();
  await (await chooser).setFiles(file);
}

/** Stores what is cropped, and returns the address of the picture that the page shows then. */
async function store(page: Page): Promise<string> {
  await dialog(page).getByRole("button", { name: "Save picture" }).click();
  await dialog(page).waitFor({ state: "hidden" });
  return shownAddress(page);
}

/** Returns the address of the picture at the greeting, once it is loaded. */
async function shownAddress(page: Page): Promise<string> {
  const image = page.getByRole("main").locator("img[width='64']");
  await image.waitFor();
  await page.waitForFunction(() => document.querySelector<HTMLImageElement>("main img[width='64']")?.complete);
  return (await image.getAttribute("src"))!;
}

/** Returns the colours at a quarter and at three quarters of the width of a shown picture. */
async function colours(page: Page, address: string): Promise<string[]> {
  return page.evaluate(async (url) => {
    const image = await createImageBitmap(await (await fetch(url)).blob());
    const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
    const pixels = canvas.getContext("2d")!;
    pixels.drawImage(image, 0, 0);
    const at = (part: number): string => {
      const [red, , blue] = pixels.getImageData(image.width * part, image.height / 2, 1, 1).data;
      return red! > blue! ? "red" : "blue";
    };
    return [at(0.25), at(0.75)];
  }, address);
}

/** Returns the metadata that apps read. */
const metadataOf = (page: Page) =>
  page.evaluate(() => (JSON.parse(localStorage.getItem("portico.session")!) as { user: { user_metadata: Record<string, string> } }).user.user_metadata);

let count = 0;
async function signUp() {
  const watched = await openWatchedPage(site.context, site.portico.url);
  await signUpAs(watched.page, site.portico.url, `avatar-${String(++count)}@portico.test`);
  return watched;
}

test("a picture is chosen, cropped by keys, stored, replaced and removed", async () => {
  const { page, errors } = await signUp();
  expect(await page.getByRole("main").locator("img").count()).toBe(0);
  await choose(page);
  const stage = dialog(page).getByRole("group", { name: "Position of the picture" });
  await stage.waitFor();
  // The whole height of the middle: both halves, until it moves to the left edge. The stage has
  // the focus.
  await page.waitForFunction(() => document.activeElement?.getAttribute("aria-label") === "Position of the picture");
  for (let press = 0; press < 8; press++) await page.keyboard.press("Shift+ArrowLeft");
  const first = await store(page);
  expect(first).toMatch(/\/storage\/v1\/render\/image\/public\/portico-avatars\/[^/]+\/[0-7]\.webp\?v=[0-9a-f]{16}&width=64&height=64$/);
  expect(await colours(page, first)).toEqual(["red", "red"]);
  const { avatar_url } = await metadataOf(page);
  const original = await fetch(avatar_url!);
  expect([original.status, original.headers.get("content-type")]).toEqual([200, "image/webp"]);
  // The header shows it too, in its own size
  await page.getByRole("banner").locator("img[src*='width=20']").waitFor();

  await choose(page);
  await stage.focus();
  for (let press = 0; press < 4; press++) await page.keyboard.press("+");
  expect(await dialog(page).getByLabel("Zoom").inputValue()).toBe("1.45");
  const second = await store(page);
  expect(second).not.toBe(first);
  expect(await colours(page, second)).toEqual(["red", "blue"]);
  expect((await fetch(avatar_url!)).status).toBe(400);
  await page.reload();
  expect(await shownAddress(page)).toBe(second);

  await changeButton(page).click();
  await dialog(page).getByRole("button", { name: "Remove picture" }).click();
  await dialog(page).waitFor({ state: "hidden" });
  await page.getByRole("main").locator("img").waitFor({ state: "detached" });
  expect(await metadataOf(page)).not.toHaveProperty("avatar_url");
  expect((await fetch(second)).status).toBe(400);
  expect(await page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toBe("Change your picture");
  expect(errors).toEqual([]);
});

test("a picture is stored beside those that interrupted changes have left", async () => {
  const { page } = await signUp();
  const { access_token, user } = await page.evaluate(() => JSON.parse(localStorage.getItem("portico.session")!) as { access_token: string; user: { id: string } });
  const headers = { authorization: `Bearer ${access_token}`, "content-type": "image/webp" };
  for (let name = 0; name < 7; name += 1) {
    const left = await fetch(`${site.portico.url}/storage/v1/object/portico-avatars/${user.id}/${name}.webp`, { method: "POST", headers, body: "left" });
    expect(left.status).toBe(200);
  }
  await choose(page);
  expect(await store(page)).toContain(`/${user.id}/7.webp?v=`);
});

test("a picture is dropped on the page and dragged into place", async () => {
  const { page } = await signUp();
  const bytes = png().toString("base64");
  const transfer = await page.evaluateHandle((encoded) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0))], "me.png", { type: "image/png" }));
    return data;
  }, bytes);
  const target = changeButton(page).locator("..");
  await target.dispatchEvent("dragover", { dataTransfer: transfer });
  await target.dispatchEvent("drop", { dataTransfer: transfer });
  const canvas = dialog(page).locator("canvas");
  await canvas.waitFor();
  const box = (await canvas.boundingBox())!;
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x - box.width, box.y + box.height / 2, { steps: 5 });
  await page.mouse.up();
  expect(await colours(page, await store(page))).toEqual(["blue", "blue"]);
});

test("what was chosen survives an error, and files that are no pictures are named", async () => {
  const { page } = await signUp();
  await choose(page, { name: "me.png", mimeType: "image/png", buffer: Buffer.from("<html>not a picture") });
  await dialog(page).getByText("This file isn’t a picture.").waitFor();
  const chooser = page.waitForEvent("filechooser");
  await dialog(page).getByRole("button", { name: "Choose a picture" }).click();
  await (await chooser).setFiles(picture("damaged.png", png().subarray(0, 60)));
  await dialog(page).getByText("This picture can’t be read.").waitFor();
  const other = page.waitForEvent("filechooser");
  await dialog(page).getByRole("button", { name: "Choose a picture" }).click();
  await (await other).setFiles(picture());
  await dialog(page).getByLabel("Zoom").fill("2");
  await page.route("**/storage/v1/object/portico-avatars/**", (route) => route.abort());
  await dialog(page).getByRole("button", { name: "Save picture" }).click();
  await dialog(page).getByText("Your picture is unchanged. We can’t reach the server.").waitFor();
  expect(await dialog(page).getByLabel("Zoom").inputValue()).toBe("2");
  await page.unroute("**/storage/v1/object/portico-avatars/**");
  await store(page);
});

test("neither Escape nor Cancel closes the dialog while the picture is stored, and a drop has no effect", async () => {
  const { page } = await signUp();
  await choose(page);
  let release = (): void => undefined;
  const held = new Promise<void>((done) => (release = done));
  await page.route("**/storage/v1/object/portico-avatars/**", async (route) => {
    await held;
    await route.continue();
  });
  await dialog(page).getByRole("button", { name: "Save picture" }).click();
  await dialog(page).getByRole("button", { name: "Cancel" }).and(page.locator(":disabled")).waitFor();
  for (let press = 0; press < 3; press++) await page.keyboard.press("Escape");
  const transfer = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(["no picture"], "me.png", { type: "image/png" }));
    return data;
  });
  await dialog(page).locator("canvas").dispatchEvent("drop", { dataTransfer: transfer });
  await dialog(page).getByRole("heading").dispatchEvent("drop", { dataTransfer: transfer });
  expect(await dialog(page).isVisible()).toBe(true);
  expect(await dialog(page).getByText("This file isn’t a picture.").count()).toBe(0);
  release();
  await dialog(page).waitFor({ state: "hidden" });
  expect(await shownAddress(page)).toContain("portico-avatars");
});

test("a picture of Google shows until the person chooses one, and again after its removal", async () => {
  const { page } = await openWatchedPage(site.context, site.portico.url);
  await page.goto(`${site.portico.url}/sign-in`);
  await page.getByRole("button", { name: "Continue with Google" }).click();
  await chooseGoogleAccount(page);
  await heading(page, /^Hello/);
  const google = await shownAddress(page);
  expect(google).not.toContain("portico-avatars");
  await choose(page);
  const own = await store(page);
  expect(own).toContain("portico-avatars");

  // The provider's picture replaces `avatar_url` at the next sign-in, and not what the person chose
  await page.evaluate(() => { localStorage.removeItem("portico.session"); });
  await page.goto(`${site.portico.url}/sign-in`);
  await page.getByRole("button", { name: "Continue with Google" }).click();
  await chooseGoogleAccount(page);
  await heading(page, /^Hello/);
  expect(await shownAddress(page)).toBe(own);
  await changeButton(page).click();
  await dialog(page).getByRole("button", { name: "Remove picture" }).click();
  await dialog(page).waitFor({ state: "hidden" });
  await page.waitForFunction((address) => document.querySelector("main img[width='64']")?.getAttribute("src") === address, google);
});

for (const scheme of ["light", "dark"] as const) {
  for (const width of [320, 1440]) {
    test(`the dialog is accessible and fits, ${scheme} at ${String(width)} pixels`, async () => {
      await site.context.close();
      site.context = await openContext(site.browser, { colorScheme: scheme, viewport: { width, height: 800 } });
      const { page } = await signUp();
      await changeButton(page).click();
      await dialog(page).getByRole("button", { name: "Choose a picture" }).waitFor();
      await expectAccessible(page);
      await takeScreenshot(page, `avatar-choose-${scheme}-${String(width)}`);
      const chooser = page.waitForEvent("filechooser");
      await dialog(page).getByRole("button", { name: "Choose a picture" }).click();
      await (await chooser).setFiles(picture());
      await dialog(page).getByLabel("Zoom").waitFor();
      await expectAccessible(page);
      await takeScreenshot(page, `avatar-crop-${scheme}-${String(width)}`);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
      await store(page);
      await page.getByRole("status").filter({ hasText: "Your picture is saved." }).first().waitFor();
      await expectAccessible(page);
      await takeScreenshot(page, `avatar-account-${scheme}-${String(width)}`);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
    });
  }
}
