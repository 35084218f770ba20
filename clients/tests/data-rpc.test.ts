// Functions of the database, called with every form of `rpc()`.
import { describe, expect, test } from "vitest";

import { admin, responseOf, withMaxAffected, club, dataOf, errorOf } from "../harness/club.ts";
import { sql } from "../harness/database.ts";

const { portico, db } = await club();

test("a request to a busy server is retried after the pause that it names", async () => {
  await sql(
    portico.status.DB_URL,
    `create function public.busy_once() returns text stable language plpgsql as $$
     begin
       if current_setting('request.headers')::json ->> 'x-retry-count' is null then raise sqlstate 'PT503' using message = 'Later'; end if;
       return current_setting('request.headers')::json ->> 'x-retry-count';
     end $$`,
  );
  const asked: { at: number; count: string | null; retryAfter: string | null }[] = [];
  const recording: typeof fetch = async (input, init) => {
    const at = Date.now();
    const response = await fetch(input, init);
    asked.push({ at, count: new Headers(init?.headers).get("x-retry-count"), retryAfter: response.headers.get("retry-after") });
    return response;
  };
  const client = portico.client({ global: { fetch: recording } });
  expect(await responseOf(client.rpc("busy_once", {}, { get: true }))).toMatchObject({ data: "1", status: 200 });
  expect(asked.map(({ count, retryAfter }) => ({ count, retryAfter }))).toEqual([{ count: null, retryAfter: "1" }, { count: "1", retryAfter: null }]);
  expect(asked[1]!.at - asked[0]!.at).toBeGreaterThanOrEqual(990);
  // A write that may have run is not retried.
  expect(await errorOf(client.rpc("busy_once"))).toMatchObject({ status: 503, message: "Later" });
  expect(asked).toHaveLength(3);
});

describe("arguments", () => {
  test("are passed by name, with defaults, over POST and GET", async () => {
    expect(await responseOf(db.rpc("add_them", { a: 1, b: 2 }))).toMatchObject({ data: 3, status: 200 });
    expect(await dataOf(db.rpc("add_them", { a: 1, b: 2 }, { get: true }))).toBe(3);
    expect(await dataOf(db.rpc("hello"))).toBe("hello");
    expect(await dataOf(db.rpc("hello", {}, { get: true }))).toBe("hello");
    expect(await dataOf(db.rpc("hello", undefined, { get: true }))).toBe("hello");
    expect(await dataOf(db.rpc("price", { members: 3 }))).toBe(20);
    expect(await dataOf(db.rpc("price", { members: 3, discount: 0 }))).toBe(30);
    expect(await dataOf(db.rpc("price", { members: 3, discount: undefined }, { get: true }))).toBe(20);
  });

  test("can be lists and documents, and many", async () => {
    expect(await dataOf(db.rpc("longest", { words: ["a", "abc", "ab"] }))).toBe("abc");
    expect(await dataOf(db.rpc("longest", { words: ["a", "abc", "ab"] }, { get: true }))).toBe("abc");
    expect(await dataOf(db.rpc("total", { numbers: [1, 2, 3] }))).toBe(6);
    expect(await dataOf(db.rpc("mirror", { any: ["thing", null] }))).toEqual({ any: ["thing", null] });
    expect(await dataOf(db.rpc("measure", { settings: { a: 1, b: { c: 2 } } }))).toBe(2);
  });

  test("that no function has are rejected", async () => {
    expect(await errorOf(db.rpc("add_them", { a: 1, c: 2 }))).toEqual({
      status: 404,
      code: "PGRST202",
      details: "Searched for the function public.add_them with parameters a, c or with a single unnamed json/jsonb parameter, but no matches were found in the schema cache.",
      hint: "Perhaps you meant to call the function public.add_them(a, b)",
      message: "Could not find the function public.add_them(a, c) in the schema cache",
    });
    expect(await errorOf(db.rpc("helo"))).toMatchObject({ status: 404, code: "PGRST202" });
    expect(await errorOf(db.rpc("clash", { a: 1 }))).toMatchObject({ status: 300, code: "PGRST203" });
    expect(await errorOf(db.rpc("add_them", { a: "x", b: 1 }))).toMatchObject({ status: 400, code: "22P02" });
  });
});

