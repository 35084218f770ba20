// The S3 endpoint as the AWS SDK and an independent client use it: every operation, and users under
// row-level security.
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";

import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CopyObjectCommand,
  CreateBucketCommand,
  CreateMultipartUploadCommand,
  DeleteBucketCommand,
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetBucketLocationCommand,
  GetBucketVersioningCommand,
  GetObjectAclCommand,
  GetObjectCommand,
  GetObjectTaggingCommand,
  HeadBucketCommand,
  HeadObjectCommand,
  ListBucketsCommand,
  ListMultipartUploadsCommand,
  type ListMultipartUploadsCommandOutput,
  ListObjectsCommand,
  ListObjectsV2Command,
  ListPartsCommand,
  PutObjectCommand,
  PutObjectTaggingCommand,
  type S3Client,
  UploadPartCommand,
  UploadPartCopyCommand,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { Client as Minio } from "minio";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { Portico } from "../harness/portico.ts";
import { s3ClientOf, startS3 } from "../harness/s3.ts";

const CONFIG = `
[storage]
file_size_limit = "20MiB"
`;

let portico: Portico;
let s3: S3Client;
let alice: S3Client;
let aliceId: string;
let endpoint: string;

beforeAll(async () => {
  const server = await startS3(CONFIG);
  ({ portico, s3 } = server);
  ({ s3: alice, id: aliceId } = server.alice);
  endpoint = portico.status.STORAGE_S3_URL;
});
afterAll(() => portico.dispose());

const put = (Key: string, Body: string | Uint8Array = "x", client = s3, Bucket = "files") => client.send(new PutObjectCommand({ Bucket, Key, Body }));
const read = async (Key: string, client = s3, Bucket = "files"): Promise<string> => (await client.send(new GetObjectCommand({ Bucket, Key }))).Body!.transformToString();
const md5 = (...parts: Uint8Array[]): string => createHash("md5").update(Buffer.concat(parts)).digest("hex");

/** Returns the error of a command, as applications look at it. */
async function failed(result: Promise<unknown>): Promise<{ name: string; status: number | undefined }> {
  const error = await result.then(
    () => expect.fail("it succeeded"),
    (error: unknown) => error as { name: string; $metadata?: { httpStatusCode?: number } },
  );
  return { name: error.name, status: error.$metadata?.httpStatusCode };
}

describe("buckets", () => {
  test("are created, listed, read and deleted", async () => {
    expect(await s3.send(new CreateBucketCommand({ Bucket: "photos", ACL: "public-read" }))).toMatchObject({ Location: "/photos" });
    expect(await failed(s3.send(new CreateBucketCommand({ Bucket: "photos" })))).toEqual({ name: "BucketAlreadyExists", status: 409 });
    const { Buckets } = await s3.send(new ListBucketsCommand({}));
    // The server keeps the pictures of accounts in one of its own
    expect(Buckets!.map(({ Name }) => Name).filter((name) => name !== "portico-avatars")).toEqual(["files", "photos"]);
    expect(Buckets![0]!.CreationDate).toBeInstanceOf(Date);
    expect(await s3.send(new HeadBucketCommand({ Bucket: "photos" }))).toMatchObject({ BucketRegion: "local" });
    expect(await s3.send(new GetBucketLocationCommand({ Bucket: "photos" }))).toMatchObject({ LocationConstraint: "local" });
    expect(await s3.send(new GetBucketVersioningCommand({ Bucket: "photos" }))).toMatchObject({ Status: "Suspended", MFADelete: "Disabled" });
    const { data } = await portico.client({}, portico.status.SECRET_KEY).storage.getBucket("photos");
    expect(data).toMatchObject({ public: true });
    await put("a", "x", s3, "photos");
    expect(await failed(s3.send(new DeleteBucketCommand({ Bucket: "photos" })))).toEqual({ name: "ResourceNotEmpty", status: 409 });
    await s3.send(new DeleteObjectCommand({ Bucket: "photos", Key: "a" }));
    await s3.send(new DeleteBucketCommand({ Bucket: "photos" }));
    expect(await failed(s3.send(new HeadBucketCommand({ Bucket: "photos" })))).toMatchObject({ status: 404 });
    expect(await failed(s3.send(new CreateBucketCommand({ Bucket: "ü" })))).toMatchObject({ name: "InvalidBucketName", status: 400 });
  });
});

