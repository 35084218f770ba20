// The buckets of a project folder, and uploads that a crash interrupts.
import { createHash, randomInt } from "node:crypto";
import { rm } from "node:fs/promises";

import type { SupabaseClient } from "@supabase/supabase-js";
import { expect, test } from "vitest";

import { Portico, portico as command, projectFolder, write } from "../harness/portico.ts";

const storageOf = (portico: Portico): SupabaseClient["storage"] => portico.client({}, portico.status.SECRET_KEY).storage;

test.each(["development", "production"])("buckets of the configuration are made at the start in %s, and changed on request", async (stage) => {
  const config = `
[storage.buckets.images]
public = true
file_size_limit = "1MiB"
allowed_mime_types = ["image/svg+xml", "text/plain; charset=utf-8"]
objects_path = "./images"
`;
  const project = { config, files: { "supabase/images/deep/a.svg": "<svg/>", "supabase/images/b.txt": "one" } };
  const portico = await (stage === "production" ? Portico.serve(project) : Portico.start(project));
  try {
    expect(portico.log).toContain("Creating Storage bucket: images");
    expect(portico.log).toContain("Uploading: supabase/images/b.txt => images/b.txt");
    const storage = storageOf(portico);
    expect((await storage.getBucket("images")).data).toMatchObject({ public: true, file_size_limit: 1024 * 1024 });
    const sent = await fetch(storage.from("images").getPublicUrl("deep/a.svg").data.publicUrl);
    expect([await sent.text(), sent.headers.get("content-type"), sent.headers.get("cache-control")]).toEqual(["<svg/>", "image/svg+xml", "max-age=3600"]);

    await write(portico.folder, "supabase/images/b.txt", "two");
    await storage.updateBucket("images", { public: false });
    const seeded = await command(["seed", "buckets", "--workdir", portico.folder]);
    expect(seeded.stderr).toContain("Updating Storage bucket: images");
    expect(seeded.code).toBe(0);
    expect(await (await storage.from("images").download("b.txt")).data!.text()).toBe("two");
    expect((await storage.getBucket("images")).data).toMatchObject({ public: true });

    await write(portico.folder, "supabase/images/c.png", "\u0089PNG is not allowed");
    const failed = await command(["seed", "buckets", "--workdir", portico.folder]);
    expect([failed.code, failed.stderr.includes("mime type image/png is not supported")]).toEqual([1, true]);
  } finally {
    await portico.dispose();
  }
}, 120_000);

test("an acknowledged upload survives a crash, and no other object is torn", async () => {
  const folder = await projectFolder();
  const content = (n: number): Buffer => Buffer.alloc(1000 + n * 3001, `content of ${n} `);
  const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");
  const acknowledged = new Set<number>();
  let next = 0;
  try {
    let portico = await Portico.start({ folder });
    await storageOf(portico).createBucket("files", { public: false });
    // The server is killed while uploads are in flight: eight times within 200 acknowledged
    // uploads, each time a moment of random length after another one
    for (const acknowledgements of [7, 31, 12, 48, 19, 3, 54, 26]) {
      const files = storageOf(portico).from("files");
      const until = acknowledged.size + acknowledgements;
      const uploads = async (): Promise<void> => {
        for (;;) {
          const n = next++;
          const { error } = await files.upload(`n/${n}`, content(n % 150), { contentType: "text/plain" });
          if (error !== null) return;
          acknowledged.add(n);
          if (acknowledged.size === until) setTimeout(() => portico.child.kill("SIGKILL"), randomInt(12));
        }
      };
      await Promise.all(Array.from({ length: 12 }, uploads));
      await portico.ended();
      portico = await Portico.start({ folder });
      const again = storageOf(portico).from("files");
      const listed = await again.list("n", { limit: 1000 });
      const names = new Set(listed.data!.map(({ name }) => Number(name)));
      for (const n of acknowledged) expect(names.has(n), `object ${n} is there`).toBe(true);
      for (const n of names) {
        const { data, error } = await again.download(`n/${n}`);
        expect(error).toBeNull();
        expect(digest(new Uint8Array(await data!.arrayBuffer()))).toBe(digest(content(n % 150)));
      }
    }
    await portico.stop();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}, 300_000);
