// Every method of the storage client: buckets, uploads, downloads, listings, moves, copies, signed
// URLs.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Portico } from "../harness/portico.ts";
import { done, startStorage } from "../harness/storage.ts";

let portico: Portico;
let service: SupabaseClient;
let alice: SupabaseClient;
let aliceId: string;

beforeAll(async () => {
  ({ portico, service, alice, aliceId } = await startStorage());
});
afterAll(() => portico.dispose());

/** Returns the error of a result, as applications look at it. */
async function failed(result: PromiseLike<{ data: unknown; error: unknown }>): Promise<Record<string, unknown>> {
  const { data, error } = await result;
  expect(data).toBeNull();
  const { name, message, status, statusCode } = error as Record<string, unknown>;
  return { name, message, status, statusCode };
}

describe("buckets", () => {
  test("are created, listed, read, changed, emptied and deleted", async () => {
    expect(await done(service.storage.createBucket("avatars", { public: false, fileSizeLimit: "1MB", allowedMimeTypes: ["image/*"] }))).toEqual({ name: "avatars" });
    // Beside it is the bucket of the account home
    const found = await done(service.storage.listBuckets({ search: "avat" }));
    expect(found.filter(({ id }) => id !== "portico-avatars")).toMatchObject([{ id: "avatars", name: "avatars", owner: "", public: false, file_size_limit: 1_000_000, allowed_mime_types: ["image/*"] }]);
    expect(await done(service.storage.updateBucket("avatars", { public: true, fileSizeLimit: null, allowedMimeTypes: null }))).toEqual({ message: "Successfully updated" });
    expect(await done(service.storage.getBucket("avatars"))).toMatchObject({ public: true, file_size_limit: null, allowed_mime_types: null });
    await done(service.storage.from("avatars").upload("a", "x"));
    expect(await failed(service.storage.deleteBucket("avatars"))).toMatchObject({ statusCode: "409", message: "The bucket you tried to delete is not empty" });
    await done(service.storage.emptyBucket("avatars"));
    expect(await done(service.storage.deleteBucket("avatars"))).toEqual({ message: "Successfully deleted" });
    expect(await failed(service.storage.getBucket("avatars"))).toEqual({ name: "StorageApiError", message: "Bucket not found", status: 400, statusCode: "404" });
  });

  test("of others do not exist for a user", async () => {
    expect(await done(alice.storage.listBuckets())).toEqual([]);
    expect(await failed(alice.storage.createBucket("mine"))).toEqual({ name: "StorageApiError", message: "new row violates row-level security policy", status: 400, statusCode: "403" });
  });
});