describe("objects", () => {
  test("are stored with their headers and sent with them", async () => {
    const Key = "folder/a file+(1).txt";
    const stored = await s3.send(
      new PutObjectCommand({ Bucket: "files", Key, Body: "hello", ContentType: "text/html", CacheControl: "max-age=60", Metadata: { album: "x", Year: "2026" } }),
    );
    expect(stored.ETag).toBe(`"${md5(Buffer.from("hello"))}"`);
    const head = await s3.send(new HeadObjectCommand({ Bucket: "files", Key }));
    expect(head).toMatchObject({ ContentLength: 5, ContentType: "text/html", CacheControl: "max-age=60", ETag: stored.ETag, Metadata: { album: "x", year: "2026" } });
    const got = await s3.send(new GetObjectCommand({ Bucket: "files", Key, Range: "bytes=1-3" }));
    expect([await got.Body!.transformToString(), got.ContentRange, got.$metadata.httpStatusCode]).toEqual(["ell", "bytes 1-3/5", 206]);
    expect(got.LastModified).toBeInstanceOf(Date);
    const overridden = await s3.send(new GetObjectCommand({ Bucket: "files", Key, ResponseContentType: "text/css", ResponseContentDisposition: "attachment" }));
    expect(overridden).toMatchObject({ ContentType: "text/css", ContentDisposition: "attachment" });
    expect(await failed(s3.send(new GetObjectCommand({ Bucket: "files", Key, IfNoneMatch: stored.ETag })))).toMatchObject({ status: 304 });
    expect(await failed(s3.send(new GetObjectCommand({ Bucket: "files", Key, IfModifiedSince: new Date() })))).toMatchObject({ status: 304 });
    expect(await failed(s3.send(new GetObjectCommand({ Bucket: "files", Key, IfMatch: '"x"' })))).toEqual({ name: "PreconditionFailed", status: 412 });
    expect(await failed(s3.send(new GetObjectCommand({ Bucket: "files", Key, Range: "bytes=9-" })))).toEqual({ name: "InvalidRange", status: 416 });
    expect(await s3.send(new GetObjectTaggingCommand({ Bucket: "files", Key }))).toMatchObject({ TagSet: [] });
    expect(await failed(s3.send(new GetObjectCommand({ Bucket: "files", Key: "missing" })))).toEqual({ name: "NoSuchKey", status: 404 });
    expect(await failed(s3.send(new HeadObjectCommand({ Bucket: "files", Key: "missing" })))).toMatchObject({ status: 404 });
    expect(await failed(s3.send(new GetObjectCommand({ Bucket: "missing", Key })))).toEqual({ name: "NoSuchBucket", status: 404 });
    expect(await failed(put("ä/ö", "x"))).toEqual({ name: "InvalidKey", status: 400 });
    expect(await failed(put("a/../b", "x"))).toMatchObject({ status: 400 });
    const { data } = await portico.client({}, portico.status.SECRET_KEY).storage.from("files").info(Key);
    expect(data).toMatchObject({ size: 5, contentType: "text/html", metadata: { album: "x", year: "2026" } });
  });

  test("arrive as streams, in chunks with checksums behind them", async () => {
    const content = randomBytes(3_000_000);
    const stream = (): Readable => Readable.from([content.subarray(0, 1_000_000), content.subarray(1_000_000)]);
    for (const ChecksumAlgorithm of [undefined, "CRC32", "SHA256", "SHA1", "CRC32C"] as const) {
      const { ETag } = await s3.send(
        new PutObjectCommand({ Bucket: "files", Key: "streamed", Body: stream(), ContentLength: content.length, ...(ChecksumAlgorithm ? { ChecksumAlgorithm } : {}) }),
      );
      expect(ETag, ChecksumAlgorithm).toBe(`"${md5(content)}"`);
    }
    expect(await failed(put("large", Buffer.alloc(21 * 1024 * 1024)))).toEqual({ name: "EntityTooLarge", status: 413 });
  });

  test("mark folders, and are only created where that is the condition", async () => {
    await put("empty/", "");
    expect(await read("empty/.emptyFolderPlaceholder")).toBe("");
    await s3.send(new PutObjectCommand({ Bucket: "files", Key: "once", Body: "1", IfNoneMatch: "*" }));
    expect(await failed(s3.send(new PutObjectCommand({ Bucket: "files", Key: "once", Body: "2", IfNoneMatch: "*" })))).toEqual({ name: "PreconditionFailed", status: 412 });
    expect(await read("once")).toBe("1");
  });

  test("are replaced where one version of them is the condition, and read as one part", async () => {
    const { ETag } = await put("versioned", "1");
    await s3.send(new PutObjectCommand({ Bucket: "files", Key: "versioned", Body: "22", IfMatch: ETag! }));
    expect(await failed(s3.send(new PutObjectCommand({ Bucket: "files", Key: "versioned", Body: "3", IfMatch: ETag! })))).toEqual({ name: "PreconditionFailed", status: 412 });
    expect(await failed(s3.send(new PutObjectCommand({ Bucket: "files", Key: "never", Body: "3", IfMatch: ETag! })))).toEqual({ name: "NoSuchKey", status: 404 });
    const part = await s3.send(new GetObjectCommand({ Bucket: "files", Key: "versioned", PartNumber: 1 }));
    expect([await part.Body!.transformToString(), part.ContentRange]).toEqual(["22", "bytes 0-1/2"]);
    expect(await failed(s3.send(new GetObjectCommand({ Bucket: "files", Key: "versioned", PartNumber: 2 })))).toEqual({ name: "InvalidPartNumber", status: 416 });
  });

  test("are copied with their metadata, or with others", async () => {
    await s3.send(new PutObjectCommand({ Bucket: "files", Key: "from here", Body: "content", ContentType: "text/css", Metadata: { a: "1" } }));
    const CopySource = "/files/from%20here";
    const { CopyObjectResult } = await s3.send(new CopyObjectCommand({ Bucket: "files", Key: "to/copy", CopySource }));
    expect(CopyObjectResult).toMatchObject({ ETag: `"${md5(Buffer.from("content"))}"`, LastModified: expect.any(Date) as Date });
    expect(await s3.send(new HeadObjectCommand({ Bucket: "files", Key: "to/copy" }))).toMatchObject({ ContentType: "text/css", Metadata: { a: "1" } });
    await s3.send(new CopyObjectCommand({ Bucket: "files", Key: "to/copy", CopySource, MetadataDirective: "REPLACE", ContentType: "text/plain", Metadata: { b: "2" } }));
    expect(await s3.send(new HeadObjectCommand({ Bucket: "files", Key: "to/copy" }))).toMatchObject({ ContentType: "text/plain", CacheControl: "no-cache", Metadata: { b: "2" } });
    expect(await failed(s3.send(new CopyObjectCommand({ Bucket: "files", Key: "to/copy", CopySource, CopySourceIfMatch: "x" })))).toEqual({ name: "PreconditionFailed", status: 412 });
    expect(await failed(s3.send(new CopyObjectCommand({ Bucket: "files", Key: "to/copy", CopySource: "files/missing" })))).toEqual({ name: "NoSuchKey", status: 404 });
    expect(await failed(s3.send(new CopyObjectCommand({ Bucket: "missing", Key: "a", CopySource })))).toEqual({ name: "NoSuchBucket", status: 404 });
  });

  test("are deleted one by one and together", async () => {
    await Promise.all(["d/1", "d/2 & 3", "d/4"].map((key) => put(key)));
    expect(await s3.send(new DeleteObjectCommand({ Bucket: "files", Key: "d/1" }))).toMatchObject({ $metadata: { httpStatusCode: 204 } });
    expect(await s3.send(new DeleteObjectCommand({ Bucket: "files", Key: "d/1" }))).toMatchObject({ $metadata: { httpStatusCode: 204 } });
    expect(await failed(s3.send(new DeleteObjectCommand({ Bucket: "missing", Key: "d/1" })))).toEqual({ name: "NoSuchBucket", status: 404 });
    const Objects = ["d/2 & 3", "d/4", "d/missing"].map((Key) => ({ Key }));
    const { Deleted, Errors } = await s3.send(new DeleteObjectsCommand({ Bucket: "files", Delete: { Objects } }));
    expect([Deleted, Errors]).toEqual([Objects, undefined]);
    expect((await s3.send(new ListObjectsV2Command({ Bucket: "files", Prefix: "d/" }))).KeyCount).toBe(0);
  });

  test("have no subresources that could be taken for the object", async () => {
    await put("whole", "content");
    expect(await failed(s3.send(new PutObjectTaggingCommand({ Bucket: "files", Key: "whole", Tagging: { TagSet: [{ Key: "a", Value: "b" }] } })))).toEqual({ name: "NotImplemented", status: 501 });
    expect(await failed(s3.send(new GetObjectAclCommand({ Bucket: "files", Key: "whole" })))).toEqual({ name: "NotImplemented", status: 501 });
    expect(await read("whole")).toBe("content");
  });
});

