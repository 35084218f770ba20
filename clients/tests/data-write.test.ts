// Writing rows with the query builder: insert, upsert, update, delete, and the rows that they
// return.
import { describe, expect, test } from "vitest";

import { responseOf, withMaxAffected, club, eventually, dataOf, errorOf } from "../harness/club.ts";
import { sql } from "../harness/database.ts";

const { portico, service: db } = await club();

const counter = (slug: string): Promise<unknown> => dataOf(db.from("counters").select().eq("slug", slug).maybeSingle());

describe("insert", () => {
  test("stores one row, without returning it", async () => {
    expect(await responseOf(db.from("counters").insert({ slug: "one", n: 1 }))).toMatchObject({ data: null, error: null, count: null, status: 201, statusText: "Created" });
    expect(await counter("one")).toEqual({ slug: "one", n: 1, note: "new" });
  });

  test("stores several rows, with a count", async () => {
    expect(await responseOf(db.from("counters").insert([{ slug: "two", n: 1 }, { slug: "three", n: 2 }], { count: "exact" }))).toMatchObject({ data: null, count: 2, status: 201 });
    expect(await responseOf(db.from("counters").insert([]).select())).toMatchObject({ data: [], status: 201 });
  });

  test("a column missing in one of several rows is null, or the default on request", async () => {
    expect(await dataOf(db.from("counters").insert([{ slug: "null-a", n: 1 }, { slug: "null-b" }]).select("slug, n").order("slug"))).toEqual([{ slug: "null-a", n: 1 }, { slug: "null-b", n: null }]);
    expect(await dataOf(db.from("counters").insert([{ slug: "default-a", n: 1 }, { slug: "default-b" }], { defaultToNull: false }).select("slug, n").order("slug"))).toEqual([
      { slug: "default-a", n: 1 },
      { slug: "default-b", n: 7 },
    ]);
    expect(await dataOf(db.from("counters").insert({ slug: "default-c" }).select().single())).toEqual({ slug: "default-c", n: 7, note: "new" });
  });

  test("returns the new row with its relations", async () => {
    expect(await dataOf(db.from("members").insert({ name: "Fay", club_id: 2 }).select("name, clubs(name)").single())).toEqual({ name: "Fay", clubs: { name: "Hiking" } });
  });

  test("values of all types are returned as they were sent", async () => {
    const club = { name: "Ünïcode 'quoted' \"club\" \\ $1 😀", founded: "2020-02-29", motto: "line\nbreak\ttab", tags: ["a,b", 'c"d', "e f", "NULL", ""], details: { deep: [1, { x: null }], n: 12345678901234 }, seats: "[3,9)", rating: -1.5, active: false, mood: "lively" };
    const { id, ...back } = (await dataOf(db.from("clubs").insert(club).select().single())) as Record<string, unknown>;
    expect(back).toEqual(club);
    expect(id).toBeGreaterThan(1000);
    expect(await dataOf(db.from("clubs").select("id").eq("name", club.name))).toEqual([{ id }]);
    expect(await dataOf(db.from("clubs").select("id").in("name", ["Chess", "Ünïcode"]))).toEqual([{ id: 1 }]);
    await dataOf(db.from("clubs").delete().eq("id", id));
  });

  test("reports why a row is rejected", async () => {
    expect(await errorOf(db.from("counters").insert({ slug: "one" }))).toEqual({
      status: 409,
      code: "23505",
      details: "Key (slug)=(one) already exists.",
      hint: null,
      message: 'duplicate key value violates unique constraint "counters_pkey"',
    });
    expect(await errorOf(db.from("members").insert({ name: "Gus", club_id: 999 }))).toMatchObject({ status: 409, code: "23503" });
    expect(await errorOf(db.from("members").insert({ club_id: 1 }))).toMatchObject({ status: 400, code: "23502" });
    expect(await errorOf(db.from("clubs").insert({ name: "Sad", mood: "gloomy" }))).toMatchObject({ status: 400, code: "22P02" });
    expect(await errorOf(db.from("counters").insert({ slug: "x", colour: "red" }))).toEqual({
      status: 400,
      code: "PGRST204",
      details: null,
      hint: null,
      message: "Could not find the 'colour' column of 'counters' in the schema cache",
    });
    expect(await errorOf(db.from("uploads").insert({ id: 1, body: "x" }))).toMatchObject({ status: 400, code: "428C9" });
    // All or nothing.
    expect(await errorOf(db.from("counters").insert([{ slug: "fresh" }, { slug: "one" }]))).toMatchObject({ status: 409 });
    expect(await counter("fresh")).toBeNull();
  });
});