describe("objects", () => {
  const bodies = (text: string): [string, string | Blob | File | FormData | ArrayBuffer | Buffer | ReadableStream][] => {
    const form = new FormData();
    form.append("file", new Blob([text], { type: "text/plain" }));
    return [
      ["string", text],
      ["blob", new Blob([text], { type: "text/plain" })],
      ["file", new File([text], "x.txt", { type: "text/plain" })],
      ["form", form],
      ["buffer", Buffer.from(text)],
      ["array-buffer", new TextEncoder().encode(text).buffer],
      ["stream", new Blob([text]).stream()],
    ];
  };

  test.each(bodies("hello"))("are uploaded as %s and downloaded", async (kind, body) => {
    const path = `${aliceId}/bodies/${kind}.txt`;
    const files = alice.storage.from("files");
    const stored = await done(files.upload(path, body, { contentType: "text/plain", metadata: { kind }, duplex: "half" }));
    expect(stored).toMatchObject({ path, fullPath: `files/${path}`, id: expect.stringMatching(/^[0-9a-f-]{36}$/) as string });
    expect(await (await done(files.download(path))).text()).toBe("hello");
    const info = await done(files.info(path));
    expect(info).toMatchObject({ id: stored.id, name: path, bucketId: "files", size: 5, contentType: "text/plain", cacheControl: "max-age=3600" });
    if (kind !== "form") expect(info.metadata).toEqual({ kind });
  });

  test("are replaced by update and upsert only", async () => {
    const files = alice.storage.from("files");
    const path = `${aliceId}/replaced.txt`;
    await done(files.upload(path, "one"));
    expect(await failed(files.upload(path, "two"))).toEqual({ name: "StorageApiError", message: "The resource already exists", status: 400, statusCode: "409" });
    await done(files.upload(path, "three", { upsert: true }));
    await done(files.update(path, "four"));
    expect(await (await done(files.download(path))).text()).toBe("four");
    expect((await done(files.exists(path)))).toBe(true);
    expect((await files.exists(`${aliceId}/nothing`)).data).toBe(false);
  });

  test("are streamed", async () => {
    const path = `${aliceId}/large.bin`;
    const content = Buffer.alloc(3_000_000, "portico ");
    await done(alice.storage.from("files").upload(path, content, { contentType: "application/octet-stream" }));
    const chunks: Uint8Array[] = [];
    const stream = await done(alice.storage.from("files").download(path).asStream());
    for await (const chunk of stream as unknown as AsyncIterable<Uint8Array>) chunks.push(chunk);
    expect(Buffer.concat(chunks).equals(content)).toBe(true);
  });

  test("are moved, copied and removed", async () => {
    const files = alice.storage.from("files");
    const [from, to, copy] = ["from", "to", "copy"].map((name) => `${aliceId}/moved/${name}.txt`) as [string, string, string];
    await done(files.upload(from, "content"));
    expect(await done(files.move(from, to))).toEqual({ message: "Successfully moved" });
    expect(await done(files.copy(to, copy))).toEqual({ path: `files/${copy}` });
    expect(await failed(files.download(from))).toMatchObject({ statusCode: "404" });
    expect(await failed(files.copy(to, "elsewhere/x"))).toMatchObject({ statusCode: "403" });
    const removed = await done(files.remove([to, copy, "elsewhere"]));
    expect(removed.map(({ name }) => name).sort()).toEqual([copy, to]);
    expect(await done(files.list(`${aliceId}/moved`))).toEqual([]);
  });

  test("are copied and moved into another bucket", async () => {
    const files = alice.storage.from("files");
    const site = alice.storage.from("site");
    const to = (destinationBucket: string) => ({ destinationBucket });
    const [path, copy, moved] = ["from", "copy", "moved"].map((name) => `${aliceId}/across/${name}.txt`) as [string, string, string];
    const { id } = await done(files.upload(path, "content", { contentType: "text/plain", metadata: { album: "x" } }));
    expect(await done(files.copy(path, copy, to("site")))).toEqual({ path: `site/${copy}` });
    expect(await (await fetch(site.getPublicUrl(copy).data.publicUrl)).text()).toBe("content");
    expect(await done(site.info(copy))).toMatchObject({ bucketId: "site", size: 7, contentType: "text/plain", metadata: { album: "x" } });

    await done(service.storage.createBucket("pictures", { public: false, allowedMimeTypes: ["image/*"] }));
    for (const transfer of [files.copy.bind(files), files.move.bind(files)]) {
      expect(await failed(transfer(path, copy, to("site")))).toMatchObject({ statusCode: "409", message: "The resource already exists" });
      expect(await failed(transfer(path, "elsewhere/x", to("site")))).toMatchObject({ statusCode: "403", message: "new row violates row-level security policy" });
      expect(await failed(transfer(path, copy, to("unknown")))).toMatchObject({ statusCode: "404", message: "The related resource does not exist" });
      expect(await failed(transfer(path, copy, to("pictures")))).toMatchObject({ statusCode: "415", message: "mime type text/plain is not supported" });
    }
    expect(await (await done(files.download(path))).text()).toBe("content");

    expect(await done(files.move(path, moved, to("site")))).toEqual({ message: "Successfully moved" });
    expect(await done(site.info(moved))).toMatchObject({ id, bucketId: "site", size: 7, metadata: { album: "x" } });
    expect(await (await done(site.download(moved))).text()).toBe("content");
    expect(await failed(files.download(path))).toMatchObject({ statusCode: "404" });
    expect((await files.exists(path)).data).toBe(false);
  });

  test("are listed by folder and by page", async () => {
    const files = alice.storage.from("files");
    for (const name of ["a.txt", "b.txt", "sub/c.txt"]) await done(files.upload(`${aliceId}/listed/${name}`, "x"));
    const listed = await done(files.list(`${aliceId}/listed`, { sortBy: { column: "name", order: "desc" } }));
    expect(listed.map(({ name, id }) => [name, id === null])).toEqual([["sub", true], ["b.txt", false], ["a.txt", false]]);
    expect(await done(files.list(`${aliceId}/listed`, { search: "b", limit: 1 }))).toMatchObject([{ name: "b.txt", metadata: { size: 1 } }]);
    const names: (string | undefined)[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = await done(files.listV2({ prefix: `${aliceId}/listed/`, with_delimiter: true, limit: 1, ...(cursor === undefined ? {} : { cursor }) }));
      names.push(...page.folders.map(({ key }) => key), ...page.objects.map(({ key }) => key));
      if (!page.hasNext) break;
      cursor = page.nextCursor;
    }
    expect(names).toEqual(["a.txt", "b.txt", "sub"]);
  });

  test("of public buckets have a URL for everyone", async () => {
    await done(service.storage.from("site").upload("folder/the image.txt", "public", { contentType: "text/plain", cacheControl: "60" }));
    const { publicUrl } = service.storage.from("site").getPublicUrl("folder/the image.txt", { download: "x.txt" }).data;
    const response = await fetch(publicUrl);
    expect([response.status, await response.text(), response.headers.get("cache-control")]).toEqual([200, "public", "max-age=60"]);
    expect(response.headers.get("content-disposition")).toBe("attachment; filename=x.txt; filename*=UTF-8''x.txt");
    expect(await (await done(portico.client().storage.from("site").download("folder/the image.txt"))).text()).toBe("public");
    await done(service.storage.from("site").purgeCache("folder/the image.txt"));
  });

  test("are hidden from others", async () => {
    const visitor = portico.client();
    await done(alice.storage.from("files").upload(`${aliceId}/secret.txt`, "x"));
    expect(await failed(visitor.storage.from("files").download(`${aliceId}/secret.txt`))).toMatchObject({ message: "Object not found", statusCode: "404" });
    expect(await done(visitor.storage.from("files").list(aliceId))).toEqual([]);
    expect(await failed(visitor.storage.from("files").upload(`${aliceId}/x`, "x"))).toMatchObject({ statusCode: "403" });
  });
});

