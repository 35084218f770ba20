// The bucket of the account home's pictures, through the official client: folders by account,
// types, and what is left of deleted accounts.
import { readdir } from "node:fs/promises";

import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { signedUp } from "../harness/accounts.ts";
import { sql } from "../harness/database.ts";
import { Portico, portico as command } from "../harness/portico.ts";

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: "[auth]\nenable_anonymous_sign_ins = true\n" });
  // The server makes the bucket beside its first requests.
  await vi.waitFor(async () => { expect((await admin().storage.getBucket("portico-avatars")).error).toBeNull(); }, { timeout: 30_000 });
});
afterAll(() => portico.dispose());

const admin = () => portico.client({}, portico.status.SECRET_KEY);
const webp = new Blob([new Uint8Array(100)], { type: "image/webp" });
const file = (name: number): string => `${name}.webp`;
/** A picture that an older version of the page has stored. */
const olderFile = `${"a".repeat(36)}.webp`;

test("an account adds, lists and deletes pictures in its own folder alone", async () => {
  const [alice, bob] = await Promise.all([signedUp(portico), signedUp(portico)]);
  const [hers, his] = [alice.client.storage.from("portico-avatars"), bob.client.storage.from("portico-avatars")];
  const path = `${alice.id}/${file(0)}`;
  expect((await hers.upload(path, webp)).error).toBeNull();
  expect((await fetch(hers.getPublicUrl(path).data.publicUrl)).status).toBe(200);
  expect((await hers.list(alice.id)).data).toMatchObject([{ name: file(0) }]);

  for (const other of [`${bob.id}/${file(1)}`, file(1), `${alice.id}/deeper/${file(1)}`, `${alice.id}/picture.webp`, `${alice.id}/${file(0)}.html`]) {
    expect((await hers.upload(other, webp)).error, other).toMatchObject({ message: "new row violates row-level security policy" });
  }
  expect((await hers.upload(`${alice.id}/${file(2)}`, new Blob(["<svg/>"], { type: "image/svg+xml" }))).error).toMatchObject({ message: "mime type image/svg+xml is not supported" });
  expect((await portico.client().storage.from("portico-avatars").upload(`${alice.id}/${file(2)}`, webp)).error).not.toBeNull();
  // Neither read by its owner's rights, nor replaced, moved or deleted by others
  expect((await his.list(alice.id)).data).toEqual([]);
  expect((await his.remove([path])).data).toEqual([]);
  expect((await his.upload(path, webp, { upsert: true })).error).not.toBeNull();
  expect((await hers.move(path, `${alice.id}/${file(3)}`)).error).not.toBeNull();
  expect((await hers.remove([path])).data).toMatchObject([{ name: path }]);
});

test("an account has a bounded number of pictures, and keeps those of older names", async () => {
  const { client, id } = await signedUp(portico);
  const bucket = client.storage.from("portico-avatars");
  for (let name = 0; name < 8; name += 1) expect((await bucket.upload(`${id}/${file(name)}`, webp)).error).toBeNull();
  // Of no other name, by no other way, and no name twice
  const refused = { message: "new row violates row-level security policy" };
  const others = ["8.webp", "00.webp", "a.webp", "-1.webp", "1.WEBP", "1.gif", `${crypto.randomUUID()}.webp`, olderFile, "1.webp/1.webp"];
  for (const other of others) {
    expect((await bucket.upload(`${id}/${other}`, webp)).error, other).toMatchObject(refused);
    expect((await bucket.upload(`${id}/${other}`, webp, { upsert: true })).error, other).toMatchObject(refused);
    expect((await bucket.copy(`${id}/${file(0)}`, `${id}/${other}`)).error, other).toMatchObject(refused);
    expect((await bucket.move(`${id}/${file(0)}`, `${id}/${other}`)).error, other).not.toBeNull();
    expect((await bucket.createSignedUploadUrl(`${id}/${other}`)).error, other).toMatchObject(refused);
  }
  expect((await bucket.upload(`${id}/${file(0)}`, webp)).error).toMatchObject({ message: "The resource already exists" });
  expect((await bucket.list(id)).data).toHaveLength(8);

  expect((await admin().storage.from("portico-avatars").upload(`${id}/${olderFile}`, webp)).error).toBeNull();
  expect((await bucket.remove([`${id}/${olderFile}`])).data).toMatchObject([{ name: `${id}/${olderFile}` }]);
});

test("guests have no pictures", async () => {
  const client = portico.client();
  const { data } = await client.auth.signInAnonymously();
  const { error } = await client.storage.from("portico-avatars").upload(`${data.user!.id}/${file(0)}`, webp);
  expect(error).toMatchObject({ message: "new row violates row-level security policy" });
});

