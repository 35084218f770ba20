// @vitest-environment node
import { readdir, readFile, rm, stat } from "node:fs/promises";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { build, type Manifest } from "vite";
import { afterAll, beforeAll, expect, test, vi } from "vitest";

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "portico-web-"));
  // As `npm run build` does it: the build of the test environment is larger.
  vi.stubEnv("NODE_ENV", "production");
  await build({
    root: resolve(import.meta.dirname, ".."),
    mode: "production",
    logLevel: "error",
    define: { "process.env.NODE_ENV": '"production"' },
    build: { outDir: folder, emptyOutDir: true },
  });
}, 300_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

/**
 * Returns the entry's script and its static imports: with the authentication client, every script
 * of the landing page.
 */
async function landingScripts(includesClient: boolean): Promise<string[]> {
  // Our own build's manifest has Vite's shape.
  const manifest = JSON.parse(await readFile(join(folder, "manifest.json"), "utf8")) as Manifest;
  const client = Object.keys(manifest).filter((name) => name.includes("@supabase/auth-js"));
  expect(client.length).toBeGreaterThan(0);
  const wanted = ["index.html", ...(includesClient ? client : [])];
  const files = new Set<string>(["theme.js"]);
  for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
    const chunk = manifest[name];
    if (!chunk || files.has(chunk.file)) continue;
    files.add(chunk.file);
    wanted.push(...(chunk.imports ?? []));
  }
  return [...files];
}

/** Returns the compressed size in KiB. */
async function compressed(scripts: string[]): Promise<number> {
  const sizes = await Promise.all(scripts.map(async (file) => (await stat(join(folder, `${file}.br`))).size));
  expect(sizes.length).toBeGreaterThan(1);
  return sizes.reduce((sum, size) => sum + size, 0) / 1024;
}

test("the landing page loads at most 90 KiB of compressed script, 75 of them before it is shown", async () => {
  const first = await compressed(await landingScripts(false));
  expect(first).toBeGreaterThan(40);
  expect(first).toBeLessThanOrEqual(75);
  expect(await compressed(await landingScripts(true))).toBeLessThanOrEqual(90);
});

test("every text file has its compressed siblings, and the page no inline code", async () => {
  const files = await readdir(folder, { recursive: true });
  const scripts = files.filter((file) => /\.(?:js|css|html)$/.test(file));
  for (const file of scripts) {
    const { size } = await stat(join(folder, file));
    if (size < 200) continue;
    expect(files).toContain(`${file}.br`);
    expect(files).toContain(`${file}.gz`);
  }
  for (const file of files.filter((name) => name.endsWith(".html"))) {
    const page = await readFile(join(folder, file), "utf8");
    expect(page).not.toMatch(/<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=/i);
    // The places that the server fills when it starts.
    for (const slot of ["title", "icon", "config", "mark", "name"]) expect(page).toContain(`<!--slot:${slot}-->`);
  }
});

test("each page has a file with its skeleton, which requests all of its scripts at once", async () => {
  const manifest = JSON.parse(await readFile(join(folder, "manifest.json"), "utf8")) as Manifest;
  for (const [file, sources] of [
    ["sign-in.html", ["src/routes/sign-in.tsx"]],
    ["app.html", ["src/routes/account.tsx", "auth-js"]],
    ["404.html", ["src/pages.tsx"]],
  ] as const) {
    const page = await readFile(join(folder, file), "utf8");
    for (const source of ["src/pages.tsx", ...sources]) {
      const chunk = Object.entries(manifest).find(([name]) => name.endsWith(source) || (source === "auth-js" && name.includes("@supabase/auth-js")))?.[1];
      for (const script of [chunk?.file, ...(chunk?.imports ?? []).map((name) => manifest[name]?.file)]) {
        expect(page, `${file}: ${source}`).toContain(`href="/${script}"`.replace(/href=(?=.*index-)/, ""));
      }
    }
    expect(page.includes('class="skeleton')).toBe(file !== "404.html");
  }
  expect(await readFile(join(folder, "index.html"), "utf8")).not.toContain("skeleton");
});
