// The content in an object store, as `[storage.backend]` in `portico.toml` says.
import { randomBytes } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { ObjectStore } from "../harness/object-store.ts";
import { done, startStorage, type StorageServer } from "../harness/storage.ts";

let store: ObjectStore;
let server: StorageServer;

beforeAll(async () => {
  store = await ObjectStore.start();
  server = await startStorage("", store.files);
});
afterAll(async () => {
  await server.portico.dispose();
  await store.dispose();
});

/** Returns the place of an object's content in the store. */
const placeOf = async (path: string, bucket = "files"): Promise<string> => `${bucket}/${path}/${(await done(server.service.storage.from(bucket).info(path))).version}`;

test("objects are stored in the bucket of the store, replaced, copied, moved and deleted there", async () => {
  const files = server.alice.storage.from("files");
  const [path, copy, moved] = ["a b.txt", "copy.txt", "moved.txt"].map((name) => `${server.aliceId}/${name}`) as [string, string, string];
  await done(files.upload(path, "one", { contentType: "text/plain" }));
  expect(await store.paths()).toEqual([await placeOf(path)]);
  expect(await readdir(join(server.portico.folder, ".portico/storage/objects"))).toEqual([]);
  expect(await (await done(files.download(path))).text()).toBe("one");

  await done(files.upload(path, "two", { contentType: "text/plain", upsert: true }));
  await expect.poll(() => store.paths()).toEqual([await placeOf(path)]);
  expect(await (await done(files.download(path))).text()).toBe("two");
  const { signedUrl } = await done(files.createSignedUrl(path, 60));
  const part = await fetch(signedUrl, { headers: { range: "bytes=1-" } });
  expect([part.status, await part.text(), part.headers.get("content-range")]).toEqual([206, "wo", "bytes 1-2/3"]);

  await done(files.copy(path, copy));
  await done(files.move(path, moved, { destinationBucket: "site" }));
  await expect.poll(() => store.paths()).toEqual([await placeOf(copy), await placeOf(moved, "site")]);
  expect(await (await fetch(server.alice.storage.from("site").getPublicUrl(moved).data.publicUrl)).text()).toBe("two");

  await done(files.remove([copy]));
  await done(server.alice.storage.from("site").remove([moved]));
  await expect.poll(() => store.paths()).toEqual([]);
  expect((await files.download(copy)).error).toMatchObject({ message: "Object not found", statusCode: "404" });
});

test("large objects arrive in parts", async () => {
  const files = server.alice.storage.from("files");
  const path = `${server.aliceId}/large.bin`;
  const content = randomBytes(11 * 1024 * 1024);
  await done(files.upload(path, content, { contentType: "application/octet-stream" }));
  // The ETag is the one of the store, with the number of parts
  expect(await done(files.info(path))).toMatchObject({ size: content.length, etag: expect.stringMatching(/-3"$/) as string });
  expect(Buffer.from(await (await done(files.download(path))).arrayBuffer()).equals(content)).toBe(true);
  expect(await store.unfinished()).toBe(0);
  await done(files.remove([path]));
  await expect.poll(() => store.paths()).toEqual([]);
});
