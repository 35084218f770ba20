// Images through the storage client: public, authenticated and signed URLs with `transform`.
import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, expect, test } from "vitest";

import type { Portico } from "../harness/portico.ts";
import { done, startStorage } from "../harness/storage.ts";

let portico: Portico;
let service: SupabaseClient;
let alice: SupabaseClient;
let aliceId: string;

beforeAll(async () => {
  ({ portico, service, alice, aliceId } = await startStorage("[storage.image_transformation]\nenabled = true\n"));
  await done(service.storage.from("site").upload("picture.bmp", bitmap(40, 20), { contentType: "image/bmp" }));
  await done(alice.storage.from("files").upload(`${aliceId}/picture.bmp`, bitmap(40, 20), { contentType: "image/bmp" }));
});
afterAll(() => portico.dispose());

/** A bitmap of one colour, 24 bits a pixel. */
function bitmap(width: number, height: number): Uint8Array<ArrayBuffer> {
  const stride = Math.ceil((width * 3) / 4) * 4;
  const file = new DataView(new ArrayBuffer(54 + stride * height));
  file.setUint16(0, 0x424d);
  file.setUint32(2, file.byteLength, true);
  file.setUint32(10, 54, true);
  file.setUint32(14, 40, true);
  file.setInt32(18, width, true);
  file.setInt32(22, height, true);
  file.setUint16(26, 1, true);
  file.setUint16(28, 24, true);
  const bytes = new Uint8Array(file.buffer);
  return bytes.fill(200, 54);
}

/** The format, width and height of a WebP (with loss, without alpha) or JPEG image. */
async function described(image: Blob): Promise<{ type: string; width: number; height: number }> {
  const view = new DataView(await image.arrayBuffer());
  if (view.getUint32(0) === 0x52494646) {
    return { type: "webp", width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff };
  }
  expect(view.getUint16(0)).toBe(0xffd8);
  for (let position = 2; position < view.byteLength; position += 2 + view.getUint16(position + 2)) {
    if (view.getUint16(position) === 0xffc0) {
      return { type: "jpeg", width: view.getUint16(position + 7), height: view.getUint16(position + 5) };
    }
  }
  throw new Error("a JPEG without a frame");
}

test("a public URL with transform leads to the image in that size", async () => {
  const { data } = service.storage.from("site").getPublicUrl("picture.bmp", { transform: { width: 10, height: 10, resize: "contain", quality: 60 } });
  const response = await fetch(data.publicUrl, { headers: { accept: "image/webp,*/*" } });
  expect(response.status).toBe(200);
  expect(response.headers.get("content-type")).toBe("image/webp");
  expect(response.headers.get("x-transformations")).toBe("height:10,width:10,resizing_type:fit,quality:60");
  expect(response.headers.get("vary")).toContain("Accept");
  expect(await described(await response.blob())).toEqual({ type: "webp", width: 10, height: 5 });
});

test("download with transform renders what the policies let the user read", async () => {
  const image = await done(alice.storage.from("files").download(`${aliceId}/picture.bmp`, { transform: { width: 8, height: 8, format: "origin" } }));
  expect(await described(image)).toEqual({ type: "jpeg", width: 8, height: 8 });
  const { data, error } = await portico.client().storage.from("files").download(`${aliceId}/picture.bmp`, { transform: { width: 8 } });
  expect(data).toBeNull();
  expect(error).not.toBeNull();
});

test("a signed URL carries the transform", async () => {
  const { signedUrl } = await done(alice.storage.from("files").createSignedUrl(`${aliceId}/picture.bmp`, 60, { transform: { width: 20, resize: "contain" }, download: "small.jpg" }));
  expect(signedUrl).toContain("/render/image/sign/");
  const response = await fetch(`${signedUrl}&width=1`, { headers: { accept: "*/*" } });
  expect(response.status).toBe(200);
  expect(response.headers.get("content-disposition")).toContain("small.jpg");
  expect(await described(await response.blob())).toEqual({ type: "jpeg", width: 20, height: 10 });
});

test("a parameter outside its bounds is an error of the client's kind", async () => {
  const { error } = await alice.storage.from("files").createSignedUrl(`${aliceId}/picture.bmp`, 60, { transform: { quality: 5 } });
  expect(error).toMatchObject({ status: 400, statusCode: "400", message: "body/transform/quality must be >= 20" });
});

test("the link to a preview does not lead to the original", async () => {
  const { signedUrl } = await done(alice.storage.from("files").createSignedUrl(`${aliceId}/picture.bmp`, 60, { transform: { width: 20 } }));
  const original = await fetch(signedUrl.replace("/render/image/sign/", "/object/sign/"));
  expect([original.status, await original.json()]).toMatchObject([400, { code: "InvalidSignature" }]);
});

test("a replaced and a deleted image is not shown any more", async () => {
  const bucket = service.storage.from("site");
  await done(bucket.upload("changing.bmp", bitmap(40, 20), { contentType: "image/bmp" }));
  const { data } = bucket.getPublicUrl("changing.bmp", { transform: { width: 10, resize: "contain", format: "webp" as "origin" } });
  const height = async () => (await described(await (await fetch(data.publicUrl)).blob())).height;
  expect(await height()).toBe(5);
  await done(bucket.upload("changing.bmp", bitmap(40, 40), { contentType: "image/bmp", upsert: true }));
  expect(await height()).toBe(10);
  await done(bucket.remove(["changing.bmp"]));
  const gone = await fetch(data.publicUrl);
  expect([gone.status, await gone.json()]).toMatchObject([400, { statusCode: "404", message: "Object not found" }]);
});
