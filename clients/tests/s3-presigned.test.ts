// Requests that are signed before they are sent: presigned URLs and forms, with the access key of
// the service or the token of a user, and the pages that send them.
import { createHash, createHmac } from "node:crypto";

import {
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand,
} from "@aws-sdk/client-s3";
import { createPresignedPost } from "@aws-sdk/s3-presigned-post";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import type { Portico } from "../harness/portico.ts";
import { s3ClientOf, type S3User, s3User, startS3 } from "../harness/s3.ts";

/** A page of the project, and one of another website. */
const [OWN_PAGE, OTHER_PAGE] = ["https://app.example", "https://elsewhere.example"];
const CONFIG = `[auth]\nadditional_redirect_urls = ["${OWN_PAGE}/**"]\n`;
const EXPIRES = { expiresIn: 60 };

let portico: Portico;
let s3: S3Client;
let alice: S3User;
let bob: S3User;

beforeAll(async () => {
  ({ portico, s3, alice } = await startS3(CONFIG));
  bob = await s3User(portico);
});
afterAll(() => portico.dispose());

const read = async (Key: string, client = s3): Promise<string> => (await client.send(new GetObjectCommand({ Bucket: "files", Key }))).Body!.transformToString();
const md5 = (text: string): string => createHash("md5").update(text).digest("hex");

/** Returns the status of a response, and the code of its error. */
async function outcome(response: Response | Promise<Response>): Promise<[number, string | undefined]> {
  const sent = await response;
  return [sent.status, /<Code>(\w+)<\/Code>/.exec(await sent.text())?.[1]];
}

/** Returns the URL and the fields of a form that stores one object. */
function formOf(client: S3Client, Key: string, Conditions: Parameters<typeof createPresignedPost>[1]["Conditions"] = []) {
  // eslint-disable-next-line @typescript-eslint/no-unsafe-class-instance-assignment -- the package has a copy of the client in another version
  return createPresignedPost(client, { Bucket: "files", Key, Expires: 60, Conditions });
}

function send({ url, fields }: { url: string; fields: Record<string, string> }, content: string): Promise<Response> {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  form.append("file", new Blob([content], { type: "text/css" }), "a.css");
  return fetch(url, { method: "POST", body: form });
}

