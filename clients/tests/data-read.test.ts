// Reading rows with the query builder: every filter and every modifier of `from(…).select(…)`.
import type { SupabaseClient } from "@supabase/supabase-js";
import { describe, expect, test } from "vitest";

import { responseOf, club, eventually, dataOf, errorOf } from "../harness/club.ts";
import { sql } from "../harness/database.ts";

const { portico, db } = await club();

describe("select", () => {
  test("returns everything, some columns, aliases, casts and paths into json", async () => {
    expect(await dataOf(db.from("badges").select().order("club_id"))).toEqual([{ club_id: 1, colour: "gold" }, { club_id: 2, colour: "green" }]);
    expect(await dataOf(db.from("clubs").select("id, name").eq("id", 1))).toEqual([{ id: 1, name: "Chess" }]);
    expect(await dataOf(db.from("clubs").select("title:name, founded, rating::text, level:details->>level, fees:details->fees->year, tags->0, seats, mood").eq("id", 1))).toEqual([
      { title: "Chess", founded: "1990-05-01", rating: "4.5", level: "hard", fees: 30, tags: "board", seats: "[1,20)", mood: "calm" },
    ]);
    expect(await dataOf(db.from("members").select("name, initials").eq("id", 1))).toEqual([{ name: "Ada", initials: "A." }]);
    expect(await dataOf(db.from("open_clubs").select("name").order("id"))).toEqual([{ name: "Chess" }, { name: "Hiking" }]);
  });

  test("counts, with rows and without", async () => {
    expect(await responseOf(db.from("clubs").select("id", { count: "exact" }).order("id").limit(2))).toMatchObject({ status: 206, count: 4, data: [{ id: 1 }, { id: 2 }] });
    expect(await responseOf(db.from("clubs").select("*", { count: "exact", head: true }))).toMatchObject({ status: 200, count: 4, data: null, error: null });
    expect(await responseOf(db.from("clubs").select("*", { count: "estimated", head: true }))).toMatchObject({ count: 4 });
    expect((await responseOf(db.from("clubs").select("*", { count: "planned", head: true }))).count).toBeGreaterThanOrEqual(1);
    expect(await responseOf(db.from("clubs").select("*", { count: "exact", head: true }).eq("id", 99))).toMatchObject({ status: 200, count: 0 });
    expect((await responseOf(db.from("clubs").select())).count).toBeNull();
  });

  test("an error of a HEAD request has its status and no message", async () => {
    expect(await responseOf(db.from("clubs").select("nowhere", { head: true }))).toMatchObject({ status: 400, data: null, error: { message: "" } });
  });
});

