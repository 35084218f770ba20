// Uploads of every kind that a crash of the server interrupts and that are continued after it, and
// the contents that their objects may have meanwhile.
import { createHash } from "node:crypto";
import { request as httpRequest } from "node:http";

import { CompleteMultipartUploadCommand, CreateMultipartUploadCommand, ListPartsCommand, S3Client, UploadPartCommand } from "@aws-sdk/client-s3";
import { expect } from "vitest";

import type { Portico } from "./portico.ts";
import { target as resumableMetadata } from "./resumable.ts";

/** The private bucket of all uploads. */
export const BUCKET = "files";
/** The smallest part of an upload to S3 besides the last one. */
const S3_PART = 5 * 1024 * 1024;

const hash = (algorithm: "md5" | "sha256", bytes: Uint8Array): string => createHash(algorithm).update(bytes).digest("hex");
export const digest = (bytes: Uint8Array): string => hash("sha256", bytes);

/** A sequence of numbers that depends on the seed alone (mulberry32). */
export class Sequence {
  constructor(private state: number) {}

  /** Returns a whole number from 0 to below `bound`. */
  below(bound: number): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  }

  shuffle<T>(items: T[]): T[] {
    for (let last = items.length - 1; last > 0; last -= 1) {
      const other = this.below(last + 1);
      [items[last], items[other]] = [items[other]!, items[last]!];
    }
    return items;
  }
}

/** A request was sent and has no answer: the server was killed. */
export class NoAnswer extends Error {}

/** A running server, until it is killed. */
export class Connection {
  readonly s3: S3Client;
  killed = false;

  constructor(
    readonly portico: Portico,
    /** Called with every answer. */
    private readonly onAnswer: (connection: Connection) => void,
  ) {
    const { STORAGE_S3_URL, S3_PROTOCOL_ACCESS_KEY_ID, S3_PROTOCOL_ACCESS_KEY_SECRET, S3_PROTOCOL_REGION } = portico.status;
    const credentials = { accessKeyId: S3_PROTOCOL_ACCESS_KEY_ID, secretAccessKey: S3_PROTOCOL_ACCESS_KEY_SECRET };
    this.s3 = new S3Client({ endpoint: STORAGE_S3_URL, region: S3_PROTOCOL_REGION, forcePathStyle: true, credentials, maxAttempts: 1, requestChecksumCalculation: "WHEN_REQUIRED" });
  }

  kill(): void {
    this.killed = true;
    this.portico.child.kill("SIGKILL");
  }

  get headers(): Record<string, string> {
    return { apikey: this.portico.status.SECRET_KEY };
  }

  url(path: string): string {
    return `${this.portico.url}/storage/v1${path}`;
  }

  /** Sends a request to a path of the service, and waits for the whole answer. */
  async request(method: string, path: string, headers: Record<string, string>, body?: Buffer): Promise<{ status: number; headers: Headers; bytes: Buffer }> {
    return this.answer(async () => {
      const response = await fetch(this.url(path), { method, headers: { ...this.headers, ...headers }, ...(body === undefined ? {} : { body: new Uint8Array(body) }) });
      return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
    });
  }

  /** Waits for the answer of a request. */
  async answer<T>(send: () => Promise<T>): Promise<T> {
    const answer = await send().catch((error: unknown) => {
      // An error of S3 that has a status is an answer
      const status = (error as { $metadata?: { httpStatusCode?: number } }).$metadata?.httpStatusCode;
      throw status === undefined ? new NoAnswer("the server was killed", { cause: error }) : error;
    });
    this.onAnswer(this);
    return answer;
  }

  /** Returns the digest of an object's content; `undefined` if there is no such object. */
  async contentOf(key: string): Promise<string | undefined> {
    const { status, bytes } = await this.request("GET", `/object/${BUCKET}/${key}`, {});
    if (status === 400) expect(JSON.parse(bytes.toString())).toMatchObject({ code: "NoSuchKey" });
    else expect(status, key).toBe(200);
    return status === 200 ? digest(bytes) : undefined;
  }

