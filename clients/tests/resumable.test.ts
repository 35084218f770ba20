// Resumable uploads with tus-js-client and Uppy, unchanged.
import { rm } from "node:fs/promises";

import type { SupabaseClient } from "@supabase/supabase-js";
import Uppy from "@uppy/core";
import Tus from "@uppy/tus";
import { Upload } from "tus-js-client";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { signedUp } from "../harness/accounts.ts";
import { Portico, projectFolder } from "../harness/portico.ts";
import { CHUNK, content, digest, endpointOf, target, upload } from "../harness/resumable.ts";
import { OWN_FOLDERS_OF_FILES } from "../harness/storage.ts";

const files = OWN_FOLDERS_OF_FILES;

let portico: Portico;
let service: SupabaseClient;
let alice: SupabaseClient;
let aliceId: string;
let headers: Record<string, string>;

const headersOf = async (client: SupabaseClient): Promise<Record<string, string>> => ({ authorization: `Bearer ${(await client.auth.getSession()).data.session!.access_token}` });

/** Returns the content of an object. */
async function stored(client: SupabaseClient, name: string): Promise<Uint8Array> {
  const { data, error } = await client.storage.from("files").download(name);
  expect(error).toBeNull();
  return new Uint8Array(await data!.arrayBuffer());
}

beforeAll(async () => {
  portico = await Portico.start({ files });
  service = portico.client({}, portico.status.SECRET_KEY);
  ({ client: alice, id: aliceId } = await signedUp(portico));
  headers = await headersOf(alice);
});
afterAll(() => portico.dispose());