describe("filters", () => {
  const ids = async (request: PromiseLike<unknown>): Promise<number[]> => ((await dataOf(request)) as { id: number }[]).map(({ id }) => id).sort((a, b) => a - b);
  const clubs = (): ReturnType<ReturnType<SupabaseClient["from"]>["select"]> => db.from("clubs").select("id");

  test("compare numbers, texts and dates", async () => {
    expect(await ids(clubs().eq("name", "Film (old)"))).toEqual([3]);
    expect(await ids(clubs().eq("motto", "Think, then move"))).toEqual([1]);
    expect(await ids(clubs().neq("id", 1))).toEqual([2, 3, 4]);
    expect(await ids(clubs().gt("rating", 3.2))).toEqual([1, 3]);
    expect(await ids(clubs().gte("rating", 3.2))).toEqual([1, 2, 3]);
    expect(await ids(clubs().lt("founded", "1990-05-01"))).toEqual([3]);
    expect(await ids(clubs().lte("founded", "1990-05-01"))).toEqual([1, 3]);
    expect(await ids(clubs().eq("details->>level", "hard"))).toEqual([1, 4]);
    expect(await ids(clubs().gt("details->fees->year", 100))).toEqual([4]);
    expect(await ids(clubs().eq("mood", "lively"))).toEqual([2, 4]);
  });

  test("match patterns", async () => {
    expect(await ids(clubs().like("name", "%i%"))).toEqual([2, 3, 4]);
    expect(await ids(clubs().like("name", "*ing"))).toEqual([2, 4]);
    expect(await ids(clubs().ilike("name", "CH%"))).toEqual([1]);
    expect(await ids(clubs().likeAllOf("name", ["%i%", "%m%"]))).toEqual([3]);
    expect(await ids(clubs().likeAnyOf("name", ["Ch%", "R%"]))).toEqual([1, 4]);
    expect(await ids(clubs().ilikeAllOf("name", ["%I%", "%M%"]))).toEqual([3]);
    expect(await ids(clubs().ilikeAnyOf("name", ["ch%", "r%"]))).toEqual([1, 4]);
    expect(await ids(clubs().regexMatch("name", "^[CR]"))).toEqual([1, 4]);
    expect(await ids(clubs().regexIMatch("name", "^[cr]"))).toEqual([1, 4]);
  });

  test("compare with null, truth and lists", async () => {
    expect(await ids(clubs().is("active", null))).toEqual([4]);
    expect(await ids(clubs().is("active", true))).toEqual([1, 2]);
    expect(await ids(clubs().is("active", false))).toEqual([3]);
    expect(await ids(clubs().isDistinct("motto", "Silence, please"))).toEqual([1, 2, 4]);
    expect(await ids(clubs().in("id", [1, 3, 3, 99]))).toEqual([1, 3]);
    expect(await ids(clubs().in("name", ["Film (old)", "Chess"]))).toEqual([1, 3]);
    expect(await ids(clubs().in("id", []))).toEqual([]);
    expect(await ids(clubs().notIn("id", [1, 2]))).toEqual([3, 4]);
  });

  test("compare arrays, documents and ranges", async () => {
    expect(await ids(clubs().contains("tags", ["outdoor"]))).toEqual([2, 4]);
    expect(await ids(clubs().contains("details", { level: "hard" }))).toEqual([1, 4]);
    expect(await ids(clubs().contains("seats", "[45,46)"))).toEqual([2, 3]);
    expect(await ids(clubs().containedBy("tags", ["outdoor", "indoor", "culture"]))).toEqual([2, 3]);
    expect(await ids(clubs().containedBy("details", { level: "easy", more: 1 }))).toEqual([2, 3]);
    expect(await ids(clubs().overlaps("tags", ["board", "water"]))).toEqual([1, 4]);
    expect(await ids(clubs().overlaps("seats", "[15,25)"))).toEqual([1, 2]);
    expect(await ids(clubs().rangeGt("seats", "[1,40)"))).toEqual([3, 4]);
    expect(await ids(clubs().rangeGte("seats", "[40,50)"))).toEqual([3, 4]);
    expect(await ids(clubs().rangeLt("seats", "[40,80)"))).toEqual([1]);
    expect(await ids(clubs().rangeLte("seats", "[30,50)"))).toEqual([1, 2]);
    expect(await ids(clubs().rangeAdjacent("seats", "[80,100)"))).toEqual([3, 4]);
  });

  test("search full text", async () => {
    const events = (): ReturnType<ReturnType<SupabaseClient["from"]>["select"]> => db.from("events").select("id");
    expect(await ids(events().textSearch("about", "night | walks", { config: "english" }))).toEqual([1, 2]);
    expect(await ids(events().textSearch("about", "open days", { type: "plain", config: "english" }))).toEqual([4]);
    expect(await ids(events().textSearch("about", "blitz night", { type: "phrase" }))).toEqual([1]);
    expect(await ids(events().textSearch("about", '"summit walk" or metropolis', { type: "websearch", config: "english" }))).toEqual([2, 3]);
    expect(await ids(events().textSearch("title", "night"))).toEqual([1]);
  });

  test("are combined by match, not, filter and or", async () => {
    expect(await ids(clubs().match({ active: true, mood: "calm" }))).toEqual([1]);
    expect(await ids(clubs().not("motto", "is", null))).toEqual([1, 3]);
    expect(await ids(clubs().not("id", "in", "(1,2)"))).toEqual([3, 4]);
    expect(await ids(clubs().not("tags", "cs", "{outdoor}"))).toEqual([1, 3]);
    expect(await ids(clubs().filter("rating", "gte", 4.5))).toEqual([1, 3]);
    expect(await ids(clubs().filter("name", "in", '("Film (old)",Chess)'))).toEqual([1, 3]);
    expect(await ids(clubs().or("id.eq.2,name.eq.Chess"))).toEqual([1, 2]);
    expect(await ids(clubs().or('motto.eq."Think, then move",and(rating.gt.4.8,active.is.false)'))).toEqual([1, 3]);
    expect(await ids(clubs().or("active.is.true,id.eq.3").or("mood.eq.calm,id.eq.4"))).toEqual([1, 3]);
    expect(await ids(clubs().or("not.and(id.gt.1,id.lt.4)"))).toEqual([1, 4]);
  });
});