describe("results", () => {
  test("can be nothing, null, values and lists", async () => {
    expect(await responseOf(db.rpc("nothing"))).toMatchObject({ data: null, error: null, status: 204 });
    expect(await responseOf(db.rpc("null_text"))).toMatchObject({ data: null, status: 200 });
    expect(await dataOf(db.rpc("club_ids"))).toEqual([1, 2, 3, 4]);
    expect(await dataOf(db.rpc("figures"))).toEqual({ clubs: 4, members: 5 });
  });

  test("can be a row, or a row of nulls", async () => {
    expect(await dataOf(db.rpc("best_club").select("name, members(name)"))).toEqual({ name: "Film (old)", members: [{ name: "Dan" }] });
    expect(await dataOf(db.rpc("best_club").single())).toMatchObject({ name: "Film (old)" });
    expect(await dataOf(db.rpc("no_club"))).toMatchObject({ id: null, name: null });
  });

  test("rows are filtered, ordered, cut and embedded from", async () => {
    expect(await dataOf(db.rpc("events_of", { club: 1 }).select("title, venue:venues!events_venue(name)").order("id", { ascending: false }))).toEqual([
      { title: "Open day", venue: { name: "Park" } },
      { title: "Blitz night", venue: { name: "Hall" } },
    ]);
    expect(await dataOf(db.rpc("events_of", { club: 1 }).select("title").eq("id", 4).single())).toEqual({ title: "Open day" });
    expect(await dataOf(db.rpc("events_of", { club: 1 }, { get: true }).select("id").gt("id", 1))).toEqual([{ id: 4 }]);
    expect(await dataOf(db.rpc("events_of", { club: 1 }).select("id").order("id").range(1, 1))).toEqual([{ id: 4 }]);
    expect(await dataOf(db.rpc("events_of", { club: 99 }).maybeSingle())).toBeNull();
    expect(await errorOf(db.rpc("events_of", { club: 1 }).single())).toMatchObject({ status: 406, code: "PGRST116" });
    expect(await dataOf(db.rpc("attendance_table").gte("guests", 2).order("guests"))).toEqual([{ title: "Blitz night", guests: 2 }, { title: "Open day", guests: 3 }]);
    expect(await dataOf(db.rpc("attendance_table").select("title").order("title").limit(1).csv())).toBe('title\n"Blitz night"');
  });

  test("are counted", async () => {
    expect(await responseOf(db.rpc("events_of", { club: 1 }, { count: "exact" }).limit(1))).toMatchObject({ status: 206, count: 2 });
    expect(await responseOf(db.rpc("events_of", { club: 1 }, { head: true, count: "exact" }))).toMatchObject({ status: 200, count: 2, data: null });
    expect(await responseOf(db.rpc("hello", {}, { count: "exact" }))).toMatchObject({ count: 1 });
    // An object cannot be an argument of a HEAD request, so the client sends a POST.
    expect(await responseOf(db.rpc("measure", { settings: { a: 1 } }, { head: true, count: "exact" }))).toMatchObject({ status: 200, count: 1, error: null });
  });

  test("are limited by maxAffected", async () => {
    expect(await errorOf(withMaxAffected(db.rpc("events_of", { club: 1 }), 1))).toMatchObject({ status: 400, code: "PGRST124" });
    expect(await dataOf(withMaxAffected(db.rpc("events_of", { club: 1 }), 2))).toHaveLength(2);
    expect(await errorOf(withMaxAffected(db.rpc("hello"), 1))).toMatchObject({ status: 400, code: "PGRST128" });
  });
});

describe("writing", () => {
  test("requires POST and a volatile function", async () => {
    expect(await dataOf(admin(portico).rpc("join_event", { event: 3, member: 1 }))).toEqual({ event_id: 3, member_id: 1, paid: 0 });
    expect(await errorOf(admin(portico).rpc("join_event", { event: 3, member: 2 }, { get: true }))).toMatchObject({ status: 405, code: "25006" });
    expect(await errorOf(admin(portico).rpc("sneaky_write"))).toMatchObject({ status: 405, code: "25006" });
  });

  test("is subject to the caller's policies", async () => {
    expect(await errorOf(db.rpc("join_event", { event: 3, member: 2 }))).toMatchObject({ status: 401, code: "42501", message: 'new row violates row-level security policy for table "attendances"' });
  });
});

describe("responses that a function controls", () => {
  test("an exception becomes the error of the response", async () => {
    expect(await errorOf(admin(portico).rpc("join_event", { event: 4, member: 5 }))).toEqual({ status: 400, code: "P0001", details: "Three are enough.", hint: "Try another event.", message: "no seats left" });
    expect(await errorOf(db.rpc("teapot"))).toEqual({ status: 418, code: "PT418", details: null, hint: "Tip me over.", message: "short and stout" });
  });

  test("a function sets the status and the headers", async () => {
    const response = await fetch(`${portico.url}/rest/v1/rpc/own_answer`, { method: "POST", headers: { apikey: portico.status.PUBLISHABLE_KEY } });
    expect(response.status).toBe(202);
    expect(response.headers.get("x-club")).toBe("chess");
    expect(response.headers.get("cache-control")).toBe("max-age=60");
    expect(await response.json()).toEqual({ queued: true });
  });

  test("a function that is too slow is cancelled", async () => {
    expect(await errorOf(db.rpc("sleepy", { seconds: 30 }))).toEqual({ status: 500, code: "57014", details: null, hint: null, message: "canceling statement due to statement timeout" });
  });
});