  /** Returns the names of all objects. */
  async names(): Promise<string[]> {
    const body = Buffer.from(JSON.stringify({ limit: 1000 }));
    const { bytes } = await this.request("POST", `/object/list-v2/${BUCKET}`, { "content-type": "application/json" }, body);
    const page = JSON.parse(bytes.toString()) as { hasNext: boolean; objects: { name: string }[] };
    expect(page.hasNext).toBe(false);
    return page.objects.map(({ name }) => name).sort();
  }
}

/** An object, and the contents that it may have. */
export class ExpectedObject {
  /** The digest of the content that the server has last confirmed. */
  confirmed: string | undefined;
  /** The digest of a content that was sent in whole, and that may be stored without an answer. */
  unanswered: string | undefined;
  /** False if something was sent since the last look at the object. */
  checked = true;

  constructor(readonly key: string) {}

  /** Sends the request that completes a content. */
  async completes<T>(content: string, send: () => Promise<T>, status: (answer: T) => number): Promise<void> {
    this.checked = false;
    this.unanswered = content;
    expect(status(await send()), this.key).toBe(200);
    this.confirmed = content;
    this.unanswered = undefined;
  }

  /**
   * Compares the object with what it may be: the last content that was confirmed, or one whose last
   * byte was sent and whose answer was lost with the server. What is found is stored from then on.
   */
  async check(connection: Connection): Promise<void> {
    const found = await connection.contentOf(this.key);
    const allowed = this.unanswered === undefined ? [this.confirmed] : [this.confirmed, this.unanswered];
    expect(allowed, `the content of ${this.key}`).toContain(found);
    this.confirmed = found;
    this.unanswered = undefined;
    this.checked = true;
  }
}

/** An upload that is continued after a crash, by another call of `run`. */
export interface InterruptedUpload {
  readonly object: ExpectedObject;
  /** Uploads what is missing. Returns when the server has confirmed the object. */
  run(connection: Connection): Promise<void>;
}

/** An upload in one request. */
export class SingleRequest implements InterruptedUpload {
  private readonly content: string;

  constructor(
    readonly object: ExpectedObject,
    private readonly bytes: Buffer,
    private readonly upsert: boolean,
  ) {
    this.content = digest(bytes);
  }

  async run(connection: Connection): Promise<void> {
    // It is stored already, and only its answer was lost
    if (this.object.confirmed === this.content) return;
    const headers = { "content-type": "text/plain", "x-upsert": String(this.upsert) };
    const send = () => connection.request("POST", `/object/${BUCKET}/${this.object.key}`, headers, this.bytes);
    await this.object.completes(this.content, send, ({ status }) => status);
  }
}

/** A resumable upload in three requests. */
export class ResumableUpload implements InterruptedUpload {
  private readonly content: string;
  private path: string | undefined;
  /** The offset that the server has confirmed. */
  private confirmed = 0;
  /** The end of what was sent. */
  private sent = 0;

  constructor(
    readonly object: ExpectedObject,
    private readonly bytes: Buffer,
  ) {
    this.content = digest(bytes);
  }

