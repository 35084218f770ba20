// Related rows in one request, every kind of relationship.
import { describe, expect, test } from "vitest";

import { responseOf, club, dataOf, errorOf } from "../harness/club.ts";

const { db } = await club();

describe("relationships", () => {
  test("many-to-one is an object or null", async () => {
    expect(await dataOf(db.from("members").select("name, club:clubs(name)").in("id", [1, 5]).order("id"))).toEqual([
      { name: "Ada", club: { name: "Chess" } },
      { name: "Eve", club: null },
    ]);
  });

  test("one-to-many is an array", async () => {
    expect(await dataOf(db.from("clubs").select("name, members(name)").in("id", [1, 4]).order("id").order("name", { referencedTable: "members" }))).toEqual([
      { name: "Chess", members: [{ name: "Ada" }, { name: "Bob" }] },
      { name: "Rowing", members: [] },
    ]);
  });

  test("one-to-one is an object", async () => {
    expect(await dataOf(db.from("clubs").select("name, badges(colour)").in("id", [1, 3]).order("id"))).toEqual([
      { name: "Chess", badges: { colour: "gold" } },
      { name: "Film (old)", badges: null },
    ]);
    expect(await dataOf(db.from("badges").select("colour, clubs(name)").eq("club_id", 2))).toEqual([{ colour: "green", clubs: { name: "Hiking" } }]);
  });

  test("many-to-many goes through the junction", async () => {
    expect(await dataOf(db.from("events").select("title, members(name)").eq("id", 4).order("name", { referencedTable: "members" }).single())).toEqual({
      title: "Open day",
      members: [{ name: "Ada" }, { name: "Bob" }, { name: "Cleo" }],
    });
    expect(await dataOf(db.from("members").select("name, events(title)").eq("id", 3).order("id", { referencedTable: "events" }).single())).toEqual({
      name: "Cleo",
      events: [{ title: "Summit walk" }, { title: "Open day" }],
    });
  });

  test("a table that refers to itself", async () => {
    expect(await dataOf(db.from("members").select("name, mentor:mentor_id(name)").eq("id", 3).single())).toEqual({ name: "Cleo", mentor: { name: "Ada" } });
    expect(await dataOf(db.from("members").select("name, mentees:members(name)").eq("id", 1).order("id", { referencedTable: "mentees" }).single())).toEqual({
      name: "Ada",
      mentees: [{ name: "Bob" }, { name: "Cleo" }],
    });
  });

  test("a function of the row is embedded like a table", async () => {
    expect(await dataOf(db.from("clubs").select("name, regulars(name)").eq("id", 1).single())).toEqual({ name: "Chess", regulars: [{ name: "Ada" }] });
  });

  test("a view has the keys of what it shows", async () => {
    expect(await dataOf(db.from("open_clubs").select("name, members(name), badges(colour)").eq("id", 2).single())).toEqual({ name: "Hiking", members: [{ name: "Cleo" }], badges: { colour: "green" } });
    expect(await dataOf(db.from("members").select("name, open_clubs(name)").eq("id", 4).single())).toEqual({ name: "Dan", open_clubs: null });
  });

  test("embeds have embeds of their own", async () => {
    expect(await dataOf(db.from("events").select("title, club:clubs(name, badges(colour)), attendances(paid, members(name, club:clubs(name)))").eq("id", 2).single())).toEqual({
      title: "Summit walk",
      club: { name: "Hiking", badges: { colour: "green" } },
      attendances: [{ paid: 0, members: { name: "Cleo", club: { name: "Hiking" } } }],
    });
  });
});

describe("an ambiguous relationship", () => {
  test("is rejected with the candidates", async () => {
    const refusal = await errorOf(db.from("events").select("title, venues(name)"));
    expect(refusal).toMatchObject({
      status: 300,
      code: "PGRST201",
      message: "Could not embed because more than one relationship was found for 'events' and 'venues'",
    });
    expect(refusal.hint).toContain("venues!events_rain_venue");
    expect(refusal.details).toEqual([
      { cardinality: "many-to-one", embedding: "events with venues", relationship: "events_rain_venue using events(rain_venue_id) and venues(id)" },
      { cardinality: "many-to-one", embedding: "events with venues", relationship: "events_venue using events(venue_id) and venues(id)" },
    ]);
  });

  test("is resolved by the constraint or the column", async () => {
    const expected = { title: "Blitz night", venue: { name: "Hall" }, rain: { name: "Library" } };
    expect(await dataOf(db.from("events").select("title, venue:venues!events_venue(name), rain:venues!events_rain_venue(name)").eq("id", 1).single())).toEqual(expected);
    expect(await dataOf(db.from("events").select("title, venue:venues!venue_id(name), rain:venues!rain_venue_id(name)").eq("id", 1).single())).toEqual(expected);
    expect(await dataOf(db.from("events").select("title, venue:venue_id(name), rain:rain_venue_id(name)").eq("id", 1).single())).toEqual(expected);
    expect(await dataOf(db.from("venues").select("name, planned:events!events_venue(title)").eq("id", 3).single())).toEqual({ name: "Library", planned: [{ title: "Metropolis" }] });
    expect(await dataOf(db.from("events").select("title, guests:members!attendances(name)").eq("id", 2).single())).toEqual({ title: "Summit walk", guests: [{ name: "Cleo" }] });
  });

  test("cannot be resolved where there is none", async () => {
    expect(await errorOf(db.from("venues").select("name, badges(colour)"))).toEqual({
      status: 400,
      code: "PGRST200",
      details: "Searched for a foreign key relationship between 'venues' and 'badges' in the schema 'public', but no matches were found.",
      hint: null,
      message: "Could not find a relationship between 'venues' and 'badges' in the schema cache",
    });
  });
});