describe("tus-js-client", () => {
  test("stores a file in parts of the recommended size", async () => {
    const bytes = content(2 * CHUNK + 12_345);
    const name = `${aliceId}/parts.bin`;
    const progress: number[] = [];
    const outcome = await upload(bytes, {
      endpoint: endpointOf(portico),
      headers,
      metadata: target("files", name, { contentType: "video/mp4", metadata: JSON.stringify({ album: "x" }) }),
      onChunkComplete: (_size, accepted) => progress.push(accepted),
    });
    expect(outcome.error).toBeUndefined();
    expect(progress).toEqual([CHUNK, 2 * CHUNK, bytes.length]);
    expect(outcome.upload.url).toMatch(new RegExp(`^${endpointOf(portico)}/[A-Za-z0-9_-]+$`));
    expect(digest(await stored(alice, name))).toBe(digest(bytes));
    expect((await alice.storage.from("files").info(name)).data).toMatchObject({ size: bytes.length, contentType: "video/mp4", cacheControl: "max-age=3600", metadata: { album: "x" } });
  });

  test("stores a file in one request, with its creation, and of unknown length", async () => {
    const bytes = content(300_000);
    const options = { endpoint: endpointOf(portico), headers: { ...headers, "x-upsert": "true" } };
    for (const [name, extra] of [
      ["one", { chunkSize: Infinity }],
      ["creation", { uploadDataDuringCreation: true }],
      ["creation-parts", { uploadDataDuringCreation: true, chunkSize: 100_000 }],
      ["deferred", { uploadLengthDeferred: true, chunkSize: 100_000 }],
      ["override", { overridePatchMethod: true, chunkSize: 100_000 }],
    ] as const) {
      const outcome = await upload(bytes, { ...options, ...extra, metadata: target("files", `${aliceId}/${name}`) });
      expect(outcome.error, name).toBeUndefined();
      expect(digest(await stored(alice, `${aliceId}/${name}`)), name).toBe(digest(bytes));
    }
    expect((await upload(Buffer.alloc(0), { ...options, metadata: target("files", `${aliceId}/empty`) })).error).toBeUndefined();
    expect((await stored(alice, `${aliceId}/empty`)).length).toBe(0);
  });

  test("pauses and resumes, also as another client with the address of the upload", async () => {
    const bytes = content(5 * 100_000);
    const name = `${aliceId}/paused.bin`;
    const options = { endpoint: endpointOf(portico), headers, metadata: target("files", name), chunkSize: 100_000 };
    const url = await new Promise<string>((done, fail) => {
      const first = new Upload(bytes, {
        ...options,
        onError: fail,
        onChunkComplete: (_size, accepted) => {
          if (accepted === 200_000) void first.abort().then(() => { done(first.url!); }, fail);
        },
      });
      first.start();
    });
    const accepted: number[] = [];
    const outcome = await upload(bytes, { ...options, uploadUrl: url, onChunkComplete: (_size, total) => accepted.push(total) });
    expect(outcome.error).toBeUndefined();
    expect(accepted[0]).toBeGreaterThanOrEqual(300_000);
    expect(digest(await stored(alice, name))).toBe(digest(bytes));
    // The address of a finished upload: nothing is sent again
    const again = await upload(bytes, { ...options, uploadUrl: url, onChunkComplete: () => expect.unreachable() });
    expect(again.error).toBeUndefined();
    // Its object is gone: the client begins a new upload
    await alice.storage.from("files").remove([name]);
    const anew = await upload(bytes, { ...options, uploadUrl: url });
    expect([anew.error, anew.upload.url === url]).toEqual([undefined, false]);
    expect(digest(await stored(alice, name))).toBe(digest(bytes));
  });

  test("ends an upload", async () => {
    const name = `${aliceId}/ended.bin`;
    const options = { endpoint: endpointOf(portico), headers, metadata: target("files", name), chunkSize: 1000 };
    const url = await new Promise<string>((done, fail) => {
      const ended = new Upload(content(10_000), {
        ...options,
        onError: fail,
        onChunkComplete: () => void ended.abort(true).then(() => { done(ended.url!); }, fail),
      });
      ended.start();
    });
    const head = await fetch(url, { method: "HEAD", headers: { ...headers, "tus-resumable": "1.0.0" } });
    expect(head.status).toBe(404);
  });

  test("reports what the policies and the limits say", async () => {
    await service.storage.createBucket("images", { public: false, fileSizeLimit: 1000, allowedMimeTypes: ["image/*"] });
    const attempt = async (metadata: Record<string, string>, size = 10, more: Record<string, string> = headers): Promise<[number | undefined, string | undefined]> => {
      const { error } = await upload(content(size), { endpoint: endpointOf(portico), headers: more, metadata });
      return [error?.status, error?.body?.trim()];
    };
    expect(await attempt(target("files", "elsewhere/x"))).toEqual([403, "new row violates row-level security policy"]);
    expect(await attempt(target("none", "x"))).toEqual([404, "Bucket not found"]);
    expect(await attempt(target("files", `${aliceId}/../x`))).toEqual([400, `Invalid key: ${aliceId}/../x`]);
    expect(await attempt(target("images", `${aliceId}/x`))).toEqual([415, "mime type application/octet-stream is not supported"]);
    expect(await attempt(target("images", `${aliceId}/x`, { contentType: "image/png" }), 1001)).toEqual([413, "Maximum size exceeded"]);
    expect(await attempt(target("files", `${aliceId}/twice`))).toEqual([undefined, undefined]);
    expect(await attempt(target("files", `${aliceId}/twice`))).toEqual([409, "The resource already exists"]);
    expect(await attempt(target("files", `${aliceId}/twice`), 10, { ...headers, "x-upsert": "true" })).toEqual([undefined, undefined]);
    const [status, body] = await attempt(target("files", `${aliceId}/y`), 10, { authorization: "Bearer broken" });
    expect([status, JSON.parse(body!)]).toEqual([400, { statusCode: "403", code: "AccessDenied", error: "Unauthorized", message: "Invalid Compact JWS" }]);
  });

  test("stores a file with a signed upload URL instead of a token", async () => {
    const name = `${aliceId}/signed.bin`;
    const { data } = await alice.storage.from("files").createSignedUploadUrl(name);
    const bytes = content(250_000);
    const endpoint = `${endpointOf(portico)}/sign`;
    const outcome = await upload(bytes, { endpoint, headers: { "x-signature": data!.token }, metadata: target("files", name), chunkSize: 100_000 });
    expect(outcome.error).toBeUndefined();
    expect(outcome.upload.url!.startsWith(`${endpoint}/`)).toBe(true);
    expect(digest(await stored(alice, name))).toBe(digest(bytes));
    const other = await upload(bytes, { endpoint, headers: { "x-signature": data!.token }, metadata: target("files", `${aliceId}/other.bin`) });
    expect([other.error?.status, other.error?.body]).toEqual([400, "Invalid signature"]);
  });
});

