// Resumable uploads with the official client, as promises.
import { createHash, randomBytes } from "node:crypto";

import { Upload, type UploadOptions } from "tus-js-client";

import type { Portico } from "./portico.ts";

/** The size of a part that the documentation of the storage client recommends. */
export const CHUNK = 6 * 1024 * 1024;

/** Returns the endpoint of resumable uploads. */
export const endpointOf = (portico: Portico): string => `${portico.url}/storage/v1/upload/resumable`;

/** Returns content that is not repetitive, with a known part at the beginning. */
export const content = (size: number, seed = ""): Buffer => {
  const head = Buffer.from(seed);
  return Buffer.concat([head, randomBytes(Math.max(0, size - head.length))]).subarray(0, size);
};

export const digest = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** Returns the metadata of an object, as applications write it. */
export const target = (bucketName: string, objectName: string, extra: Record<string, string> = {}): Record<string, string> => ({
  bucketName,
  objectName,
  contentType: "application/octet-stream",
  cacheControl: "3600",
  ...extra,
});

/** The outcome of an upload. */
export interface Outcome {
  upload: Upload;
  /** `undefined` if the upload succeeded. */
  error: { status?: number | undefined; body?: string | undefined; message: string } | undefined;
}

/** Uploads `bytes` until the end, the first error that is not retried. */
export function upload(bytes: Buffer, options: UploadOptions, control: { started?: (upload: Upload) => void } = {}): Promise<Outcome> {
  return new Promise((done) => {
    const made: Upload = new Upload(bytes, {
      chunkSize: CHUNK,
      retryDelays: null,
      ...options,
      onError: (error) => {
        const response = "originalResponse" in error ? error.originalResponse : null;
        done({ upload: made, error: { status: response?.getStatus(), body: response?.getBody(), message: error.message } });
      },
      onSuccess: () => {
        done({ upload: made, error: undefined });
      },
    });
    control.started?.(made);
    made.start();
  });
}
