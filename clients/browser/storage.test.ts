// The storage client and the AWS SDK in a browser, on the page of another origin: every method,
// with the preflights that its headers and its HTTP method need.
import type { Page } from "playwright-core";
import { expect, test } from "vitest";

import { OWN_FOLDERS_OF_FILES } from "../harness/storage.ts";
import { startApplication } from "./application-page.ts";
import type { StoragePage } from "./storage-page.ts";

const HTML = '<!doctype html><html lang="en"><title>Files</title><h1>Files</h1><script type="module" src="/page.js"></script>';

declare const window: { storage: StoragePage };

const site = startApplication({ files: OWN_FOLDERS_OF_FILES }, "storage-page.ts", HTML);

interface OpenPage {
  page: Page;
  /** Method and path of every preflight, and the headers that it asks for. */
  preflights: { request: string; headers: string[] }[];
}

/** Opens the page of the application with its clients. */
async function open(): Promise<OpenPage> {
  const { session } = (await site.alice.client.auth.getSession()).data;
  const { PUBLISHABLE_KEY, ANON_KEY, SECRET_KEY } = site.portico.status;
  const settings = { url: site.portico.url, publishable: PUBLISHABLE_KEY, anon: ANON_KEY, secret: SECRET_KEY, token: session!.access_token, folder: site.alice.id };
  const page = await site.context.newPage();
  const preflights: OpenPage["preflights"] = [];
  const network = await site.context.newCDPSession(page);
  await network.send("Network.enable");
  network.on("Network.requestWillBeSent", ({ initiator, request }) => {
    if (initiator.type !== "preflight") return;
    const header = (name: string): string => Object.entries(request.headers).find(([key]) => key.toLowerCase() === name)?.[1] ?? "";
    const path = new URL(request.url).pathname.replace("/storage/v1", "").replace(site.alice.id, "ALICE");
    preflights.push({ request: `${header("access-control-request-method")} ${path}`, headers: header("access-control-request-headers").split(",") });
  });
  await page.goto(`${site.application.origin}/#${new URLSearchParams(settings).toString()}`);
  await page.waitForFunction(() => "storage" in window);
  return { page, preflights };
}

/** Waits for the preflight of a request, and expects that it asks for these headers. */
async function expectPreflight({ preflights }: OpenPage, request: string, headers: string[]): Promise<void> {
  await expect.poll(() => preflights.find((preflight) => preflight.request === request)?.headers).toEqual(expect.arrayContaining(headers));
}

test("the secret key manages buckets from a page of this machine", async () => {
  const opened = await open();
  const results = await opened.page.evaluate(async () => {
    const { service, alice, done, failed } = window.storage;
    const created = await done(service.createBucket("album", { public: false, fileSizeLimit: "1MB", allowedMimeTypes: ["image/*"] }));
    const listed = await done(service.listBuckets({ search: "albu", limit: 1 }));
    const updated = await done(service.updateBucket("album", { public: true, fileSizeLimit: null, allowedMimeTypes: null }));
    const read = await done(service.getBucket("album"));
    await done(service.from("album").upload("a", new Blob(["x"])));
    const full = await failed(service.deleteBucket("album"));
    await done(service.emptyBucket("album"));
    const [purged, deleted] = [await done(service.purgeBucketCache("album")), await done(service.deleteBucket("album"))];
    return { created, listed, updated, read, full, purged, deleted, missing: await failed(service.getBucket("album")), refused: await failed(alice.createBucket("mine")) };
  });
  expect(results).toMatchObject({
    created: { name: "album" },
    listed: [{ id: "album", public: false, file_size_limit: 1_000_000, allowed_mime_types: ["image/*"] }],
    updated: { message: "Successfully updated" },
    read: { id: "album", public: true, file_size_limit: null, allowed_mime_types: null },
    full: { name: "StorageApiError", statusCode: "409", message: "The bucket you tried to delete is not empty" },
    purged: { message: "success" },
    deleted: { message: "Successfully deleted" },
    missing: { name: "StorageApiError", message: "Bucket not found", status: 400, statusCode: "404" },
    refused: { name: "StorageApiError", message: "new row violates row-level security policy", status: 400, statusCode: "403" },
  });
  await expectPreflight(opened, "POST /bucket", ["apikey", "authorization", "content-type", "x-client-info"]);
  await expectPreflight(opened, "PUT /bucket/album", ["apikey", "authorization", "content-type", "x-client-info"]);
  await expectPreflight(opened, "DELETE /cdn/album", ["authorization"]);
});