describe("modifiers", () => {
  test("order, limit and range select the rows", async () => {
    const names = async (request: PromiseLike<unknown>): Promise<string[]> => ((await dataOf(request)) as { name: string }[]).map(({ name }) => name);
    expect(await names(db.from("clubs").select("name").order("name"))).toEqual(["Chess", "Film (old)", "Hiking", "Rowing"]);
    expect(await names(db.from("clubs").select("name").order("rating", { ascending: false }))).toEqual(["Rowing", "Film (old)", "Chess", "Hiking"]);
    expect(await names(db.from("clubs").select("name").order("rating", { ascending: false, nullsFirst: false }))).toEqual(["Film (old)", "Chess", "Hiking", "Rowing"]);
    expect(await names(db.from("clubs").select("name").order("founded", { nullsFirst: true }))).toEqual(["Rowing", "Film (old)", "Chess", "Hiking"]);
    expect(await names(db.from("clubs").select("name").order("mood").order("id", { ascending: false }))).toEqual(["Film (old)", "Chess", "Rowing", "Hiking"]);
    expect(await names(db.from("clubs").select("name").order("details->>level", { nullsFirst: false }).order("id"))).toEqual(["Hiking", "Chess", "Rowing", "Film (old)"]);
    expect(await names(db.from("clubs").select("name").order("id").limit(1))).toEqual(["Chess"]);
    expect(await names(db.from("clubs").select("name").order("id").range(1, 2))).toEqual(["Hiking", "Film (old)"]);
    expect(await names(db.from("clubs").select("name").order("id").range(10, 20))).toEqual([]);
    expect(await errorOf(db.from("clubs").select("name", { count: "exact" }).range(10, 20))).toEqual({
      status: 416,
      code: "PGRST103",
      details: "An offset of 10 was requested, but there are only 4 rows.",
      hint: null,
      message: "Requested range not satisfiable",
    });
  });

  test("single and maybeSingle return one row, or none", async () => {
    expect(await dataOf(db.from("clubs").select("name").eq("id", 2).single())).toEqual({ name: "Hiking" });
    expect(await dataOf(db.from("clubs").select("name").eq("id", 2).maybeSingle())).toEqual({ name: "Hiking" });
    expect(await responseOf(db.from("clubs").select("name").eq("id", 99).maybeSingle())).toMatchObject({ data: null, error: null, status: 200 });
    expect(await errorOf(db.from("clubs").select("name").eq("id", 99).single())).toEqual({
      status: 406,
      code: "PGRST116",
      details: "The result contains 0 rows",
      hint: null,
      message: "Cannot coerce the result to a single JSON object",
    });
    expect(await errorOf(db.from("clubs").select("name").single())).toMatchObject({ status: 406, code: "PGRST116", details: "The result contains 4 rows" });
    expect(await errorOf(db.from("clubs").select("name").maybeSingle())).toMatchObject({ code: "PGRST116" });
  });

  test("csv returns the rows as CSV", async () => {
    expect(await dataOf(db.from("clubs").select("id,name,motto,active,tags").order("id").csv())).toBe(
      'id,name,motto,active,tags\n1,Chess,"Think, then move",t,"{board,indoor}"\n2,Hiking,,t,{outdoor}\n3,"Film (old)","Silence, please",f,"{indoor,culture}"\n4,Rowing,,,"{outdoor,water}"',
    );
  });

  test("geojson is rejected where the database has no PostGIS", async () => {
    expect(await responseOf(db.from("clubs").select().geojson())).toMatchObject({ status: 404, data: null, error: { code: "42883" } });
  });

  test("nulls are left out", async () => {
    expect(await dataOf(db.from("clubs").select("id,motto,rating").order("id").stripNulls())).toEqual([
      { id: 1, motto: "Think, then move", rating: 4.5 },
      { id: 2, rating: 3.2 },
      { id: 3, motto: "Silence, please", rating: 4.9 },
      { id: 4 },
    ]);
    expect(await dataOf(db.from("clubs").select("id,motto").eq("id", 4).single().stripNulls())).toEqual({ id: 4 });
  });

  test("explain returns plans, once they are enabled", async () => {
    expect(await errorOf(db.from("clubs").select().explain())).toMatchObject({ status: 406, code: "PGRST107" });
    await sql(portico.status.DB_URL, "alter role authenticator set pgrst.db_plan_enabled = 'true'");
    await sql(portico.status.DB_URL, "notify pgrst, 'reload config'");
    await eventually(async () => { expect(await dataOf(db.from("clubs").select().explain())).toContain("Aggregate"); });
    const plans = (await dataOf(db.from("clubs").select().eq("id", 1).explain({ format: "json", analyze: true, verbose: true, settings: true, buffers: true }))) as { Plan: { "Actual Rows": number } }[];
    expect(plans[0]!.Plan["Actual Rows"]).toBe(1);
    // In the format requested before, which the client's types do not have.
    const single = db.from("clubs").select().eq("id", 1).single() as unknown as { explain(options: object): PromiseLike<unknown> };
    expect(await dataOf(single.explain({ analyze: true }))).toContain("actual");
  });

  test("throwOnError, overrideTypes and abortSignal do what they say", async () => {
    await expect(db.from("nowhere").select().throwOnError().then()).rejects.toMatchObject({ code: "PGRST205", message: "Could not find the table 'public.nowhere' in the schema cache" });
    expect(await dataOf(db.from("clubs").select("id").eq("id", 1).overrideTypes<{ id: number }[], { merge: false }>())).toEqual([{ id: 1 }]);
    // eslint-disable-next-line @typescript-eslint/no-deprecated -- apps still use it
    expect(await dataOf(db.from("clubs").select("id").eq("id", 1).returns<{ id: number }[]>())).toEqual([{ id: 1 }]);
    expect((await responseOf(db.from("clubs").select().abortSignal(AbortSignal.abort()))).error?.message).toContain("AbortError");
    expect(await dataOf(db.from("clubs").select("id").eq("id", 1).abortSignal(new AbortController().signal))).toEqual([{ id: 1 }]);
  });
});