describe("shaping", () => {
  test("filters, order and limit apply to the embed", async () => {
    const members = db.from("events").select("title, members(name)").eq("id", 4);
    expect(await dataOf(members.gt("members.id", 1).order("name", { referencedTable: "members", ascending: false }).limit(1, { referencedTable: "members" }).single())).toEqual({
      title: "Open day",
      members: [{ name: "Cleo" }],
    });
    expect(await dataOf(db.from("events").select("title, members(name)").eq("id", 4).order("id", { referencedTable: "members" }).range(1, 2, { referencedTable: "members" }).single())).toEqual({
      title: "Open day",
      members: [{ name: "Bob" }, { name: "Cleo" }],
    });
    expect(await dataOf(db.from("clubs").select("name, members(name)").eq("id", 1).or("name.eq.Ada,name.eq.Zoe", { referencedTable: "members" }))).toEqual([{ name: "Chess", members: [{ name: "Ada" }] }]);
    expect(await dataOf(db.from("clubs").select("id, members(name, events(title))").eq("id", 2).eq("members.events.id", 4))).toEqual([{ id: 2, members: [{ name: "Cleo", events: [{ title: "Open day" }] }] }]);
  });

  test("inner joins leave rows out", async () => {
    expect(await dataOf(db.from("clubs").select("name, members!inner(name)").eq("members.name", "Dan"))).toEqual([{ name: "Film (old)", members: [{ name: "Dan" }] }]);
    expect(await responseOf(db.from("clubs").select("name, badges!inner()", { count: "exact" }).order("id"))).toMatchObject({ count: 2, data: [{ name: "Chess" }, { name: "Hiking" }] });
    expect(await dataOf(db.from("events").select("title, venue:venues!events_venue!inner(name)").eq("venue.name", "Library"))).toEqual([{ title: "Metropolis", venue: { name: "Library" } }]);
  });

  test("rows with and without a match can be selected", async () => {
    expect(await dataOf(db.from("clubs").select("name, members()").is("members", null))).toEqual([{ name: "Rowing" }]);
    expect(await dataOf(db.from("clubs").select("name, badges()").not("badges", "is", null).order("id"))).toEqual([{ name: "Chess" }, { name: "Hiking" }]);
  });

  test("spread columns are columns of the row", async () => {
    expect(await dataOf(db.from("members").select("name, ...clubs(club:name, rating)").eq("id", 1).single())).toEqual({ name: "Ada", club: "Chess", rating: 4.5 });
  });

  test("embedded rows are counted, though aggregates are off", async () => {
    expect(await dataOf(db.from("clubs").select("name, members(count), events(count)").order("id").limit(2))).toEqual([
      { name: "Chess", members: [{ count: 2 }], events: [{ count: 2 }] },
      { name: "Hiking", members: [{ count: 1 }], events: [{ count: 1 }] },
    ]);
  });

  test("rows are ordered by a column of the embed", async () => {
    expect(await dataOf(db.from("members").select("name, clubs(name)").not("club_id", "is", null).order("clubs(name)", { ascending: false }).order("id").limit(2))).toEqual([
      { name: "Cleo", clubs: { name: "Hiking" } },
      { name: "Dan", clubs: { name: "Film (old)" } },
    ]);
    expect(await errorOf(db.from("clubs").select("name, members(name)").order("members(name)"))).toMatchObject({ status: 400, code: "PGRST118" });
  });

  test("a filter on a table that is not embedded is rejected", async () => {
    expect(await errorOf(db.from("clubs").select("name").eq("members.name", "Ada"))).toEqual({
      status: 400,
      code: "PGRST108",
      details: null,
      hint: "Verify that 'members' is included in the 'select' query parameter.",
      message: "'members' is not an embedded resource in this request",
    });
  });
});