test("a deleted account leaves neither row nor content of its picture", async () => {
  const [gone, stays] = await Promise.all([signedUp(portico), signedUp(portico)]);
  for (const { client, id } of [gone, stays]) {
    expect((await client.storage.from("portico-avatars").upload(`${id}/${file(0)}`, webp)).error).toBeNull();
  }
  expect((await admin().auth.admin.deleteUser(gone.id)).error).toBeNull();
  const names = async (id: string) => (await admin().storage.from("portico-avatars").list(id)).data!.map(({ name }) => name);
  await vi.waitFor(async () => { expect(await names(gone.id)).toEqual([]); }, { timeout: 30_000 });
  await vi.waitFor(async () => { expect((await paths()).filter((path) => path.includes(gone.id))).toEqual([]); }, { timeout: 30_000 });
  expect(await names(stays.id)).toEqual([file(0)]);
  expect((await paths()).some((path) => path.includes(stays.id))).toBe(true);

  async function paths(): Promise<string[]> {
    return readdir(portico.folder, { recursive: true });
  }
});

test("a policy of the project for all objects does not open the pictures of others, and holds in other buckets", async () => {
  await sql(portico.status.DB_URL, 'create policy "everything" on storage.objects for all using (true) with check (true)');
  const [alice, bob] = await Promise.all([signedUp(portico), signedUp(portico)]);
  const [hers, his] = [alice.client.storage.from("portico-avatars"), bob.client.storage.from("portico-avatars")];
  const path = `${alice.id}/${file(0)}`;
  expect((await hers.upload(path, webp)).error).toBeNull();
  expect((await his.upload(`${alice.id}/${file(1)}`, webp)).error).toMatchObject({ message: "new row violates row-level security policy" });
  expect((await his.upload(path, webp, { upsert: true })).error).not.toBeNull();
  expect((await his.update(path, webp)).error).not.toBeNull();
  expect((await his.move(path, `${bob.id}/${file(0)}`)).error).not.toBeNull();
  expect((await his.remove([path])).data).toEqual([]);
  expect((await portico.client().storage.from("portico-avatars").remove([path])).data).toEqual([]);
  expect((await hers.remove([path])).data).toMatchObject([{ name: path }]);

  expect((await admin().storage.createBucket("notes")).error).toBeNull();
  for (const client of [alice.client, portico.client()]) {
    const notes = client.storage.from("notes");
    expect((await notes.upload("a.txt", "text")).error).toBeNull();
    expect((await notes.move("a.txt", "b.txt")).error).toBeNull();
    expect((await notes.remove(["b.txt"])).data).toMatchObject([{ name: "b.txt" }]);
  }
  await sql(portico.status.DB_URL, 'drop policy "everything" on storage.objects');
});

test("a database that is set up again has the bucket at once", async () => {
  expect(await command(["db", "reset", "--workdir", portico.folder])).toMatchObject({ code: 0 });
  const { id, client } = await signedUp(portico);
  expect((await client.storage.from("portico-avatars").upload(`${id}/${file(0)}`, webp)).error).toBeNull();
  expect((await admin().storage.getBucket("portico-avatars")).data).toMatchObject({ public: true, file_size_limit: 1048576 });
});

test("when the server starts again, old pictures without an account are deleted, and new ones and other names stay", async () => {
  const names = ["invoices/old.webp", `${crypto.randomUUID()}/${file(0)}`, `${crypto.randomUUID()}/${file(2)}`];
  const gone = `${crypto.randomUUID()}/${file(1)}`;
  for (const name of [...names, gone]) expect((await admin().storage.from("portico-avatars").upload(name, webp)).error).toBeNull();
  await sql(portico.status.DB_URL, `update storage.objects set created_at = now() - interval '1 year' where name in ('${names[0]!}', '${gone}')`);
  // A row whose time is unknown keeps no other one
  await sql(portico.status.DB_URL, `update storage.objects set created_at = null where name = '${names[2]!}'`);
  const { folder } = portico;
  await portico.stop();
  portico = await Portico.start({ folder });
  const exists = async (name: string) => (await admin().storage.from("portico-avatars").exists(name)).data;
  await vi.waitFor(async () => { expect(await exists(gone)).toBe(false); }, { timeout: 30_000 });
  for (const name of names) expect(await exists(name), name).toBe(true);
});

test("a bucket that exists keeps its settings when the server starts again", async () => {
  expect((await admin().storage.updateBucket("portico-avatars", { public: true, fileSizeLimit: 1000 })).error).toBeNull();
  const { folder } = portico;
  await portico.stop();
  portico = await Portico.start({ folder });
  const { id, client } = await signedUp(portico);
  await vi.waitFor(async () => { expect((await client.storage.from("portico-avatars").upload(`${id}/${file(0)}`, webp)).error).toBeNull(); }, { timeout: 30_000 });
  expect((await admin().storage.getBucket("portico-avatars")).data).toMatchObject({ public: true, file_size_limit: 1000 });
});
