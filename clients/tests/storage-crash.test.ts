// Uploads of every kind while the server is killed again and again.
//
// The rule: after a crash an object has the content of the last upload that was confirmed, or the
// whole content of one whose last byte was sent and whose answer was lost with the server. Nothing
// else is visible. An upload in several requests continues with everything that was confirmed.
import { readdir, readFile, rm } from "node:fs/promises";
import { dirname, join, relative } from "node:path";

import { expect, test } from "vitest";

import { sql } from "../harness/database.ts";
import { BUCKET, Connection, ExpectedObject, type InterruptedUpload, NoAnswer, PartedUpload, ResumableUpload, sendHalf, Sequence, SingleRequest } from "../harness/interrupted-uploads.ts";
import { Portico, portico as command, projectFolder } from "../harness/portico.ts";

/** Of the plan of sizes, kinds and crashes. The moment within a request is the machine's. */
const SEED = Number(process.env["PORTICO_CRASH_SEED"] ?? 20_260_101);
const CRASHES = 12;
const WORKERS = 12;

type Kind = "new" | "replacement" | "resumable" | "parted";
const KINDS: Record<Kind, number> = { new: 70, replacement: 50, resumable: 45, parted: 35 };

test(`200 uploads survive crashes of the server (PORTICO_CRASH_SEED=${SEED})`, async () => {
  const folder = await projectFolder();
  const sequence = new Sequence(SEED);
  const kinds = sequence.shuffle(Object.entries(KINDS).flatMap(([kind, count]) => Array.from({ length: count }, () => kind as Kind)));
  const plan = kinds.map((kind, n) => ({ kind, bytes: Buffer.alloc(1000 + sequence.below(200_000), `content of ${n} `), replaces: sequence.below(2) === 0 }));
  const crashes = Array.from({ length: CRASHES }, () => ({ answers: 10 + sequence.below(30), delay: sequence.below(8) }));
  const objects = new Map<string, ExpectedObject>();
  const object = (key: string): ExpectedObject => {
    const known = objects.get(key) ?? new ExpectedObject(key);
    objects.set(key, known);
    return known;
  };

  let next = 0;
  const nextUpload = (worker: number): InterruptedUpload | undefined => {
    const n = next++;
    const planned = plan[n];
    if (planned === undefined) return undefined;
    const { kind, bytes } = planned;
    const replaces = kind === "replacement" || (kind !== "new" && planned.replaces);
    // Only one upload at a time replaces an object, so it is known which content is the last one
    const place = object(replaces ? `old/${worker}` : `new/${n}`);
    switch (kind) {
      case "resumable":
        return new ResumableUpload(place, bytes);
      case "parted":
        return new PartedUpload(place, bytes);
      default:
        return new SingleRequest(place, bytes, replaces);
    }
  };

  /**
   * Connects to a server that is killed some milliseconds after one of its answers, as long as
   * crashes are planned. The uploads have more answers than all crashes wait for.
   */
  const connect = (portico: Portico): Connection => {
    const crash = crashes.shift();
    let answers = 0;
    return new Connection(portico, (connection) => {
      answers += 1;
      if (answers === crash?.answers) setTimeout(() => { connection.kill(); }, crash.delay);
    });
  };

  let portico = await Portico.start({ folder });
  try {
    const setup = new Connection(portico, () => undefined);
    const bucket = Buffer.from(JSON.stringify({ name: BUCKET, public: false }));
    expect((await setup.request("POST", "/bucket", { "content-type": "application/json" }, bucket)).status).toBe(200);
    for (const key of [...Array.from({ length: WORKERS }, (_, worker) => `old/${worker}`), "half/old"]) {
      await new SingleRequest(object(key), Buffer.from(`the first content of ${key}`), false).run(setup);
    }

    const current: (InterruptedUpload | undefined)[] = Array.from({ length: WORKERS });
    const work = async (connection: Connection, worker: number): Promise<void> => {
      for (;;) {
        const upload = (current[worker] ??= nextUpload(worker));
        if (upload === undefined) return;
        try {
          await upload.run(connection);
        } catch (error) {
          if (error instanceof NoAnswer && connection.killed) return;
          throw error;
        }
        current[worker] = undefined;
      }
    };

    let interrupted = 0;
    for (let round = 0; current.some((upload) => upload !== undefined) || next < plan.length; round += 1) {
      const connection = connect(portico);
      // Half of a new object, and half of one that exists. Neither is ever visible
      await Promise.all([sendHalf(connection, `half/${round}`), sendHalf(connection, "half/old")]);
      await Promise.all(current.map((_, worker) => work(connection, worker)));
      interrupted += current.filter((upload) => upload !== undefined).length;
      if (!connection.killed) connection.kill();
      await portico.ended();

      portico = await Portico.start({ folder });
      const restarted = new Connection(portico, () => undefined);
      for (const changed of [...objects.values()].filter(({ checked }) => !checked)) await changed.check(restarted);
      expect(await restarted.names()).toEqual([...objects.values()].flatMap(({ key, confirmed }) => (confirmed === undefined ? [] : [key])).sort());
      expect(await collectGarbage(folder)).toMatchObject({ lost: 0 });
    }
    expect(crashes.length, "crashes that did not happen").toBe(0);
    expect(interrupted).toBeGreaterThan(CRASHES);

    const last = new Connection(portico, () => undefined);
    for (const each of objects.values()) await each.check(last);
    await expectFilesOfRows(portico);
  } finally {
    await portico.stop("SIGKILL");
    await rm(folder, { recursive: true, force: true });
  }
}, 240_000);

/** Compares rows and content as `portico storage gc` does, which changes nothing. */
async function collectGarbage(folder: string): Promise<{ rows: number; files: number; lost: number }> {
  const { code, stdout, stderr } = await command(["storage", "gc", "--json", "--workdir", folder]);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout) as { rows: number; files: number; lost: number };
}

/**
 * Stops a server, and compares the files with the rows: every row has its file, and every other
 * file belongs to an object that the journal names, so that the clean-up deletes it an hour later.
 */
async function expectFilesOfRows(portico: Portico): Promise<void> {
  const rows = await sql<{ path: string }>(portico.status.DB_URL, "select bucket_id || '/' || name || '/' || version as path from storage.objects");
  expect(await sql(portico.status.DB_URL, "select key from storage.s3_multipart_uploads_parts")).toEqual([]);
  const found = await collectGarbage(portico.folder);
  expect(await portico.stop()).toBe(0);

  const storage = join(portico.folder, ".portico/storage");
  const entries = await readdir(join(storage, "objects"), { recursive: true, withFileTypes: true });
  const files = new Set(entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => relative(join(storage, "objects"), join(parentPath, name))));
  expect(rows.filter(({ path }) => !files.has(path))).toEqual([]);
  for (const { path } of rows) files.delete(path);
  expect(found).toMatchObject({ rows: rows.length, lost: 0 });
  expect(found.files).toBeGreaterThanOrEqual(rows.length + files.size);

  const journal = join(storage, "journal");
  const named = new Set<string>();
  for (const entry of await readdir(journal)) {
    // One that was being written at a crash, before the work that it was for
    if (entry.endsWith(".new")) continue;
    const [line = ""] = (await readFile(join(journal, entry), "utf8")).split("\n");
    // The file of a closed entry waits for the next one
    if (line === "" || line.startsWith("-")) continue;
    const { bucket, names } = JSON.parse(line) as { bucket: string; names: string[] };
    for (const name of names) named.add(`${bucket}/${name}`);
  }
  expect([...files].filter((path) => !named.has(dirname(path)))).toEqual([]);
}