describe("errors pass through the client unchanged", () => {
  test("those of Portico are the documented ones", async () => {
    expect(await errorOf(db.from("club").select())).toEqual({
      status: 404,
      code: "PGRST205",
      details: null,
      hint: "Perhaps you meant the table 'public.clubs'",
      message: "Could not find the table 'public.club' in the schema cache",
    });
    expect(await errorOf(db.from("clubs").select("id,venues(name)"))).toMatchObject({ status: 400, code: "PGRST200" });
    expect(await errorOf(db.from("clubs").select("id,name.sum()"))).toMatchObject({ status: 400, code: "PGRST123" });
    expect(await errorOf(db.from("clubs").select("id,,"))).toMatchObject({ status: 400, code: "PGRST100" });
    expect(await errorOf(db.schema("private").from("hidden").select())).toEqual({
      status: 406,
      code: "PGRST106",
      details: null,
      hint: "Only the following schemas are exposed: public, archive",
      message: "Invalid schema: private",
    });
  });

  test("those of PostgreSQL keep their code", async () => {
    expect(await errorOf(db.from("clubs").select("colour"))).toEqual({ status: 400, code: "42703", details: null, hint: null, message: "column clubs.colour does not exist" });
    expect(await errorOf(db.from("clubs").select().eq("id", "one"))).toEqual({ status: 400, code: "22P02", details: null, hint: null, message: 'invalid input syntax for type bigint: "one"' });
    expect(await errorOf(db.from("clubs").select().contains("name", ["a"]))).toMatchObject({ status: 404, code: "42883" });
    expect(await errorOf(db.from("clubs").select().regexMatch("name", "("))).toMatchObject({ status: 400, code: "2201B" });
  });
});

test("another schema is read under its name", async () => {
  expect(await dataOf(db.schema("archive").from("minutes").select())).toEqual([{ id: 1, text: "We met." }]);
  expect(await dataOf(db.schema("archive").rpc("pages"))).toBe(12);
  expect(await errorOf(db.from("minutes").select())).toMatchObject({ status: 404, code: "PGRST205" });
});