describe("upsert", () => {
  test("merges by the primary key", async () => {
    expect(await responseOf(db.from("counters").upsert({ slug: "up", n: 1 }))).toMatchObject({ data: null, status: 201 });
    expect(await responseOf(db.from("counters").upsert({ slug: "up", n: 2 }))).toMatchObject({ data: null, status: 200 });
    expect(await responseOf(db.from("counters").upsert([{ slug: "up", n: 3 }, { slug: "up-too", n: 4 }], { count: "exact" }).select("slug,n").order("slug"))).toMatchObject({
      status: 201,
      count: 2,
      data: [{ slug: "up", n: 3 }, { slug: "up-too", n: 4 }],
    });
  });

  test("merges by another unique column", async () => {
    expect(await responseOf(db.from("clubs").upsert({ name: "Chess", motto: "New motto" }, { onConflict: "name" }).select("id, name, motto, founded"))).toMatchObject({
      status: 200,
      data: [{ id: 1, name: "Chess", motto: "New motto", founded: "1990-05-01" }],
    });
    expect(await errorOf(db.from("clubs").upsert({ name: "Chess" }, { onConflict: "motto" }))).toMatchObject({ status: 400, code: "42P10" });
  });

  test("leaves existing rows unchanged", async () => {
    await dataOf(db.from("counters").insert({ slug: "kept", n: 1 }));
    expect(await responseOf(db.from("counters").upsert([{ slug: "kept", n: 9 }, { slug: "kept-too", n: 9 }], { ignoreDuplicates: true }).select("slug"))).toMatchObject({ status: 201, data: [{ slug: "kept-too" }] });
    expect(await counter("kept")).toMatchObject({ n: 1 });
  });

  test("missing columns become null, or their default", async () => {
    await dataOf(db.from("counters").insert({ slug: "gap", n: 1 }));
    await dataOf(db.from("counters").upsert([{ slug: "gap" }, { slug: "gap-too", n: 2 }]));
    expect(await counter("gap")).toMatchObject({ n: null });
    await dataOf(db.from("counters").upsert([{ slug: "gap" }, { slug: "gap-too", n: 2 }], { defaultToNull: false }));
    expect(await counter("gap")).toMatchObject({ n: 7 });
  });

  test("of the same row twice is rejected", async () => {
    expect(await errorOf(db.from("counters").upsert([{ slug: "twin", n: 1 }, { slug: "twin", n: 2 }]))).toMatchObject({ status: 500, code: "21000" });
  });
});

