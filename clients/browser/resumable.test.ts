// Resumable uploads from a page of another origin: drag and drop, pause, resume, and a reload.
import { createHash } from "node:crypto";

import type { Page, Route } from "playwright-core";
import { expect, test } from "vitest";

import { OWN_FOLDERS_OF_FILES } from "../harness/storage.ts";
import { startApplication } from "./application-page.ts";

const HTML = `<!doctype html><html lang="en"><title>Upload</title><h1>Upload</h1>
<div id="zone" style="height: 200px">Drop files here</div><progress id="progress" value="0" max="1"></progress>
<button id="pause">Pause</button><button id="resume">Resume</button><p id="state"></p><p id="error"></p>
<script type="module" src="/page.js"></script>`;
/** A part of a file. */
const CHUNK = 200_000;

const site = startApplication({ files: OWN_FOLDERS_OF_FILES }, "resumable-page.ts", HTML);

async function open(page: Page): Promise<void> {
  const { session } = (await site.alice.client.auth.getSession()).data;
  const settings = new URLSearchParams({
    endpoint: `${site.portico.url}/storage/v1/upload/resumable`,
    token: session!.access_token,
    key: site.portico.status.PUBLISHABLE_KEY,
    folder: site.alice.id,
    chunk: String(CHUNK),
  });
  await page.goto(`${site.application.origin}/#${settings.toString()}`);
}

/** Drops a file whose bytes follow from its size. */
async function drop(page: Page, name: string, size: number): Promise<void> {
  const transfer = await page.evaluateHandle(
    ([name, size]) => {
      const bytes = new Uint8Array(size).map((_, at) => (at * 7919) % 251);
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], name, { type: "video/mp4", lastModified: 1_700_000_000_000 }));
      return transfer;
    },
    [name, size] as const,
  );
  await page.dispatchEvent("#zone", "drop", { dataTransfer: transfer });
}

async function expectStored(name: string, size: number): Promise<void> {
  const { data, error } = await site.alice.client.storage.from("files").download(`${site.alice.id}/${name}`);
  expect(error).toBeNull();
  const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
  expect(digest(new Uint8Array(await data!.arrayBuffer()))).toBe(digest(new Uint8Array(size).map((_, at) => (at * 7919) % 251)));
  expect((await site.alice.client.storage.from("files").info(`${site.alice.id}/${name}`)).data).toMatchObject({ size, contentType: "video/mp4", cacheControl: "max-age=3600" });
}

/**
 * Holds the requests with parts from this offset on, until they are released, or dropped so that
 * later ones pass: the browser may not know yet that a page has given one up, and would send a
 * beginning of it.
 */
async function holdFrom(page: Page, offset: number): Promise<{ held: Promise<void>; release: () => Promise<void>; dropHeld: () => Promise<void> }> {
  const waiting: Route[] = [];
  let arrived = (): void => undefined;
  const held = new Promise<void>((done) => (arrived = done));
  let isOpen = false;
  await page.route("**/storage/v1/upload/resumable/*", async (route) => {
    const request = route.request();
    if (isOpen || request.method() !== "PATCH" || Number(request.headers()["upload-offset"]) < offset) {
      await route.continue();
      return;
    }
    waiting.push(route);
    arrived();
  });
  const release = async (): Promise<void> => {
    isOpen = true;
    for (const route of waiting) await route.continue();
  };
  const dropHeld = async (): Promise<void> => {
    isOpen = true;
    // Those of a page that was reloaded are gone
    for (const route of waiting) await route.abort().catch(() => undefined);
  };
  return { held, release, dropHeld };
}

const offsets = (page: Page): number[] => {
  const seen: number[] = [];
  page.on("request", (request) => {
    if (request.method() === "PATCH") seen.push(Number(request.headers()["upload-offset"]));
  });
  return seen;
};

test("a dropped file is stored in parts, with progress", async () => {
  const page = await site.context.newPage();
  const [seen, errors]: [number[], string[]] = [offsets(page), []];
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  await open(page);
  const { held, release } = await holdFrom(page, 3 * CHUNK);
  await drop(page, "dropped.mp4", 5 * CHUNK + 17);
  await held;
  await page.waitForFunction((least) => (document.getElementById("progress") as HTMLProgressElement).value >= least, 3 * CHUNK);
  expect(await page.locator("#progress").getAttribute("max")).toBe(String(5 * CHUNK + 17));
  await release();
  await page.getByText("stored 1, failed 0").waitFor();
  expect(seen).toEqual([0, 1, 2, 3, 4, 5].map((part) => part * CHUNK));
  await expectStored("dropped.mp4", 5 * CHUNK + 17);
  expect(errors).toEqual([]);
});

test("an upload that is paused resumes where it was", async () => {
  const page = await site.context.newPage();
  await open(page);
  const { held, dropHeld } = await holdFrom(page, 2 * CHUNK);
  await drop(page, "paused.mp4", 4 * CHUNK);
  await held;
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByText("paused").waitFor();
  await dropHeld();
  const seen = offsets(page);
  await page.getByRole("button", { name: "Resume" }).click();
  await page.getByText("stored 1, failed 0").waitFor();
  expect(seen[0]).toBe(2 * CHUNK);
  await expectStored("paused.mp4", 4 * CHUNK);
});

test("an upload that a reload interrupts resumes when the file is dropped again", async () => {
  const page = await site.context.newPage();
  await open(page);
  const { held, dropHeld } = await holdFrom(page, 3 * CHUNK);
  await drop(page, "reloaded.mp4", 4 * CHUNK);
  await held;
  await page.reload();
  await dropHeld();
  const seen = offsets(page);
  await drop(page, "reloaded.mp4", 4 * CHUNK);
  await page.getByText("stored 1, failed 0").waitFor();
  expect(seen).toEqual([3 * CHUNK]);
  await expectStored("reloaded.mp4", 4 * CHUNK);
});

test("a page learns why a file is refused", async () => {
  const page = await site.context.newPage();
  await open(page);
  await page.evaluate(() => {
    location.hash = location.hash.replace(/folder=[^&]*/, "folder=elsewhere");
  });
  await page.reload();
  await drop(page, "refused.mp4", 10);
  await page.getByText("stored 0, failed 1").waitFor();
  expect(await page.locator("#error").textContent()).toContain("new row violates row-level security policy");
});