  async run(connection: Connection): Promise<void> {
    const { bytes, object } = this;
    const headers = { "tus-resumable": "1.0.0", "x-upsert": "true" };
    let offset = 0;
    if (this.path === undefined) {
      const metadata = Object.entries(resumableMetadata(BUCKET, object.key)).map(([name, value]) => `${name} ${Buffer.from(value).toString("base64")}`);
      const created = await connection.request("POST", "/upload/resumable", { ...headers, "upload-length": String(bytes.length), "upload-metadata": metadata.join() });
      expect(created.status).toBe(201);
      this.path = new URL(created.headers.get("location")!).pathname.replace("/storage/v1", "");
    } else {
      const head = await connection.request("HEAD", this.path, headers);
      expect(head.status, object.key).toBe(200);
      offset = Number(head.headers.get("upload-offset"));
      expect(offset, `the offset of ${object.key}`).toBeGreaterThanOrEqual(this.confirmed);
      expect(offset, `the offset of ${object.key}`).toBeLessThanOrEqual(this.sent);
      // A whole upload is a stored object, and the other way round
      expect(offset === bytes.length, object.key).toBe(object.confirmed === this.content);
    }
    const part = Math.ceil(bytes.length / 3);
    while (offset < bytes.length) {
      const end = Math.min(offset + part, bytes.length);
      this.sent = Math.max(this.sent, end);
      const patch = { ...headers, "upload-offset": String(offset), "content-type": "application/offset+octet-stream" };
      const send = () => connection.request("PATCH", this.path!, patch, bytes.subarray(offset, end));
      const isStored = ({ status, headers }: { status: number; headers: Headers }): number => (status === 204 && headers.get("upload-offset") === String(end) ? 200 : status);
      if (end === bytes.length) await object.completes(this.content, send, isStored);
      else expect(isStored(await send()), object.key).toBe(200);
      this.confirmed = end;
      offset = end;
    }
  }
}

/** An upload to S3 in two parts. */
export class PartedUpload implements InterruptedUpload {
  private readonly parts: Buffer[];
  private readonly content: string;
  private id: string | undefined;
  /** The ETags of the parts that the server has confirmed, by their numbers. */
  private readonly confirmed = new Map<number, string>();

  constructor(
    readonly object: ExpectedObject,
    bytes: Buffer,
  ) {
    this.parts = [Buffer.alloc(S3_PART, bytes), bytes];
    this.content = digest(Buffer.concat(this.parts));
  }

  async run(connection: Connection): Promise<void> {
    const place = { Bucket: BUCKET, Key: this.object.key };
    if (this.id === undefined) {
      const begun = await connection.answer(() => connection.s3.send(new CreateMultipartUploadCommand(place)));
      this.id = begun.UploadId!;
    } else if (this.object.confirmed !== this.content) {
      await this.checkParts(connection, { ...place, UploadId: this.id });
    }
    const upload = { ...place, UploadId: this.id };
    for (const [at, Body] of this.parts.entries()) {
      const PartNumber = at + 1;
      if (this.confirmed.has(PartNumber)) continue;
      const stored = await connection.answer(() => connection.s3.send(new UploadPartCommand({ ...upload, PartNumber, Body })));
      this.confirmed.set(PartNumber, stored.ETag!);
    }
    // Repeated where only the answer was lost: an equal completion has an equal answer
    const Parts = [...this.confirmed].map(([PartNumber, ETag]) => ({ PartNumber, ETag }));
    const send = () => connection.answer(() => connection.s3.send(new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts } })));
    await this.object.completes(this.content, send, ({ $metadata }) => $metadata.httpStatusCode ?? 0);
  }

  /** Every part that was confirmed is listed, and every part that is listed is whole. */
  private async checkParts(connection: Connection, upload: { Bucket: string; Key: string; UploadId: string }): Promise<void> {
    const { Parts = [] } = await connection.answer(() => connection.s3.send(new ListPartsCommand(upload)));
    const listed = new Map(Parts.map(({ PartNumber, ETag }) => [PartNumber!, ETag!]));
    for (const [number, etag] of this.confirmed) expect(listed.get(number), `part ${number} of ${upload.Key}`).toBe(etag);
    for (const [number, etag] of listed) expect(etag, `part ${number} of ${upload.Key}`).toBe(`"${hash("md5", this.parts[number - 1]!)}"`);
  }
}

/** Sends half of an upload in one request, and nothing more. Returns when that is sent. */
export function sendHalf(connection: Connection, key: string): Promise<void> {
  const bytes = Buffer.alloc(200_000, "half ");
  const headers = { ...connection.headers, "x-upsert": "true", "content-type": "text/plain", "content-length": 2 * bytes.length };
  const request = httpRequest(connection.url(`/object/${BUCKET}/${key}`), { method: "POST", headers });
  // With the server
  request.on("error", () => undefined);
  return new Promise((done) => request.write(bytes, () => { done(); }));
}
