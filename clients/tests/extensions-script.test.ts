// The script that fetches extensions, where it cannot fetch them: it reports what is missing, and
// uses nothing whose hash differs.
import { execFile } from "node:child_process";
import { access, chmod, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";

const SCRIPT = new URL("../../scripts/extensions", import.meta.url);
const PROGRAMS = ["bash", "cat", "chmod", "cp", "dirname", "env", "grep", "mkdir", "mktemp", "mv", "node", "rm", "tail", "tar", "tr"];

let root: string;
let bin: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), "portico-extensions-"));
  bin = join(root, "bin");
  await mkdir(join(root, "node_modules"));
  await mkdir(join(root, "scripts"));
  await mkdir(bin);
  for (const program of PROGRAMS) await symlink(await find(program), join(bin, program));
  // A package of the right name with other content
  await writeProgram("npm", "echo other >package.tgz");
});

afterEach(() => rm(root, { recursive: true, force: true }));

async function find(program: string): Promise<string> {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const path = join(folder, program);
    if (await access(path).then(() => true, () => false)) return path;
  }
  throw new Error(`${program} is not installed`);
}

async function writeProgram(name: string, body: string): Promise<void> {
  await writeFile(join(bin, name), `#!/usr/bin/env bash\n${body}\n`);
  await chmod(join(bin, name), 0o755);
}

/** Runs the script with only the programs of `bin`. Rejects if it fails. */
async function run(script: string): Promise<string> {
  await writeFile(join(root, "scripts/extensions"), script);
  const environment = { ...process.env, PATH: bin };
  const { stderr } = await promisify(execFile)("bash", [join(root, "scripts/extensions")], { env: environment });
  return stderr;
}

async function installed(): Promise<string[]> {
  return readdir(join(root, "node_modules/.portico/postgresql-18/share/extension"));
}

test("without Python the script names the package to install, and everything else goes on", async () => {
  const report = await run(await readFile(SCRIPT, "utf8"));
  expect(report).toContain("Python with pip is missing (on Debian: apt-get install python3-pip)");
  expect(report).toContain("Everything else works; `make extensions` tries again.");
  expect(await installed()).toEqual([]);
});

test("an npm package with another hash is not used", async () => {
  const report = await run(await readFile(SCRIPT, "utf8"));
  expect(report).toMatch(/PostgreSQL's extension pgtap is not installed: npm did not fetch .*, or its hash is another one/);
  expect(await installed()).toEqual([]);
});

test("a Python package with another hash is not used", async () => {
  // `python3` itself may be a script that needs further programs
  const { stdout } = await promisify(execFile)("python3", ["-c", "import sys; print(sys.executable)"]);
  await writeProgram("python3", `exec "${stdout.trim()}" "$@"`);
  const script = (await readFile(SCRIPT, "utf8")).replace(/sha256:[0-9a-f]{64}/g, `sha256:${"0".repeat(64)}`);
  // The large package counts as fetched: one download shows it
  const wheel = /^wheel='([^']*)'/m.exec(script)?.[1] ?? "";
  await mkdir(join(root, "node_modules/.portico/postgresql-18"), { recursive: true });
  await writeFile(join(root, "node_modules/.portico/postgresql-18/.wheel"), `${wheel}\n`);
  expect(await run(script)).toMatch(/extension pgmq is not installed: pip did not fetch pgmq \(.*error.*\)/i);
  expect(await installed()).toEqual([]);
});
