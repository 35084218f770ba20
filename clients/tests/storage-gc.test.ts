// `portico storage gc` on the command line, with content without a row and rows without content, in
// a folder and in an object store.
import { mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";

import { CreateMultipartUploadCommand, DeleteObjectCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { describe, expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { ObjectStore } from "../harness/object-store.ts";
import { type CommandResult, type Portico, portico as command } from "../harness/portico.ts";
import { done, startStorage, type StorageServer } from "../harness/storage.ts";

/** Paths of content that no row refers to. */
const [OLD, OLDER] = ["1", "2"].map((end) => `files/kept.txt/00000000-0000-4000-8000-00000000000${end}`) as [string, string];

const NEWER_ARE_LEFT = "The newer files are left: an upload may be in progress. Restored files are new for the grace period.";
const FILES_ARE_LEFT = "The files without an object and the interrupted uploads are left: --delete deletes them.";
const ROWS_ARE_LEFT = "The objects without content are left: --delete-rows deletes their rows.";

/** Runs the command. Its output is in lines, with one space between words. */
async function gc({ folder }: Portico, ...args: string[]): Promise<CommandResult & { lines: string[] }> {
  const result = await command(["storage", "gc", ...args, "--workdir", folder]);
  return { ...result, lines: result.stdout.split("\n").map((line) => line.trim().replace(/ +/g, " ")) };
}

/** Returns the table of a summary. */
const table = (files: string, lost: number, orphans: string, newer: number, interrupted: number, deleted = 0, rows = 2): string[] => [
  `Objects ${rows}`,
  `Files ${files}`,
  `Objects without content ${lost}`,
  `Files without an object ${orphans}`,
  `Newer, without an object ${newer}`,
  `Interrupted uploads ${interrupted}`,
  `Deleted objects ${deleted}`,
];

/** Stores `kept.txt` and `folder/lost.txt`. Returns the path of the content of the second. */
async function storeTwo({ service, portico }: StorageServer): Promise<string> {
  const files = service.storage.from("files");
  await done(files.upload("kept.txt", "kept"));
  await done(files.upload("folder/lost.txt", "lost"));
  const [row] = await sql<{ version: string }>(portico.status.DB_URL, "select version from storage.objects where name = 'folder/lost.txt'");
  return `files/folder/lost.txt/${row!.version}`;
}

const names = async ({ portico }: StorageServer): Promise<string[]> =>
  (await sql<{ name: string }>(portico.status.DB_URL, "select name from storage.objects order by name")).map(({ name }) => name);

describe("in a folder", () => {
  test("rows without content are found and deleted, and young content is left", async () => {
    const server = await startStorage();
    const { portico, service } = server;
    try {
      const objects = join(portico.folder, ".portico/storage/objects");
      const paths = async (): Promise<string[]> => {
        const entries = await readdir(objects, { recursive: true, withFileTypes: true });
        return entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => relative(objects, join(parentPath, name))).sort();
      };
      await rm(join(objects, await storeTwo(server)));
      await mkdir(dirname(join(objects, OLD)), { recursive: true });
      await writeFile(join(objects, OLD), "orphan");
      const before = await paths();

      const dry = await gc(portico);
      expect([dry.code, dry.lines]).toEqual([0, [...table("2 10 B", 1, "0 0 B", 1, 0), "", "Without content:", "files/folder/lost.txt", "", NEWER_ARE_LEFT, ROWS_ARE_LEFT, ""]]);

      // Its content may belong to an upload in progress, whatever the grace period
      const young = await gc(portico, "--delete", "--grace", "1s");
      expect(young.stderr).toContain("The grace period is 60 minutes, the shortest one: an upload may be in progress");
      expect([young.code, young.lines.slice(0, 7), young.lines.slice(-3)]).toEqual([0, table("2 10 B", 1, "0 0 B", 1, 0), [NEWER_ARE_LEFT, ROWS_ARE_LEFT, ""]]);
      expect([await paths(), await names(server)]).toEqual([before, ["folder/lost.txt", "kept.txt"]]);

      // A folder that is not mounted is no reason to delete every row
      await rename(join(objects, "files"), join(objects, "elsewhere"));
      const unmounted = await gc(portico, "--delete-rows");
      expect([unmounted.code, unmounted.stderr]).toEqual([1, expect.stringContaining("no row has content: is the place of the content mounted, and is it the right one?")]);
      await rename(join(objects, "elsewhere"), join(objects, "files"));
      expect(await names(server)).toEqual(["folder/lost.txt", "kept.txt"]);

      const deleted = await gc(portico, "--delete-rows");
      expect([deleted.code, deleted.lines.slice(0, 7)]).toEqual([0, table("2 10 B", 1, "0 0 B", 1, 0, 1)]);
      expect([await paths(), await names(server)]).toEqual([before, ["kept.txt"]]);
      expect((await gc(portico)).lines).toEqual([...table("2 10 B", 0, "0 0 B", 1, 0, 0, 1), "", NEWER_ARE_LEFT, ""]);
      expect(await (await done(service.storage.from("files").download("kept.txt"))).text()).toBe("kept");

      const malformed = await gc(portico, "--grace", "soon");
      expect([malformed.code, malformed.stderr]).toEqual([2, expect.stringContaining("expected a duration such as 24h or 1h30m")]);
    } finally {
      await portico.dispose();
    }
  });
});

describe("in an object store", () => {
  test("a dry run deletes nothing, and content without a row is deleted from the grace period on", async () => {
    const store = await ObjectStore.start();
    const server = await startStorage("", store.files);
    const { portico, service } = server;
    try {
      await store.s3.send(new DeleteObjectCommand(store.at(await storeTwo(server))));
      await store.s3.send(new PutObjectCommand({ ...store.at(OLD), Body: "orphan" }));
      await store.s3.send(new PutObjectCommand({ ...store.at(OLDER), Body: "older orphan" }));
      await store.s3.send(new PutObjectCommand({ ...store.at("files/notes.txt"), Body: "of another program" }));
      await store.s3.send(new CreateMultipartUploadCommand(store.at("files/gone.txt/00000000-0000-4000-8000-000000000003")));
      await store.age(OLD, 3);
      await store.age(OLDER, 25);
      await store.age("files/notes.txt", 25);
      const before = await store.paths();
      expect(before).toHaveLength(4);
      const files = "4 40 B";

      const dry = await gc(portico);
      expect([dry.code, dry.lines]).toEqual([
        0,
        [...table(files, 1, "1 12 B", 1, 1), "", "Without content:", "files/folder/lost.txt", "", "Without an object:", `project/${OLDER}`, "", FILES_ARE_LEFT, NEWER_ARE_LEFT, ROWS_ARE_LEFT, ""],
      ]);
      const earlier = await gc(portico, "--grace", "1h30m");
      expect([earlier.code, earlier.stderr, earlier.lines.slice(0, 7)]).toEqual([0, "", table(files, 1, "2 18 B", 0, 1)]);
      expect(earlier.lines).toContain(`project/${OLD}`);
      expect(JSON.parse((await gc(portico, "--json")).stdout)).toMatchObject({ lost: 1, orphans: 1, orphan_bytes: 12, interrupted: 1, deleted_content: false, deleted_rows: 0 });
      expect([await store.paths(), await store.unfinished(), await names(server)]).toEqual([before, 1, ["folder/lost.txt", "kept.txt"]]);

      const deleted = await gc(portico, "--delete");
      expect([deleted.code, deleted.lines.slice(0, 7), deleted.lines.at(-4)]).toEqual([0, table(files, 1, "1 12 B", 1, 1), "The files without an object and the interrupted uploads are deleted."]);
      expect([await store.paths(), await store.unfinished()]).toEqual([before.filter((path) => path !== OLDER), 0]);
      expect(await names(server)).toEqual(["folder/lost.txt", "kept.txt"]);

      const rows = await gc(portico, "--delete", "--delete-rows", "--grace", "2h");
      expect(rows.lines).not.toContain(ROWS_ARE_LEFT);
      expect([rows.code, rows.lines.slice(0, 7)]).toEqual([0, table("3 28 B", 1, "1 6 B", 0, 0, 1)]);
      expect([await store.paths(), await names(server)]).toEqual([before.filter((path) => ![OLD, OLDER].includes(path)), ["kept.txt"]]);
      expect((await gc(portico)).lines).toEqual([...table("2 22 B", 0, "0 0 B", 0, 0, 0, 1), ""]);
      expect(await (await done(service.storage.from("files").download("kept.txt"))).text()).toBe("kept");
    } finally {
      await portico.dispose();
      await store.dispose();
    }
  });
});