test.each(["file", "blob", "buffer"] as const)("a user uploads a %s with metadata, and replaces it", async (kind) => {
  const opened = await open();
  const results = await opened.page.evaluate(async (kind) => {
    const { alice, folder, done, failed } = window.storage;
    const files = alice.from("files");
    const options = { contentType: "text/plain", cacheControl: "60", metadata: { kind } };
    const body = (text: string): File | Blob | ArrayBuffer => {
      const type = "text/plain";
      return kind === "file" ? new File([text], "x.txt", { type }) : kind === "blob" ? new Blob([text], { type }) : new TextEncoder().encode(text).buffer;
    };
    const text = async (path: string): Promise<string> => (await done(files.download(path))).text();
    const [path, other] = [`${folder}/uploads/${kind}.txt`, `${folder}/uploads/updated ${kind}.txt`];
    const stored = await done(files.upload(path, body("one"), options));
    const duplicate = await failed(files.upload(path, body("two"), options));
    const replaced = await done(files.upload(path, body("three"), { ...options, upsert: true }));
    const updated = await done(files.update(other, body("four"), options));
    return { stored, duplicate, replaced, updated, texts: [await text(path), await text(other)], info: await done(files.info(path)), folder };
  }, kind);
  const path = `${site.alice.id}/uploads/${kind}.txt`;
  expect(results).toMatchObject({
    stored: { path, fullPath: `files/${path}`, id: results.replaced.id },
    duplicate: { name: "StorageApiError", message: "The resource already exists", status: 400, statusCode: "409" },
    updated: { fullPath: `files/${site.alice.id}/uploads/updated ${kind}.txt` },
    texts: ["three", "four"],
    info: { id: results.stored.id, name: path, size: 5, contentType: "text/plain", cacheControl: "max-age=60", metadata: { kind } },
  });
  // A form has in its fields what other bodies have in headers
  const headers = ["apikey", "authorization", "x-client-info", ...(kind === "buffer" ? ["cache-control", "x-metadata"] : [])];
  await expectPreflight(opened, `POST /object/files/ALICE/uploads/${kind}.txt`, [...headers, "x-upsert"]);
  await expectPreflight(opened, `PUT /object/files/ALICE/uploads/updated%20${kind}.txt`, headers);
});

test("a user lists, describes, streams, moves, copies and removes objects", async () => {
  const opened = await open();
  const results = await opened.page.evaluate(async () => {
    const { alice, visitor, folder, done, failed } = window.storage;
    const files = alice.from("files");
    const at = (name: string): string => `${folder}/listed/${name}`;
    for (const name of ["a.txt", "b.txt", "sub/c.txt"]) await done(files.upload(at(name), new Blob([name.repeat(50_000)], { type: "text/plain" })));
    const listed = await done(files.list(`${folder}/listed`, { sortBy: { column: "name", order: "desc" } }));
    const first = await done(files.listV2({ prefix: at(""), with_delimiter: true, limit: 2 }));
    const second = await done(files.listV2({ prefix: at(""), with_delimiter: true, limit: 2, cursor: first.nextCursor! }));

    const reader = (await done(files.download(at("a.txt")).asStream())).getReader() as ReadableStreamDefaultReader<Uint8Array>;
    let streamed = "";
    for (let next = await reader.read(); !next.done; next = await reader.read()) streamed += new TextDecoder().decode(next.value);

    const exist = [(await files.exists(at("a.txt"))).data, (await files.exists(at("z.txt"))).data];
    const moved = await done(files.move(at("a.txt"), at("moved.txt")));
    const copied = await done(files.copy(at("moved.txt"), at("copy.txt")));
    const hidden = await failed(visitor.from("files").download(at("b.txt")));
    const removed = await done(files.remove([at("moved.txt"), at("copy.txt"), at("z.txt")]));
    return {
      listed: listed.map(({ name, id }) => [name, id === null]),
      pages: [first, second].map(({ hasNext, folders, objects }) => [hasNext, ...objects.map(({ key }) => key), ...folders.map(({ key }) => key)]),
      isWhole: streamed === "a.txt".repeat(50_000),
      info: await done(files.info(at("b.txt"))),
      exist,
      moved,
      copied,
      hidden,
      removed: removed.map(({ name }) => name).sort(),
      left: (await done(files.list(`${folder}/listed`))).map(({ name }) => name),
    };
  });
  const at = (name: string): string => `${site.alice.id}/listed/${name}`;
  expect(results).toMatchObject({
    listed: [["sub", true], ["b.txt", false], ["a.txt", false]],
    pages: [[true, "a.txt", "b.txt"], [false, "sub"]],
    isWhole: true,
    info: { name: at("b.txt"), bucketId: "files", size: 250_000, contentType: "text/plain" },
    exist: [true, false],
    moved: { message: "Successfully moved" },
    copied: { path: `files/${at("copy.txt")}` },
    hidden: { name: "StorageApiError", message: "Object not found", status: 400, statusCode: "404" },
    removed: [at("copy.txt"), at("moved.txt")],
    left: ["b.txt", "sub"],
  });
  await expectPreflight(opened, "DELETE /object/files", ["apikey", "authorization", "content-type", "x-client-info"]);
  await expectPreflight(opened, "HEAD /object/files/ALICE/listed/z.txt", ["apikey", "authorization", "x-client-info"]);
});

