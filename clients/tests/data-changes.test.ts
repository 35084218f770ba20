// The data API while its database changes: migrations, configuration, load, a crash; and large
// bodies.
import { readFile, readdir } from "node:fs/promises";
import { join } from "node:path";

import { describe, expect, test } from "vitest";

import { responseOf, club, eventually, dataOf, errorOf, type ClientResponse } from "../harness/club.ts";
import { sql } from "../harness/database.ts";
import { portico as command, write } from "../harness/portico.ts";

const { portico, service: db } = await club();

describe("a change applies at once", () => {
  test("a table of a migration while the server runs", async () => {
    for (let turn = 0; turn < 3; turn += 1) {
      await write(
        portico.folder,
        `supabase/migrations/2026020112000${turn}_later.sql`,
        `create table public.later_${turn} (id bigint generated always as identity primary key, club_id bigint references public.clubs, title text);\n` +
          `create function public.later_${turn}_titles() returns setof text stable language sql as 'select title from public.later_${turn}';\n`,
      );
      const { code, stderr } = await command(["migration", "up", "--workdir", portico.folder], { cwd: portico.folder });
      expect(code, stderr).toBe(0);
      expect(await dataOf(db.from(`later_${turn}`).insert({ club_id: 1, title: "first" }).select("title, clubs(name)").single())).toEqual({ title: "first", clubs: { name: "Chess" } });
      expect(await dataOf(db.rpc(`later_${turn}_titles`))).toEqual(["first"]);
    }
  });

  test("columns and functions that come and go", async () => {
    await sql(portico.status.DB_URL, "create table public.shape (id bigint primary key)");
    expect(await responseOf(db.from("shape").insert({ id: 1 }))).toMatchObject({ status: 201 });
    await sql(portico.status.DB_URL, "alter table public.shape add column note text");
    expect(await dataOf(db.from("shape").update({ note: "here" }).eq("id", 1).select().single())).toEqual({ id: 1, note: "here" });
    await sql(portico.status.DB_URL, "alter table public.shape rename column note to remark");
    expect(await dataOf(db.from("shape").select())).toEqual([{ id: 1, remark: "here" }]);
    expect(await errorOf(db.from("shape").insert({ id: 2, note: "there" }))).toMatchObject({ code: "PGRST204" });
    await sql(portico.status.DB_URL, "alter table public.shape alter column id type text");
    expect(await dataOf(db.from("shape").insert({ id: "two" }).select().single())).toEqual({ id: "two", remark: null });
    expect(await dataOf(db.from("shape").select().eq("id", "1"))).toEqual([{ id: "1", remark: "here" }]);
    await sql(portico.status.DB_URL, "drop table public.shape");
    expect(await errorOf(db.from("shape").select())).toMatchObject({ status: 404, code: "PGRST205" });
  });

  test("configuration in the database", async () => {
    expect(await dataOf(db.from("clubs").select("id").order("id"))).toHaveLength(4);
    await sql(portico.status.DB_URL, "alter role authenticator set pgrst.db_max_rows = '2'");
    await sql(portico.status.DB_URL, "alter role authenticator set pgrst.db_aggregates_enabled = 'true'");
    await sql(portico.status.DB_URL, "notify pgrst, 'reload config'");
    await eventually(async () => { expect(await dataOf(db.from("clubs").select("id").order("id"))).toHaveLength(2); });
    expect(await dataOf(db.from("clubs").select("mood, id.count()").order("mood"))).toEqual([{ mood: "calm", count: 2 }, { mood: "lively", count: 2 }]);
    await sql(portico.status.DB_URL, "alter role authenticator reset all");
    await sql(portico.status.DB_URL, "notify pgrst");
    await eventually(async () => { expect(await dataOf(db.from("clubs").select("id").order("id"))).toHaveLength(4); });
  });
});

test("two hundred writes survive a change of their table", async () => {
  await sql(portico.status.DB_URL, "create table public.busy (id bigint generated always as identity primary key, n integer not null)");
  const writer = async (n: number): Promise<ClientResponse> => responseOf(db.from("busy").insert({ n }).select("n").single());
  const first = Array.from({ length: 100 }, (_, n) => writer(n));
  const change = sql(portico.status.DB_URL, "alter table public.busy add column note text default 'x'; create index on public.busy (n)");
  const second = Array.from({ length: 100 }, (_, n) => writer(100 + n));
  const responses = await Promise.all([...first, ...second]);
  await change;
  expect(responses.filter(({ error }) => error !== null)).toEqual([]);
  expect(responses.map(({ data }) => (data as { n: number }).n)).toEqual(Array.from({ length: 200 }, (_, n) => n));
  expect(await responseOf(db.from("busy").select("*", { count: "exact", head: true }).eq("note", "x"))).toMatchObject({ count: 200 });
});