describe("signed URLs", () => {
  test("download one object or many", async () => {
    const files = alice.storage.from("files");
    const path = `${aliceId}/signed/a b.txt`;
    await done(files.upload(path, "signed"));
    const { signedUrl } = await done(files.createSignedUrl(path, 60, { download: true }));
    const response = await fetch(signedUrl);
    expect([response.status, await response.text(), response.headers.get("content-disposition")]).toEqual([200, "signed", "attachment;"]);
    const many = await done(files.createSignedUrls([path, "elsewhere"], 60));
    expect(many).toMatchObject([{ error: null, path }, { error: "Either the object does not exist or you do not have access to it", signedUrl: null }]);
    expect(await (await fetch(many[0]!.signedUrl ?? "")).text()).toBe("signed");
    expect(await failed(files.createSignedUrl("elsewhere", 60))).toMatchObject({ statusCode: "404" });
  });

  test("upload one object", async () => {
    const files = alice.storage.from("files");
    const path = `${aliceId}/signed/new.txt`;
    const { token, path: signedPath } = await done(files.createSignedUploadUrl(path));
    expect(signedPath).toBe(path);
    const visitor = portico.client().storage.from("files");
    expect(await done(visitor.uploadToSignedUrl(path, token, new Blob(["by URL"], { type: "text/plain" })))).toMatchObject({ path, fullPath: `files/${path}` });
    expect(await (await done(files.download(path))).text()).toBe("by URL");
    expect(await failed(visitor.uploadToSignedUrl(`${aliceId}/other.txt`, token, "x"))).toMatchObject({ message: "Invalid signature" });
  });
});