describe("listings", () => {
  const names = ["a", "a b", "a-1", "a.txt", "a/x", "a/y/z", "b", "c/&", "ca"];
  beforeAll(async () => {
    await s3.send(new CreateBucketCommand({ Bucket: "lists" }));
    await Promise.all(names.map((name) => put(name, name, s3, "lists")));
  });

  test("have pages of every size, in both versions", async () => {
    for (const MaxKeys of [1, 2, 3, 1000]) {
      for (const Delimiter of [undefined, "/", "a"]) {
        const all = { Bucket: "lists", MaxKeys, ...(Delimiter ? { Delimiter } : {}) };
        const seen: [string[], string[]] = [[], []];
        for (let page, ContinuationToken: string | undefined; page === undefined || ContinuationToken; ) {
          page = await s3.send(new ListObjectsV2Command({ ...all, ...(ContinuationToken ? { ContinuationToken } : {}) }));
          expect(page.KeyCount).toBeLessThanOrEqual(MaxKeys);
          seen[0].push(...(page.Contents ?? []).map(({ Key }) => Key!), ...(page.CommonPrefixes ?? []).map(({ Prefix }) => `${Prefix!}*`));
          ContinuationToken = page.NextContinuationToken;
        }
        for (let page, Marker: string | undefined; page === undefined || Marker; ) {
          page = await s3.send(new ListObjectsCommand({ ...all, ...(Marker ? { Marker } : {}) }));
          const last = page.Contents?.at(-1)?.Key;
          seen[1].push(...(page.Contents ?? []).map(({ Key }) => Key!), ...(page.CommonPrefixes ?? []).map(({ Prefix }) => `${Prefix!}*`));
          Marker = page.IsTruncated ? (page.NextMarker ?? last) : undefined;
        }
        const group = (name: string): string => (Delimiter && name.includes(Delimiter) ? `${name.slice(0, name.indexOf(Delimiter) + 1)}*` : name);
        const expected = [...new Set(names.map(group))].sort();
        expect(seen.map((keys) => keys.sort()), `${String(MaxKeys)} ${String(Delimiter)}`).toEqual([expected, expected]);
      }
    }
  });

  test("begin behind a name, and describe each object", async () => {
    const page = await s3.send(new ListObjectsV2Command({ Bucket: "lists", StartAfter: "a/x", Prefix: "a" }));
    expect(page).toMatchObject({ Name: "lists", Prefix: "a", StartAfter: "a/x", KeyCount: 1, MaxKeys: 1000, IsTruncated: false });
    expect(page.Contents).toEqual([{ Key: "a/y/z", LastModified: expect.any(Date) as Date, ETag: `"${md5(Buffer.from("a/y/z"))}"`, Size: 5, StorageClass: "STANDARD" }]);
    const encoded = await s3.send(new ListObjectsV2Command({ Bucket: "lists", Prefix: "c/", EncodingType: "url" }));
    expect(encoded.Contents![0]!.Key).toBe("c/%26");
    expect(await failed(s3.send(new ListObjectsV2Command({ Bucket: "missing" })))).toEqual({ name: "NoSuchBucket", status: 404 });
    expect(await failed(s3.send(new ListObjectsV2Command({ Bucket: "lists", ContinuationToken: "%" })))).toMatchObject({ status: 400 });
  });
});