test("Uppy stores files and pauses", async () => {
  const uppy = new Uppy().use(Tus, { endpoint: endpointOf(portico), headers, chunkSize: 100_000, limit: 2, allowedMetaFields: ["bucketName", "objectName", "contentType", "cacheControl"] });
  const contents = new Map(["a", "b", "c"].map((name) => [`${aliceId}/uppy/${name}`, content(450_000)]));
  for (const [objectName, bytes] of contents) {
    // Outside of browsers the client reads buffers; Uppy itself reads their size
    const data = Object.assign(Buffer.from(bytes), { size: bytes.length }) as unknown as Blob;
    uppy.addFile({ name: objectName, type: "application/octet-stream", data, meta: { ...target("files", objectName) } });
  }
  let paused = false;
  uppy.on("upload-progress", (file, progress) => {
    if (paused || file === undefined || progress.bytesUploaded < 100_000) return;
    paused = true;
    uppy.pauseResume(file.id);
    setImmediate(() => uppy.pauseResume(file.id));
  });
  const result = await uppy.upload();
  expect(result!.failed).toEqual([]);
  expect([result!.successful!.length, paused]).toEqual([3, true]);
  for (const [name, bytes] of contents) expect(digest(await stored(alice, name))).toBe(digest(bytes));
  uppy.destroy();
});

test("what a crash of the server interrupts is resumed, and nothing is torn", async () => {
  const folder = await projectFolder({ files });
  try {
    let running = await Portico.start({ folder });
    const key = (): Record<string, string> => ({ apikey: running.status.SECRET_KEY });
    // One request with everything, and files in parts: some are finished, some are not
    const uploads = Array.from({ length: 12 }, (_, n) => ({ name: `n/${String(n)}`, bytes: content(n === 0 ? 40_000_000 : 50_000 + n * 30_000), url: "" }));
    const made: Upload[] = [];
    const outcomes = uploads.map((each, n) =>
      upload(
        each.bytes,
        {
          endpoint: endpointOf(running),
          headers: key(),
          metadata: target("files", each.name),
          chunkSize: n === 0 ? Infinity : 10_000,
          onUploadUrlAvailable: () => { each.url = made[n]!.url!; },
          onProgress: (bytesSent) => {
            if (n === 0 && bytesSent > 36_000_000) running.child.kill("SIGKILL");
          },
        },
        { started: (started) => (made[n] = started) },
      ),
    );
    const ended = await Promise.all(outcomes);
    expect(running.child.signalCode ?? running.child.killed, ended[0]!.error?.message).toBeTruthy();
    await running.ended();
    const before = running.url;
    running = await Portico.start({ folder });
    for (const [n, { name, bytes, url }] of uploads.entries()) {
      const uploadUrl = url.replace(before, running.url);
      const head = await fetch(uploadUrl, { method: "HEAD", headers: { ...key(), "tus-resumable": "1.0.0" } });
      const offset = Number(head.headers.get("upload-offset"));
      expect(head.status, name).toBe(200);
      // A whole checkpoint of the one request is there, and every part that the server has named
      if (n === 0) expect(offset).toBeGreaterThanOrEqual(16 * 1024 * 1024);
      else if (ended[n]!.error === undefined) expect(offset, name).toBe(bytes.length);
      const outcome = await upload(bytes, { endpoint: endpointOf(running), headers: key(), metadata: target("files", name), uploadUrl });
      expect(outcome.error, name).toBeUndefined();
      expect(outcome.upload.url, "the same upload").toBe(uploadUrl);
      expect(digest(await stored(running.client({}, running.status.SECRET_KEY), name)), name).toBe(digest(bytes));
    }
    await running.stop();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}, 120_000);