describe("update", () => {
  test("changes the rows of a filter", async () => {
    await dataOf(db.from("counters").insert([{ slug: "u-1", n: 1 }, { slug: "u-2", n: 2 }]));
    expect(await responseOf(db.from("counters").update({ n: 10 }).like("slug", "u-%"))).toMatchObject({ data: null, status: 204, count: null });
    expect(await responseOf(db.from("counters").update({ n: 11 }, { count: "exact" }).like("slug", "u-%"))).toMatchObject({ status: 204, count: 2 });
    expect(await responseOf(db.from("counters").update({ n: 12 }).like("slug", "u-%").select("slug,n").order("slug", { ascending: false }))).toMatchObject({
      status: 200,
      data: [{ slug: "u-2", n: 12 }, { slug: "u-1", n: 12 }],
    });
    expect(await dataOf(db.from("counters").update({ n: null, note: "x" }).eq("slug", "u-1").select().single())).toEqual({ slug: "u-1", n: null, note: "x" });
    expect(await dataOf(db.from("counters").update({ n: 1 }).or("slug.eq.u-1,slug.eq.u-2").select("slug").order("slug"))).toEqual([{ slug: "u-1" }, { slug: "u-2" }]);
  });

  test("no matching row is no error, unless one is required", async () => {
    expect(await responseOf(db.from("counters").update({ n: 1 }).eq("slug", "nobody"))).toMatchObject({ status: 204, error: null });
    expect(await responseOf(db.from("counters").update({ n: 1 }).eq("slug", "nobody").select())).toMatchObject({ status: 200, data: [] });
    expect(await errorOf(db.from("counters").update({ n: 1 }).eq("slug", "nobody").select().single())).toMatchObject({ status: 406, code: "PGRST116", details: "The result contains 0 rows" });
    expect(await responseOf(db.from("counters").update({ n: 1 }).eq("slug", "nobody").select().maybeSingle())).toMatchObject({ data: null, error: null });
  });

  test("too many rows for single() are left unchanged", async () => {
    await dataOf(db.from("counters").insert([{ slug: "s-1", n: 1 }, { slug: "s-2", n: 1 }]));
    expect(await errorOf(db.from("counters").update({ n: 2 }).like("slug", "s-%").select().single())).toMatchObject({ status: 406, code: "PGRST116" });
    expect(await counter("s-1")).toMatchObject({ n: 1 });
  });

  test("without a filter is rejected", async () => {
    expect(await errorOf(db.from("counters").update({ n: 0 }))).toMatchObject({ status: 400, code: "21000", message: "UPDATE requires a WHERE clause" });
    expect(await errorOf(db.from("counters").delete())).toMatchObject({ status: 400, code: "21000", message: "DELETE requires a WHERE clause" });
  });

  test("is limited by maxAffected", async () => {
    await dataOf(db.from("counters").insert([{ slug: "m-1", n: 1 }, { slug: "m-2", n: 1 }]));
    expect(await errorOf(withMaxAffected(db.from("counters").update({ n: 5 }).like("slug", "m-%"), 1))).toEqual({
      status: 400,
      code: "PGRST124",
      details: "The query affects 2 rows",
      hint: null,
      message: "Query result exceeds max-affected preference constraint",
    });
    expect(await counter("m-1")).toMatchObject({ n: 1 });
    expect(await responseOf(withMaxAffected(db.from("counters").update({ n: 5 }).like("slug", "m-%"), 2))).toMatchObject({ status: 204 });
    expect(await errorOf(withMaxAffected(db.from("counters").delete().like("slug", "m-%"), 1))).toMatchObject({ code: "PGRST124" });
    expect(await responseOf(withMaxAffected(db.from("counters").delete().like("slug", "m-%"), 2).select())).toMatchObject({ status: 200 });
  });
});

describe("delete", () => {
  test("removes the rows of a filter", async () => {
    await dataOf(db.from("counters").insert([{ slug: "d-1" }, { slug: "d-2" }, { slug: "d-3" }]));
    expect(await responseOf(db.from("counters").delete().eq("slug", "d-1"))).toMatchObject({ data: null, status: 204 });
    expect(await responseOf(db.from("counters").delete({ count: "exact" }).eq("slug", "d-2"))).toMatchObject({ status: 204, count: 1 });
    expect(await dataOf(db.from("counters").delete().in("slug", ["d-3", "d-4"]).select("slug"))).toEqual([{ slug: "d-3" }]);
    expect(await responseOf(db.from("counters").delete().eq("slug", "d-3").select())).toMatchObject({ status: 200, data: [] });
  });
});

test("a view is written through", async () => {
  expect(await dataOf(db.from("open_clubs").update({ rating: 4.6 }).eq("id", 1).select("name, rating").single())).toEqual({ name: "Chess", rating: 4.6 });
  expect(await dataOf(db.from("clubs").select("rating").eq("id", 1).single())).toEqual({ rating: 4.6 });
});

test("a request can roll back where the configuration allows it", async () => {
  expect(await responseOf(db.from("counters").insert({ slug: "really" }).rollback())).toMatchObject({ status: 201 });
  expect(await counter("really")).not.toBeNull();
  await sql(portico.status.DB_URL, "alter role authenticator set pgrst.db_tx_end = 'commit-allow-override'");
  await sql(portico.status.DB_URL, "notify pgrst, 'reload config'");
  let attempt = 0;
  await eventually(async () => {
    const slug = `tried-${++attempt}`;
    expect(await dataOf(db.from("counters").insert({ slug }).select("slug").rollback())).toEqual([{ slug }]);
    expect(await counter(slug)).toBeNull();
  });
});