describe("uploads in parts", () => {
  // All but the last one have the least size
  const parts = [5 * 1024 * 1024, 5 * 1024 * 1024 + 1, 3].map((size, at) => Buffer.alloc(size, `part ${String(at)} `));

  test("become visible when they are completed", async () => {
    const target = { Bucket: "files", Key: "parted" };
    const { UploadId } = await s3.send(new CreateMultipartUploadCommand({ ...target, ContentType: "text/plain", Metadata: { a: "1" } }));
    const upload = { ...target, UploadId };
    const sent = [];
    for (const PartNumber of [3, 1, 2]) {
      const { ETag } = await s3.send(new UploadPartCommand({ ...upload, PartNumber, Body: parts[PartNumber - 1] }));
      expect(ETag).toBe(`"${md5(parts[PartNumber - 1]!)}"`);
      sent[PartNumber - 1] = { PartNumber, ETag };
    }
    expect(await failed(s3.send(new GetObjectCommand(target)))).toEqual({ name: "NoSuchKey", status: 404 });
    const page = await s3.send(new ListPartsCommand({ ...upload, MaxParts: 2 }));
    expect([page.Parts!.map(({ PartNumber }) => PartNumber), page.IsTruncated, page.NextPartNumberMarker]).toEqual([[1, 2], true, "2"]);
    expect((await s3.send(new ListPartsCommand({ ...upload, PartNumberMarker: "2" }))).Parts).toMatchObject([{ PartNumber: 3, ETag: sent[2]!.ETag, Size: 3 }]);
    expect((await s3.send(new ListMultipartUploadsCommand({ Bucket: "files" }))).Uploads).toMatchObject([{ Key: "parted", UploadId }]);
    const complete = (Parts: { PartNumber: number; ETag: string | undefined }[]) => s3.send(new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts } }));
    expect(await failed(complete([...sent, { PartNumber: 4, ETag: "x" }]))).toEqual({ name: "MissingPart", status: 400 });
    expect(await failed(complete([{ PartNumber: 1, ETag: sent[1]!.ETag }]))).toEqual({ name: "InvalidChecksum", status: 400 });
    expect(await failed(complete([...sent].reverse()))).toEqual({ name: "InvalidPartOrder", status: 400 });
    const etag = `"${createHash("md5").update(Buffer.concat(parts.map((part) => createHash("md5").update(part).digest()))).digest("hex")}-3"`;
    expect(await complete(sent)).toMatchObject({ ...target, Location: "files/parted", ETag: etag });
    expect(md5(await (await s3.send(new GetObjectCommand(target))).Body!.transformToByteArray())).toBe(md5(...parts));
    expect(await s3.send(new HeadObjectCommand(target))).toMatchObject({ ContentType: "text/plain", Metadata: { a: "1" }, ETag: etag, ContentLength: 10 * 1024 * 1024 + 4 });
    // A client that has lost the answer gets it again
    expect(await complete(sent)).toMatchObject({ ...target, ETag: etag });
    expect(await failed(complete(sent.slice(1)))).toEqual({ name: "NoSuchUpload", status: 404 });
  });

  test("can be aborted, and block the deletion of their bucket until then", async () => {
    await s3.send(new CreateBucketCommand({ Bucket: "pending" }));
    const { UploadId } = await s3.send(new CreateMultipartUploadCommand({ Bucket: "pending", Key: "a" }));
    await s3.send(new UploadPartCommand({ Bucket: "pending", Key: "a", UploadId, PartNumber: 1, Body: "x" }));
    expect(await failed(s3.send(new DeleteBucketCommand({ Bucket: "pending" })))).toEqual({ name: "ResourceReferenced", status: 409 });
    expect(await s3.send(new AbortMultipartUploadCommand({ Bucket: "pending", Key: "a", UploadId }))).toMatchObject({ $metadata: { httpStatusCode: 200 } });
    expect(await failed(s3.send(new UploadPartCommand({ Bucket: "pending", Key: "a", UploadId, PartNumber: 1, Body: "x" })))).toEqual({ name: "NoSuchUpload", status: 404 });
    await s3.send(new DeleteBucketCommand({ Bucket: "pending" }));
  });

  test("are limited in their sum, and take parts of other objects", async () => {
    const target = { Bucket: "files", Key: "limited" };
    await put("source", parts[0]!.subarray(0, 100_000));
    const { UploadId } = await s3.send(new CreateMultipartUploadCommand(target));
    const copied = await s3.send(new UploadPartCopyCommand({ ...target, UploadId, PartNumber: 1, CopySource: "files/source", CopySourceRange: "bytes=10-19" }));
    expect(copied.CopyPartResult!.ETag).toBe(`"${md5(parts[0]!.subarray(10, 20))}"`);
    expect(await failed(s3.send(new UploadPartCopyCommand({ ...target, UploadId, PartNumber: 1, CopySource: "files/source", CopySourceRange: "bytes=10-100000" })))).toMatchObject({ status: 416 });
    const large = Buffer.alloc(12 * 1024 * 1024);
    await s3.send(new UploadPartCommand({ ...target, UploadId, PartNumber: 2, Body: large }));
    await s3.send(new UploadPartCommand({ ...target, UploadId, PartNumber: 2, Body: large }));
    expect(await failed(s3.send(new UploadPartCommand({ ...target, UploadId, PartNumber: 3, Body: large })))).toEqual({ name: "EntityTooLarge", status: 413 });
    await s3.send(new AbortMultipartUploadCommand({ ...target, UploadId }));
  });

  test("are listed in pages and groups", async () => {
    await s3.send(new CreateBucketCommand({ Bucket: "begun" }));
    const keys = ["a", "b/1", "b/2", "c", "c", "d/1"];
    for (const Key of keys) await s3.send(new CreateMultipartUploadCommand({ Bucket: "begun", Key }));
    for (const Delimiter of [undefined, "/"]) {
      const seen: string[] = [];
      let marker: { KeyMarker?: string; UploadIdMarker?: string } | undefined = {};
      while (marker) {
        const page: ListMultipartUploadsCommandOutput = await s3.send(new ListMultipartUploadsCommand({ Bucket: "begun", MaxUploads: 2, ...(Delimiter ? { Delimiter } : {}), ...marker }));
        seen.push(...(page.Uploads ?? []).map(({ Key }) => Key!), ...(page.CommonPrefixes ?? []).map(({ Prefix }) => Prefix!));
        const { NextKeyMarker, NextUploadIdMarker } = page;
        marker = page.IsTruncated ? { KeyMarker: NextKeyMarker!, ...(NextUploadIdMarker ? { UploadIdMarker: NextUploadIdMarker } : {}) } : undefined;
      }
      expect(seen.sort()).toEqual(Delimiter ? ["a", "b/", "c", "c", "d/"] : keys);
    }
  });

  test("are made by the SDK's own uploader", async () => {
    const content = randomBytes(12 * 1024 * 1024);
    const upload = new Upload({ client: s3, params: { Bucket: "files", Key: "uploaded", Body: Readable.from([content.subarray(0, 7_000_000), content.subarray(7_000_000)]) } });
    const progress: number[] = [];
    upload.on("httpUploadProgress", ({ loaded }) => progress.push(loaded ?? 0));
    expect((await upload.done()).ETag).toMatch(/-3"$/);
    expect(progress.at(-1)).toBe(content.length);
    expect(md5(await (await s3.send(new GetObjectCommand({ Bucket: "files", Key: "uploaded" }))).Body!.transformToByteArray())).toBe(md5(content));
  });
});