/** A token with these claims, signed with the server's secret. */
function signedToken(claims: Record<string, unknown>): string {
  const part = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${signed}.${createHmac("sha256", portico.status.JWT_SECRET).update(signed).digest("base64url")}`;
}

/** Returns the token of alice with the claims of bob, which its signature does not cover. */
function forged(): string {
  const [header, , signature] = alice.token.split(".");
  return [header, bob.token.split(".")[1], signature].join(".");
}

describe("presigned requests of the service", () => {
  test("read and write one object until they expire", async () => {
    const target = { Bucket: "files", Key: "signed name.html" };
    const to = await getSignedUrl(s3, new PutObjectCommand({ ...target, Metadata: { a: "1" }, ContentType: "text/html" }), EXPIRES);
    expect((await fetch(to, { method: "PUT", body: "<p>", headers: { "content-type": "text/html" } })).status).toBe(200);
    const from = await getSignedUrl(s3, new GetObjectCommand(target), EXPIRES);
    const got = await fetch(from);
    // A browser can open it, so it is no page
    expect([await got.text(), got.headers.get("content-type"), got.headers.get("x-amz-meta-a"), got.headers.get("x-content-type-options")]).toEqual(["<p>", "text/plain", "1", "nosniff"]);
    expect(got.headers.get("content-security-policy")).toContain("sandbox");
    expect(got.headers.get("cache-control")).toMatch(/^private/);
    expect((await fetch(from, { method: "HEAD" })).status).toBe(403);
    expect((await fetch(from.replace("signed%20name", "other"))).status).toBe(403);
    const expired = await getSignedUrl(s3, new GetObjectCommand(target), { expiresIn: 60, signingDate: new Date(Date.now() - 61_000) });
    const refused = await fetch(expired);
    expect([refused.status, await refused.text()]).toEqual([400, expect.stringContaining("<Code>ExpiredToken</Code><Message>The provided token has expired.</Message>")]);
    expect((await fetch(from.replace(/X-Amz-Expires=\d+/, "X-Amz-Expires=604801"))).status).toBe(400);
    expect((await fetch(from.replace(/&?X-Amz-Expires=\d+/, ""))).status).toBe(400);
  });

  test("do not let their user add what is not signed", async () => {
    await s3.send(new PutObjectCommand({ Bucket: "files", Key: "secret", Body: "secret" }));
    const to = await getSignedUrl(s3, new PutObjectCommand({ Bucket: "files", Key: "mine" }), EXPIRES);
    const copied = await fetch(to, { method: "PUT", headers: { "x-amz-copy-source": "/files/secret" } });
    expect([copied.status, await copied.text()]).toEqual([403, expect.stringContaining("not signed")]);
    expect((await fetch(`${to}&x-amz-copy-source=/files/secret`, { method: "PUT" })).status).toBe(403);
    expect(await outcome(fetch(await getSignedUrl(s3, new GetObjectCommand({ Bucket: "files", Key: "mine" }), EXPIRES)))).toEqual([404, "NoSuchKey"]);
  });

  test("upload with a form as its policy says", async () => {
    const post = async (Conditions: Parameters<typeof formOf>[2], content: string, extra: Record<string, string> = {}): Promise<Response> => {
      const { url, fields } = await formOf(s3, "forms/${filename}", Conditions);
      return send({ url, fields: { ...fields, ...extra } }, content);
    };
    const stored = await post([["content-length-range", 1, 10]], "hello");
    expect([stored.status, stored.headers.get("etag")]).toEqual([200, `"${md5("hello")}"`]);
    expect(await s3.send(new HeadObjectCommand({ Bucket: "files", Key: "forms/a.css" }))).toMatchObject({ ContentType: "text/css", ContentLength: 5 });
    const outcomes = [await post([["content-length-range", 1, 4]], "other"), await post([["content-length-range", 9, 10]], "other"), await post(undefined, "other", { "x-amz-meta-a": "1" }), await post(undefined, "other", { "X-Amz-Signature": "0".repeat(64) }), await post(undefined, "other", { KEY: "forms/b.css" })];
    expect(outcomes.map(({ status }) => status)).toEqual([413, 400, 403, 403, 400]);
    expect(await read("forms/a.css")).toBe("hello");
  });
});

describe("presigned requests of a user", () => {
  const own = (name: string) => ({ Bucket: "files", Key: `${alice.id}/${name}` });
  const ofBob = { Bucket: "files", Key: "" };
  beforeAll(async () => {
    ofBob.Key = `${bob.id}/secret.txt`;
    await bob.s3.send(new PutObjectCommand({ ...ofBob, Body: "of bob" }));
  });

  test("have its token in the query, and do what the policies allow", async () => {
    const target = own("signed.txt");
    const to = await getSignedUrl(alice.s3, new PutObjectCommand(target), EXPIRES);
    expect(new URL(to).searchParams.get("X-Amz-Security-Token")).toBe(alice.token);
    expect((await fetch(to, { method: "PUT", body: "of alice" })).status).toBe(200);
    const owners = await sql(portico.status.DB_URL, "select owner_id from storage.objects where name = $1", [target.Key]);
    expect(owners).toEqual([{ owner_id: alice.id }]);
    const got = await fetch(await getSignedUrl(alice.s3, new GetObjectCommand(target), EXPIRES));
    expect([got.status, await got.text()]).toEqual([200, "of alice"]);
    const listed = await fetch(await getSignedUrl(alice.s3, new ListObjectsV2Command({ Bucket: "files" }), EXPIRES));
    expect([...(await listed.text()).matchAll(/<Key>([^<]*)<\/Key>/g)].map(([, key]) => key)).toEqual([target.Key]);
    expect((await fetch(await getSignedUrl(alice.s3, new DeleteObjectCommand(target), EXPIRES), { method: "DELETE" })).status).toBe(204);
    expect(await outcome(fetch(await getSignedUrl(alice.s3, new GetObjectCommand(target), EXPIRES)))).toEqual([404, "NoSuchKey"]);
  });

  test("do not reach the objects of another user", async () => {
    expect(await outcome(fetch(await getSignedUrl(alice.s3, new GetObjectCommand(ofBob), EXPIRES)))).toEqual([404, "NoSuchKey"]);
    for (const target of [ofBob, { ...ofBob, Key: `${bob.id}/new.txt` }]) {
      const to = await getSignedUrl(alice.s3, new PutObjectCommand(target), EXPIRES);
      expect(await outcome(fetch(to, { method: "PUT", body: "x" }))).toEqual([403, "AccessDenied"]);
    }
    // The response to the deletion of an object that does not exist
    expect(await outcome(fetch(await getSignedUrl(alice.s3, new DeleteObjectCommand(ofBob), EXPIRES), { method: "DELETE" }))).toEqual([204, undefined]);
    expect(await read(ofBob.Key, bob.s3)).toBe("of bob");
    expect((await s3.send(new ListObjectsV2Command({ Bucket: "files", Prefix: bob.id }))).KeyCount).toBe(1);
  });

  test("are rejected with another token, and without one", async () => {
    const target = own("token.txt");
    await alice.s3.send(new PutObjectCommand({ ...target, Body: "x" }));
    const url = await getSignedUrl(alice.s3, new GetObjectCommand(target), EXPIRES);
    const withToken = (token?: string): URL => {
      const changed = new URL(url);
      if (token === undefined) changed.searchParams.delete("X-Amz-Security-Token");
      else changed.searchParams.set("X-Amz-Security-Token", token);
      return changed;
    };
    expect(await outcome(fetch(withToken(alice.token)))).toEqual([200, undefined]);
    // Without a token the access key counts, and `stub` is none
    for (const token of [undefined, ""]) expect(await outcome(fetch(withToken(token)))).toEqual([403, "AccessDenied"]);
    for (const token of ["x", `${alice.token}x`, forged(), bob.token]) expect(await outcome(fetch(withToken(token)))).toEqual([403, "SignatureDoesNotMatch"]);
    expect(await outcome(fetch(`${url}&X-Amz-Security-Token=${bob.token}`))).toEqual([403, "SignatureDoesNotMatch"]);
    expect(await outcome(fetch(url, { headers: { "x-amz-security-token": bob.token } }))).toEqual([403, "AccessDenied"]);
    const ofService = await getSignedUrl(s3, new GetObjectCommand(target), EXPIRES);
    expect(await outcome(fetch(ofService))).toEqual([200, undefined]);
    expect(await outcome(fetch(`${ofService}&X-Amz-Security-Token=${alice.token}`))).toEqual([403, "SignatureDoesNotMatch"]);
  });

  test("end with their token, and need a secret that belongs to the project", async () => {
    const target = own("secret.txt");
    await alice.s3.send(new PutObjectCommand({ ...target, Body: "x" }));
    const now = Math.floor(Date.now() / 1000);
    const sent = async (secretAccessKey: string, sessionToken: string): Promise<[number, string | undefined]> =>
      outcome(fetch(await getSignedUrl(s3ClientOf(portico, { accessKeyId: "stub", secretAccessKey, sessionToken }), new GetObjectCommand(target), EXPIRES)));
    const { ANON_KEY, PUBLISHABLE_KEY } = portico.status;
    const claims = { sub: alice.id, role: "authenticated", aud: "authenticated" };
    expect(await sent(ANON_KEY, signedToken({ ...claims, exp: now + 60 }))).toEqual([200, undefined]);
    expect(await sent(ANON_KEY, signedToken({ ...claims, exp: now - 60 }))).toEqual([403, "SignatureDoesNotMatch"]);
    expect(await sent(PUBLISHABLE_KEY, alice.token)).toEqual([200, undefined]);
    expect(await sent("wrong", alice.token)).toEqual([403, "SignatureDoesNotMatch"]);
  });

  test("upload with a form whose token is that of its policy", async () => {
    const form = await formOf(alice.s3, own("form.css").Key);
    expect(form.fields["X-Amz-Security-Token"]).toBe(alice.token);
    const withoutToken = Object.fromEntries(Object.entries(form.fields).filter(([name]) => name !== "X-Amz-Security-Token"));
    const withToken = (token: string) => ({ ...form, fields: { ...withoutToken, "X-Amz-Security-Token": token } });
    expect(await outcome(send({ ...form, fields: withoutToken }, "x"))).toEqual([403, "AccessDenied"]);
    for (const token of ["x", forged()]) expect(await outcome(send(withToken(token), "x"))).toEqual([403, "SignatureDoesNotMatch"]);
    // Its signature is valid, and the policy names the token of alice
    expect(await outcome(send(withToken(bob.token), "x"))).toEqual([403, "AccessDenied"]);
    expect(await outcome(send(await formOf(alice.s3, `${bob.id}/form.css`), "x"))).toEqual([403, "AccessDenied"]);
    expect((await s3.send(new ListObjectsV2Command({ Bucket: "files" }))).Contents?.filter(({ Key }) => Key!.endsWith("/form.css")) ?? []).toEqual([]);
    expect(await outcome(send(form, "of alice"))).toEqual([200, undefined]);
    expect(await read(own("form.css").Key, alice.s3)).toBe("of alice");
  });
});

describe("pages", () => {
  /** The headers that the SDK sends from a browser. */
  const HEADERS =
    "amz-sdk-invocation-id,amz-sdk-request,authorization,content-type,x-amz-checksum-crc32,x-amz-content-sha256,x-amz-date,x-amz-sdk-checksum-algorithm,x-amz-security-token,x-amz-user-agent";
  const key = (name: string): string => `${alice.id}/${name}`;
  const put = async (client: S3Client, Key: string, origin: string): Promise<Response> =>
    fetch(await getSignedUrl(client, new PutObjectCommand({ Bucket: "files", Key }), EXPIRES), { method: "PUT", body: "x", headers: { origin } });

  test.each([OWN_PAGE, OTHER_PAGE])("of %s may send every signed request", async (origin) => {
    for (const method of ["PUT", "GET", "POST", "DELETE", "HEAD"]) {
      const asked = { origin, "access-control-request-method": method, "access-control-request-headers": HEADERS };
      const { status, headers } = await fetch(`${portico.status.STORAGE_S3_URL}/files/${key("page.txt")}`, { method: "OPTIONS", headers: asked });
      expect([status, headers.get("access-control-allow-origin"), headers.get("access-control-allow-headers")]).toEqual([200, "*", HEADERS]);
      expect(headers.get("access-control-allow-methods")!.split(",")).toContain(method);
      // The signature alone gives rights, and no cookie
      expect(headers.has("access-control-allow-credentials")).toBe(false);
    }
  });

  test.each([OWN_PAGE, OTHER_PAGE])("of %s read the ETag of what they upload for a user", async (origin) => {
    const { UploadId } = await alice.s3.send(new CreateMultipartUploadCommand({ Bucket: "files", Key: key("parts") }));
    const part = await getSignedUrl(alice.s3, new UploadPartCommand({ Bucket: "files", Key: key("parts"), UploadId, PartNumber: 1 }), EXPIRES);
    for (const stored of [await put(alice.s3, key("page.txt"), origin), await fetch(part, { method: "PUT", body: "x", headers: { origin } })]) {
      expect([stored.status, stored.headers.get("etag"), stored.headers.get("access-control-allow-origin")]).toEqual([200, `"${md5("x")}"`, "*"]);
      expect(stored.headers.get("access-control-expose-headers")!.toLowerCase().split(/, */)).toContain("etag");
    }
  });

  test("of other websites cannot use the published access key", async () => {
    expect(await outcome(put(s3, key("of-own-page"), OWN_PAGE))).toEqual([200, undefined]);
    for (const origin of [OTHER_PAGE, "null"]) {
      const refused = await put(s3, key("of-other-page"), origin);
      // The page can read the reason
      expect(refused.headers.get("access-control-allow-origin")).toBe("*");
      expect(await outcome(refused)).toEqual([403, "AccessDenied"]);
    }
    const { Contents } = await s3.send(new ListObjectsV2Command({ Bucket: "files", Prefix: key("of-") }));
    expect(Contents!.map(({ Key }) => Key)).toEqual([key("of-own-page")]);
  });
});