describe("large bodies", () => {
  test("ten thousand rows are cut to the configured maximum", async () => {
    const rows = Array.from({ length: 10_000 }, (_, n) => ({ n }));
    await sql(portico.status.DB_URL, "create table public.wide (n integer primary key)");
    expect(await responseOf(db.from("wide").insert(rows, { count: "exact" }))).toMatchObject({ status: 201, count: 10_000 });
    expect(await dataOf(db.from("wide").select())).toHaveLength(1000);
    expect(await responseOf(db.from("wide").select("n", { count: "exact" }).order("n").range(9_990, 10_500))).toMatchObject({ status: 206, count: 10_000, data: rows.slice(9_990) });
    // The value is read as it was written.
    expect(await dataOf(db.from("wide").update({}).gte("n", 0).select())).toEqual([]);
    expect(await dataOf(db.from("wide").delete().gte("n", 0).select().order("n"))).toEqual(rows);
  });

  test("ten thousand rows where the limit allows them", async () => {
    await sql(portico.status.DB_URL, "alter role authenticator set pgrst.db_max_rows = '20000'");
    await sql(portico.status.DB_URL, "notify pgrst, 'reload config'");
    await sql(portico.status.DB_URL, "create table public.all_of_them as select n, repeat('x', 100) as body from generate_series(1, 10000) n");
    await eventually(async () => { expect(await dataOf(db.from("all_of_them").select().order("n"))).toHaveLength(10_000); });
  });

  test("ten megabytes in one value", async () => {
    const body = "0123456789".repeat(1024 * 1024);
    const { id } = (await dataOf(db.from("uploads").insert({ body }).select("id").single())) as { id: number };
    const back = (await dataOf(db.from("uploads").select("body").eq("id", id).single())) as { body: string };
    expect(back.body === body).toBe(true);
  });

  test("a body beyond the limit is rejected", async () => {
    const response = await fetch(`${portico.url}/rest/v1/uploads`, {
      method: "POST",
      headers: { apikey: portico.status.SECRET_KEY, "Content-Type": "application/json" },
      body: JSON.stringify({ body: "x".repeat(65 * 1024 * 1024) }),
    });
    expect(response.status).toBe(413);
    expect(((await response.json()) as { message: string }).message).toBeTruthy();
    expect(await dataOf(db.from("clubs").select("id").eq("id", 1))).toEqual([{ id: 1 }]);
  });

  test("a list of two thousand values in a filter", async () => {
    const ids = Array.from({ length: 2000 }, (_, n) => n + 1);
    expect(await dataOf(db.from("clubs").select("id").in("id", ids).lte("id", 4).order("id"))).toHaveLength(4);
  });
});

/** Returns the process id of the project's PostgreSQL. */
async function postmaster(): Promise<number> {
  const files = await readdir(join(portico.folder, ".portico"), { recursive: true });
  const file = files.find((name) => name.endsWith("postmaster.pid"));
  return Number((await readFile(join(portico.folder, ".portico", file!), "utf8")).split("\n")[0]);
}

test("PostgreSQL crashes under load and recovers", async () => {
  const pid = await postmaster();
  const call = async (path: string, init: RequestInit = {}): Promise<{ status: number; retryAfter: number; code?: string }> => {
    const headers = { apikey: portico.status.SECRET_KEY, "Content-Type": "application/json" };
    const response = await fetch(`${portico.url}/rest/v1${path}`, { ...init, headers });
    const text = await response.text();
    const code = response.ok ? undefined : (JSON.parse(text) as { code: string }).code;
    return { status: response.status, retryAfter: Number(response.headers.get("retry-after")), ...(code === undefined ? {} : { code }) };
  };
  const failures: Awaited<ReturnType<typeof call>>[] = [];
  let working = true;
  let done = 0;
  const load = Array.from({ length: 8 }, async () => {
    while (working) {
      const got = await call("/clubs?select=id&id=eq.1");
      if (got.status === 200) {
        done += 1;
      } else {
        failures.push(got);
        await new Promise((resume) => setTimeout(resume, 20));
      }
    }
  });
  const further = async (count: number): Promise<void> => {
    const before = done;
    await eventually(() => { expect(done).toBeGreaterThan(before + count); return Promise.resolve(); });
  };
  try {
    await further(20);
    // Requests in flight at the crash fail.
    const lost = call("/rpc/sleepy", { method: "POST", body: '{"seconds": 7}' });
    const sleeping = "select 1 from pg_stat_activity where wait_event = 'PgSleep'";
    await eventually(async () => { expect(await sql(portico.status.DB_URL, sleeping)).toHaveLength(1); });
    process.kill(pid, "SIGKILL");
    const refusal = await lost;
    expect(refusal).toMatchObject({ status: 503, code: "PGRST001" });
    expect(refusal.retryAfter).toBeGreaterThanOrEqual(1);
    // A new process serves, without intervention.
    await eventually(async () => { expect(await postmaster()).not.toBe(pid); });
    await further(20);
  } finally {
    working = false;
    await Promise.all(load);
  }
  for (const failure of failures) {
    expect(failure).toMatchObject({ status: 503 });
    expect(failure.retryAfter).toBeGreaterThanOrEqual(1);
  }
  // Writes, embeds and schema reloads work as before.
  expect(await responseOf(db.from("counters").upsert({ slug: "alive", n: 1 }))).toMatchObject({ error: null });
  expect(await dataOf(db.from("members").select("name, clubs(name)").eq("id", 1).single())).toEqual({ name: "Ada", clubs: { name: "Chess" } });
  await eventually(async () => { await sql(portico.status.DB_URL, "create table if not exists public.afterwards (id bigint primary key)"); });
  await eventually(async () => { expect(await dataOf(db.from("afterwards").select())).toEqual([]); });
});

test("the client's own retries get reads through a crash", async () => {
  const pid = await postmaster();
  process.kill(pid, "SIGKILL");
  const reads = await Promise.all(Array.from({ length: 20 }, () => responseOf(db.from("clubs").select("id").eq("id", 2))));
  // Three retries, a second apart. A slow machine may take longer to start PostgreSQL; the error
  // then reports it.
  for (const read of reads) {
    if (read.error === null) expect(read.data).toEqual([{ id: 2 }]);
    else expect(read.status).toBe(503);
  }
  await eventually(async () => { expect(await dataOf(db.from("clubs").select("id").eq("id", 2))).toEqual([{ id: 2 }]); });
});