describe("a user", () => {
  test("does what the policies allow, and sees nothing else", async () => {
    const own = `${aliceId}/a.txt`;
    await put("others/secret", "secret");
    await put(own, "mine", alice);
    expect(await read(own, alice)).toBe("mine");
    const { data } = await portico.client({}, portico.status.SECRET_KEY).storage.from("files").list(aliceId);
    expect(data).toHaveLength(1);
    expect((await alice.send(new ListObjectsV2Command({ Bucket: "files" }))).Contents!.map(({ Key }) => Key)).toEqual([own]);
    expect((await alice.send(new ListBucketsCommand({}))).Buckets ?? []).toEqual([]);
    expect(await failed(alice.send(new GetObjectCommand({ Bucket: "files", Key: "others/secret" })))).toEqual({ name: "NoSuchKey", status: 404 });
    expect(await failed(alice.send(new HeadObjectCommand({ Bucket: "files", Key: "others/secret" })))).toMatchObject({ status: 404 });
    expect(await failed(put("others/secret", "overwritten", alice))).toEqual({ name: "AccessDenied", status: 403 });
    expect(await failed(alice.send(new CopyObjectCommand({ Bucket: "files", Key: `${aliceId}/b`, CopySource: "files/others/secret" })))).toEqual({ name: "NoSuchKey", status: 404 });
    expect(await failed(alice.send(new CopyObjectCommand({ Bucket: "files", Key: "others/b", CopySource: `files/${own}` })))).toEqual({ name: "AccessDenied", status: 403 });
    await alice.send(new DeleteObjectCommand({ Bucket: "files", Key: "others/secret" }));
    const { Deleted } = await alice.send(new DeleteObjectsCommand({ Bucket: "files", Delete: { Objects: [{ Key: "others/secret" }, { Key: own }] } }));
    expect(Deleted).toHaveLength(2);
    expect(await read("others/secret")).toBe("secret");
    expect(await failed(s3.send(new HeadObjectCommand({ Bucket: "files", Key: own })))).toMatchObject({ status: 404 });
    expect(await failed(alice.send(new CreateBucketCommand({ Bucket: "mine" })))).toEqual({ name: "AccessDenied", status: 403 });
  });

  test("has uploads in parts of its own", async () => {
    const foreign = { Bucket: "files", Key: "others/parts" };
    expect(await failed(alice.send(new CreateMultipartUploadCommand(foreign)))).toEqual({ name: "AccessDenied", status: 403 });
    const { UploadId } = await s3.send(new CreateMultipartUploadCommand({ Bucket: "files", Key: `${aliceId}/parts` }));
    const attempts = [
      () => alice.send(new UploadPartCommand({ Bucket: "files", Key: `${aliceId}/parts`, UploadId, PartNumber: 1, Body: "x" })),
      () => alice.send(new ListPartsCommand({ Bucket: "files", Key: `${aliceId}/parts`, UploadId })),
      () => alice.send(new AbortMultipartUploadCommand({ Bucket: "files", Key: `${aliceId}/parts`, UploadId })),
    ];
    for (const attempt of attempts) expect(await failed(attempt())).toEqual({ name: "NoSuchUpload", status: 404 });
    expect((await alice.send(new ListMultipartUploadsCommand({ Bucket: "files" }))).Uploads ?? []).toEqual([]);
    const upload = new Upload({ client: alice, params: { Bucket: "files", Key: `${aliceId}/parts`, Body: Buffer.alloc(6 * 1024 * 1024, "a") } });
    expect((await upload.done()).ETag).toMatch(/-2"$/);
    await s3.send(new AbortMultipartUploadCommand({ Bucket: "files", Key: `${aliceId}/parts`, UploadId }));
  });

  test("needs a valid token and the secret that belongs to it", async () => {
    const client = (credentials: Parameters<typeof s3ClientOf>[1]) => s3ClientOf(portico, credentials);
    const { S3_PROTOCOL_ACCESS_KEY_ID: accessKeyId, ANON_KEY } = portico.status;
    const list = new ListBucketsCommand({});
    expect(await failed(client({ accessKeyId, secretAccessKey: "wrong" }).send(list))).toEqual({ name: "SignatureDoesNotMatch", status: 403 });
    expect(await failed(client({ accessKeyId: "unknown", secretAccessKey: "wrong" }).send(list))).toEqual({ name: "AccessDenied", status: 403 });
    expect(await failed(client({ accessKeyId: "stub", secretAccessKey: ANON_KEY, sessionToken: "x" }).send(list))).toEqual({ name: "SignatureDoesNotMatch", status: 403 });
    expect(await failed(client({ accessKeyId: "stub", secretAccessKey: "wrong", sessionToken: ANON_KEY }).send(list))).toEqual({ name: "SignatureDoesNotMatch", status: 403 });
    expect((await client({ accessKeyId: "stub", secretAccessKey: ANON_KEY, sessionToken: ANON_KEY }).send(list)).Buckets ?? []).toEqual([]);
  });
});

describe("another client", () => {
  test("works as with any store", async () => {
    const { hostname, port } = new URL(endpoint);
    // The client has no setting for a path before the bucket
    const prefix = new URL(endpoint).pathname;
    class PrefixedMinio extends Minio {
      protected override getRequestOptions(options: Parameters<Minio["getRequestOptions"]>[0]): ReturnType<Minio["getRequestOptions"]> {
        const made = super.getRequestOptions(options);
        return { ...made, path: prefix + made.path };
      }
    }
    const minio = new PrefixedMinio({
      endPoint: hostname,
      port: Number(port),
      useSSL: false,
      pathStyle: true,
      region: "local",
      accessKey: portico.status.S3_PROTOCOL_ACCESS_KEY_ID,
      secretKey: portico.status.S3_PROTOCOL_ACCESS_KEY_SECRET,
    });
    await minio.makeBucket("minio", "local");
    expect(await minio.bucketExists("minio")).toBe(true);
    const content = randomBytes(100_000);
    await minio.putObject("minio", "folder/a b.bin", content, content.length, { "Content-Type": "image/png", "X-Amz-Meta-Album": "x" });
    expect(await minio.statObject("minio", "folder/a b.bin")).toMatchObject({ size: 100_000, etag: md5(content), metaData: { "content-type": "image/png", album: "x" } });
    const chunks: Buffer[] = [];
    for await (const chunk of await minio.getObject("minio", "folder/a b.bin")) chunks.push(chunk as Buffer);
    expect(md5(...chunks)).toBe(md5(content));
    const large = randomBytes(11 * 1024 * 1024);
    await minio.putObject("minio", "large", Readable.from([large.subarray(0, 1_000_000), large.subarray(1_000_000)]));
    expect(await minio.statObject("minio", "large")).toMatchObject({ size: large.length });
    const listed: (string | undefined)[] = [];
    for await (const item of minio.listObjectsV2("minio", "", true)) listed.push((item as { name?: string }).name);
    expect(listed).toEqual(["folder/a b.bin", "large"]);
    const signed = await minio.presignedGetObject("minio", "large", 60);
    expect(signed).toContain("X-Amz-Signature");
    await minio.removeObjects("minio", listed.map((name) => name!));
    await minio.removeBucket("minio");
    expect(await minio.bucketExists("minio")).toBe(false);
  }, 60_000);
});