describe("features that a project does not have", () => {
  test("a cache in front: the service purges nothing, and others may not", async () => {
    for (const options of [undefined, { transformations: true } as const]) {
      expect(await done(service.storage.purgeBucketCache("site", options))).toEqual({ message: "success" });
      expect(await done(service.storage.from("site").purgeCache("folder/the image.txt", options))).toEqual({ message: "success" });
    }
    for (const client of [alice, portico.client()]) {
      const refused = { name: "StorageApiError", message: "Access denied: Invalid role", status: 403, statusCode: "403" };
      expect(await failed(client.storage.purgeBucketCache("site"))).toEqual(refused);
      expect(await failed(client.storage.from("site").purgeCache("folder/the image.txt"))).toEqual(refused);
    }
  });

  test("vector buckets: no action has a route", async () => {
    const { vectors } = service.storage;
    const bucket = vectors.from("embeddings");
    const index = bucket.index("documents");
    const vector = { float32: [0.1, 0.2] };
    const actions = {
      CreateVectorBucket: () => vectors.createBucket("embeddings"),
      GetVectorBucket: () => vectors.getBucket("embeddings"),
      ListVectorBuckets: () => vectors.listBuckets(),
      DeleteVectorBucket: () => vectors.deleteBucket("embeddings"),
      CreateIndex: () => bucket.createIndex({ indexName: "documents", dataType: "float32", dimension: 2, distanceMetric: "cosine" }),
      GetIndex: () => bucket.getIndex("documents"),
      ListIndexes: () => bucket.listIndexes(),
      DeleteIndex: () => bucket.deleteIndex("documents"),
      PutVectors: () => index.putVectors({ vectors: [{ key: "a", data: vector }] }),
      GetVectors: () => index.getVectors({ keys: ["a"] }),
      ListVectors: () => index.listVectors(),
      QueryVectors: () => index.queryVectors({ queryVector: vector, topK: 1 }),
      DeleteVectors: () => index.deleteVectors({ keys: ["a"] }),
    };
    for (const [action, call] of Object.entries(actions)) {
      expect(await failed(call())).toEqual({ name: "StorageVectorsApiError", message: `Route POST:/vector/${action} not found`, status: 404, statusCode: "404" });
    }
  });

  test("analytics buckets: every call learns that the feature is not enabled", async () => {
    const { analytics } = service.storage;
    const calls = [
      () => analytics.createBucket("tables"),
      () => analytics.listBuckets({ limit: 1, sortColumn: "name", sortOrder: "asc", search: "t" }),
      () => analytics.deleteBucket("tables"),
      () => service.storage.createBucket("tables", { public: false, type: "ANALYTICS" }),
    ];
    for (const call of calls) {
      expect(await failed(call())).toEqual({ name: "StorageApiError", message: "The feature iceberg is not enabled for this resource", status: 403, statusCode: "409" });
    }
    // The client of the catalog has errors of its own
    const catalog = analytics.from("tables");
    for (const call of [() => catalog.listNamespaces(), () => catalog.createNamespace({ namespace: ["n"] }), () => catalog.loadTable({ namespace: ["n"], name: "t" })]) {
      expect(await failed(call())).toMatchObject({ name: "IcebergError", status: 403 });
    }
    expect((await done(service.storage.listBuckets())).map(({ id }) => id)).not.toContain("tables");
  });
});