test("links open on the page without a session", async () => {
  const opened = await open();
  const results = await opened.page.evaluate(async () => {
    const { alice, visitor, service, folder, done, failed, open } = window.storage;
    const files = alice.from("files");
    const [path, uploaded] = [`${folder}/links/a b.txt`, `${folder}/links/new.txt`];
    await done(files.upload(path, new Blob(["signed"], { type: "text/plain" })));
    const one = await open((await done(files.createSignedUrl(path, 60, { download: "x.txt" }))).signedUrl);
    const many = await done(files.createSignedUrls([path, "elsewhere"], 60));

    const { token } = await done(files.createSignedUploadUrl(uploaded));
    const stored = await done(visitor.from("files").uploadToSignedUrl(uploaded, token, new File(["by URL"], "x.txt", { type: "text/plain" })));
    const refused = await failed(visitor.from("files").uploadToSignedUrl(`${folder}/links/other.txt`, token, new Blob(["x"])));

    await done(service.createBucket("site", { public: true }));
    const drawing = new Blob(['<svg xmlns="http://www.w3.org/2000/svg" width="3" height="2"/>'], { type: "image/svg+xml" });
    await done(service.from("site").upload("folder/the image.svg", drawing, { cacheControl: "60" }));
    const { publicUrl } = service.from("site").getPublicUrl("folder/the image.svg").data;
    const image = new Image();
    image.src = publicUrl;
    await image.decode();
    return {
      one,
      many: many.map(({ error, path }) => [error, path]),
      second: (await open(many[0]!.signedUrl!)).text,
      stored,
      text: await (await done(files.download(uploaded))).text(),
      refused,
      drawn: [image.naturalWidth, image.naturalHeight],
      published: await open(publicUrl),
    };
  });
  const at = (name: string): string => `${site.alice.id}/links/${name}`;
  expect(results).toMatchObject({
    one: { text: "signed", headers: { "content-type": "text/plain", "content-disposition": "attachment; filename=x.txt; filename*=UTF-8''x.txt" } },
    many: [[null, at("a b.txt")], ["Either the object does not exist or you do not have access to it", "elsewhere"]],
    second: "signed",
    stored: { path: at("new.txt"), fullPath: `files/${at("new.txt")}` },
    text: "by URL",
    refused: { name: "StorageApiError", message: "Invalid signature" },
    drawn: [3, 2],
    published: { headers: { "content-type": "image/svg+xml", "cache-control": "max-age=60", etag: expect.stringMatching(/^"\w+"$/) as string } },
  });
  expect(results.published.headers["content-length"]).toBe(String(results.published.text.length));
  expect(results.published.headers).toHaveProperty("last-modified");
  await expectPreflight(opened, "PUT /object/upload/sign/files/ALICE/links/new.txt", ["apikey", "authorization", "x-client-info", "x-upsert"]);
});

test("the AWS SDK stores objects of a user, and reads the ETags of their parts", async () => {
  const opened = await open();
  const results = await opened.page.evaluate(async () => {
    const { s3, GetObjectCommand, PutObjectCommand, Upload, folder } = window.storage;
    const at = (name: string) => ({ Bucket: "files", Key: `${folder}/s3/${name}` });
    const { ETag } = await s3.send(new PutObjectCommand({ ...at("a.txt"), Body: "hello", ContentType: "text/plain", Metadata: { album: "x" } }));
    const got = await s3.send(new GetObjectCommand(at("a.txt")));
    const text = await got.Body!.transformToString();
    const parts = await new Upload({ client: s3, params: { ...at("parts"), Body: new Blob([new Uint8Array(6 * 1024 * 1024)]) } }).done();
    const refused = await s3.send(new PutObjectCommand({ Bucket: "files", Key: "elsewhere/a.txt", Body: "x" })).then(
      () => "stored",
      (error: unknown) => (error as Error).name,
    );
    return { ETag, read: { ETag: got.ETag, ContentType: got.ContentType, text }, parts: parts.ETag, refused };
  });
  const ETag = '"5d41402abc4b2a76b9719d911017c592"';
  expect(results).toEqual({ ETag, read: { ETag, ContentType: "text/plain", text: "hello" }, parts: expect.stringMatching(/-2"$/) as string, refused: "AccessDenied" });
  await expectPreflight(opened, "PUT /s3/files/ALICE/s3/a.txt", ["authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-meta-album", "x-amz-security-token"]);
});
