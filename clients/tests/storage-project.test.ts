// The buckets of a project folder.
import { appendFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";

import type { SupabaseClient } from "@supabase/supabase-js";
import { expect, test } from "vitest";

import { Portico, portico as command, write } from "../harness/portico.ts";

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

    // The configuration is read again
    await rm(join(portico.folder, "supabase/images/c.png"));
    const added = "[storage.buckets.added]\npublic = true\n";
    await appendFile(join(portico.folder, "supabase/config.toml"), added);
    const again = await command(["seed", "buckets", "--workdir", portico.folder]);
    expect([again.code, again.stderr]).toEqual([0, expect.stringContaining("Creating Storage bucket: added")]);
    expect((await storage.getBucket("added")).data).toMatchObject({ public: true });
  } finally {
    await portico.dispose();
  }
}, 120_000);

test("a reset of the database deletes the content of the objects before it", async () => {
  const config = `
[storage.buckets.images]
objects_path = "./images"
`;
  const portico = await Portico.start({ config, files: { "supabase/images/a.txt": "seeded" } });
  try {
    const files = async (): Promise<number> => {
      const entries = await readdir(join(portico.folder, ".portico/storage/objects"), { recursive: true, withFileTypes: true });
      return entries.filter((entry) => entry.isFile()).length;
    };
    expect((await storageOf(portico).from("images").upload("b.txt", "uploaded")).error).toBeNull();
    expect(await files()).toBe(2);
    const reset = await command(["db", "reset", "--workdir", portico.folder]);
    expect([reset.code, reset.stderr]).toEqual([0, expect.stringContaining("Finished portico db reset")]);
    expect(await files()).toBe(1);
    const images = storageOf(portico).from("images");
    expect(await (await images.download("a.txt")).data!.text()).toBe("seeded");
    expect((await images.download("b.txt")).error).not.toBeNull();
    expect(portico.log).not.toMatch(/WARN|ERROR/);
  } finally {
    await portico.dispose();
  }
}, 120_000);

test("a limit above the global one is reported, and so is a service that is turned off", async () => {
  const portico = await Portico.start({ config: '[storage]\nfile_size_limit = "1MiB"\n[storage.buckets.films]\nfile_size_limit = "5MiB"\n' });
  try {
    expect(portico.log).toContain("WARN: [storage.buckets.films] file_size_limit is above [storage] file_size_limit, which applies: 1048576 bytes");
  } finally {
    await portico.dispose();
  }
  const off = await Portico.start({ config: "[storage]\nenabled = false\n" });
  try {
    const seeded = await command(["seed", "buckets", "--workdir", off.folder]);
    expect([seeded.code, seeded.stderr]).toEqual([0, expect.stringContaining("WARN: the storage service is turned off")]);
  } finally {
    await off.dispose();
  }
}, 120_000);
