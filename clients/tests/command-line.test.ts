// The commands of the program, as developers and scripts use them.
import { existsSync } from "node:fs";
import { readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";

import pg from "pg";
import { afterEach, expect, test } from "vitest";

import { Portico, portico, projectFolder, write } from "../harness/portico.ts";

const running: Portico[] = [];
const start = async (project: Parameters<typeof Portico.start>[0] = {}): Promise<Portico> => {
  const server = await Portico.start({ initialises: true, ...project });
  running.push(server);
  return server;
};
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.dispose()));
});

async function query<Row extends pg.QueryResultRow>(server: Portico, text: string): Promise<Row[]> {
  const client = new pg.Client({ connectionString: server.status.DB_URL });
  // A stopping server ends its connections, which the client reports here.
  client.on("error", () => undefined);
  await client.connect();
  try {
    return (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
}

const project = {
  files: {
    "supabase/migrations/20260101000000_notes.sql": "create table public.notes (id bigint generated always as identity primary key, body text not null); alter table public.notes enable row level security;",
    "supabase/seed.sql": "insert into public.notes (body) values ('seeded');",
  },
};

test("migrations run once and the seed with the first start", async () => {
  const first = await start(project);
  expect(await query(first, "select body from public.notes")).toEqual([{ body: "seeded" }]);
  await query(first, "insert into public.notes (body) values ('mine')");
  expect(await first.stop()).toBe(0);
  await write(first.folder, "supabase/migrations/20260102000000_done.sql", "alter table public.notes add done boolean not null default false;");
  const second = await start({ folder: first.folder });
  expect(await query(second, "select body, done from public.notes order by id")).toEqual([
    { body: "seeded", done: false },
    { body: "mine", done: false },
  ]);
  expect(await query(second, "select version, name from supabase_migrations.schema_migrations order by version")).toEqual([
    { version: "20260101000000", name: "notes" },
    { version: "20260102000000", name: "done" },
  ]);
});

test("db reset starts afresh while the server runs", async () => {
  const server = await start(project);
  const person = server.client();
  expect((await person.auth.signUp({ email: "before@portico.test", password: "correct horse battery" })).error).toBeNull();
  await query(server, "insert into public.notes (body) values ('mine')");
  const reset = await portico(["db", "reset", "--workdir", server.folder]);
  expect(reset).toMatchObject({ code: 0 });
  expect(reset.stderr).toContain("Applying migration 20260101000000_notes.sql...");
  // The reset ends the server's own connections, which is no reason for a warning.
  expect(server.log).not.toMatch(/WARN|ERROR/);
  expect(await query(server, "select body from public.notes")).toEqual([{ body: "seeded" }]);
  expect((await person.auth.getUser()).error).toMatchObject({ status: 403, code: "user_not_found" });
  expect((await server.client().auth.signUp({ email: "before@portico.test", password: "correct horse battery" })).error).toBeNull();
});

test("a failing migration reports its place and changes nothing", async () => {
  const folder = await projectFolder({
    files: { "supabase/migrations/20260101000000_broken.sql": "create table public.half (id int);\n\ncreate table public.other (\n  id int references public.missing\n);\n" },
  });
  const failed = await portico(["dev", "--workdir", folder]);
  expect(failed.code).toBe(1);
  expect(failed.stderr).toContain("20260101000000_broken.sql");
  expect(failed.stderr).toContain('relation "public.missing" does not exist');
  await write(folder, "supabase/migrations/20260101000000_broken.sql", "create table public.half (id int);");
  const server = await start({ folder });
  expect(await query(server, "select * from public.half")).toEqual([]);
});

test("status prints text and JSON", async () => {
  const server = await start();
  const json = await portico(["status", "-o", "json", "--workdir", server.folder]);
  expect((JSON.parse(json.stdout) as Record<string, string>)["API_URL"]).toBe(server.url);
  const env = await portico(["status", "-o", "env", "--override-name", "api.url=NEXT_PUBLIC_URL", "--workdir", server.folder]);
  expect(env.stdout.split("\n")).toContain(`NEXT_PUBLIC_URL="${server.url}"`);
  const pretty = await portico(["status", "--workdir", server.folder]);
  expect(pretty.stdout).toContain(server.url);
});

test("commands report that no server is running", async () => {
  const folder = await projectFolder();
  const status = await portico(["status", "--workdir", folder]);
  expect(status.code).toBe(1);
  expect(status.stderr).toContain("portico dev");
  await rm(folder, { recursive: true });
});

test("a second server on the same folder is rejected with the reason", async () => {
  const server = await start();
  const second = await portico(["dev", "--workdir", server.folder]);
  expect(second.code).toBe(1);
  expect(second.stderr).toMatch(/already|in use|running/);
});

test("a killed server restarts with every acknowledged write", async () => {
  const first = await start();
  expect((await first.client().auth.signUp({ email: "kept@portico.test", password: "correct horse battery" })).error).toBeNull();
  await first.stop("SIGKILL");
  const second = await start({ folder: first.folder });
  const { error } = await second.client().auth.signInWithPassword({ email: "kept@portico.test", password: "correct horse battery" });
  expect(error).toBeNull();
});

test("stop ends the server cleanly", async () => {
  const server = await start();
  const stopped = await portico(["stop", "--workdir", server.folder]);
  expect(stopped).toMatchObject({ code: 0 });
  expect(await server.ended()).toBe(0);
});

test("a wrong type in the configuration names file, line and key", async () => {
  const folder = await projectFolder();
  await write(folder, "supabase/config.toml", 'project_id = "x"\n\n[auth]\njwt_expiry = "soon"\n');
  const failed = await portico(["dev", "--workdir", folder]);
  expect(failed.code).toBe(1);
  expect(failed.stderr).toMatch(/config\.toml.*4/);
  expect(failed.stderr).toContain("jwt_expiry");
  await rm(folder, { recursive: true });
});

test("serve generates its own secrets and rejects the development keys", async () => {
  const folder = await projectFolder({ config: '[auth]\nsite_url = "https://app.portico.test"\n' });
  await write(folder, "supabase/.env", "SUPABASE_AUTH_JWT_SECRET=super-secret-jwt-token-with-at-least-32-characters-long\n");
  const refused = await portico(["serve", "--workdir", folder]);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain("jwt_secret");
  expect(await readFile(join(folder, "supabase/.env"), "utf8")).toContain("SUPABASE_AUTH_JWT_SECRET");
  await rm(folder, { recursive: true });
});

test("serve --check writes nothing, and reads no file of development", async () => {
  const folder = await projectFolder({
    config: '[auth]\nsite_url = "https://app.portico.test"\n',
    files: { "supabase/.env.development": "SUPABASE_AUTH_JWT_EXPIRY=soon\n", "supabase/.env.production": "PORTICO_SERVER_PUBLIC_URL=https://app.portico.test\n" },
  });
  const check = (): ReturnType<typeof portico> => portico(["serve", "--check", "--workdir", folder]);
  expect(await check()).toMatchObject({ code: 0, stdout: "The configuration is fine.\n" });
  expect(existsSync(join(folder, "portico-data"))).toBe(false);
  expect((await readdir(folder)).sort()).toEqual(["supabase"]);
  await write(folder, "supabase/.env.production", "PORTICO_SERVER_PUBLIC_URL=https://app.portico.test\nSUPABASE_AUTH_JWT_EXPIRY=soon\n");
  expect((await check()).code).toBe(1);
  await rm(folder, { recursive: true });
});

test("the default seed file is optional", async () => {
  const server = await start();
  expect(server.log).not.toContain("seed.sql");
  const named = await start({ config: '[db.seed]\nsql_paths = ["./seed.sql", "./mine.sql"]\n' });
  expect(named.log).toContain("no files matched pattern: supabase/mine.sql");
});

test("one setting controls the colours of the log and of everything else", async () => {
  const wish = (env: Record<string, string>): Parameters<typeof start>[0] => ({
    env: { PORTICO_LOG_FORMAT: "text", PORTICO_LOG: "info", CLICOLOR_FORCE: "1", ...env },
  });
  const coloured = await start(wish({ NO_COLOR: "" }));
  await fetch(`${coloured.url}/auth/v1/health`);
  await expect.poll(() => coloured.log).toContain("\u001b[32m INFO\u001b[0m responded");
  expect(coloured.log).toMatch(/\u001b\[\d+m.*Portico is ready/);
  const plain = await start(wish({ NO_COLOR: "1" }));
  await fetch(`${plain.url}/auth/v1/health`);
  await expect.poll(() => plain.log).toContain(" INFO responded");
  expect(plain.log).not.toContain("\u001b");
});

test("an unset variable in portico.toml is reported at the start, and not accepted where accounts depend on it", async () => {
  const check = async (settings: string): Promise<[number | null, string]> => {
    const folder = await projectFolder({ files: { "supabase/portico.toml": settings } });
    const { code, stderr } = await portico(["serve", "--check", "--workdir", folder], { cwd: folder, env: { PORTICO_SERVER_PUBLIC_URL: "https://accounts.example.com" } });
    return [code, stderr];
  };
  const unset = (key: string): string => `environment variable is unset: NOT_SET (${key} counts as not set)`;
  expect(await check('[storage.s3]\naccess_keys = ["BACKUP:env(NOT_SET)"]\n')).toEqual([0, expect.stringContaining(`WARN: supabase/portico.toml:2: ${unset("storage.s3.access_keys")}`)]);
  const [code, problem] = await check('[auth.encryption]\nkeys = ["k1:env(NOT_SET)"]\n');
  expect([code, problem]).toEqual([1, expect.stringContaining(`auth.encryption.keys: ${unset("auth.encryption.keys")}: set the variable, or remove the setting`)]);
});
