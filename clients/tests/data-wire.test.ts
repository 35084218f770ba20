// The requests of the client, byte for byte, and the preflight requests of browsers.
import { request } from "node:http";
import { connect } from "node:net";

import type { SupabaseClient } from "@supabase/supabase-js";
import { describe, expect, test } from "vitest";

import { club } from "../harness/club.ts";

const { portico } = await club();

interface Raw {
  status: number;
  reason: string;
  headers: Record<string, string | string[] | undefined>;
  body: string;
}

/** Sends a request with exactly these headers, without those that `fetch` adds or hides. */
function call(method: string, path: string, options: { headers?: Record<string, string>; body?: string; key?: string } = {}): Promise<Raw> {
  const key = options.key ?? portico.status.SECRET_KEY;
  return new Promise((done, fail) => {
    const headers = { apikey: key, ...(options.body === undefined ? {} : { "Content-Type": "application/json" }), ...options.headers };
    const sent = request(`${portico.url}/rest/v1${path}`, { method, headers }, (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("error", fail);
      response.on("end", () => {
        done({ status: response.statusCode!, reason: response.statusMessage!, headers: response.headers, body: Buffer.concat(parts).toString() });
      });
    });
    sent.on("error", fail);
    sent.end(options.body);
  });
}

describe("the client's requests", () => {
  test("a page with embeds has the range and the location of its rows", async () => {
    const got = await call("GET", "/events?select=id%2Ctitle%2Cclub%3Aclubs%28name%29%2Cattendances%28count%29&club_id=eq.1&order=id.desc&offset=0&limit=10", { headers: { "Accept-Profile": "public" } });
    expect(got.status).toBe(200);
    expect(got.body).toBe(
      '[{"id":4,"title":"Open day","club":{"name": "Chess"},"attendances":[{"count": 3}]}, \n {"id":1,"title":"Blitz night","club":{"name": "Chess"},"attendances":[{"count": 2}]}]',
    );
    expect(got.headers).toMatchObject({
      "content-type": "application/json; charset=utf-8",
      "content-range": "0-1/*",
      "content-profile": "public",
      "content-length": `${got.body.length}`,
      "content-location": "/events?club_id=eq.1&limit=10&offset=0&order=id.desc&select=id%2Ctitle%2Cclub%3Aclubs%28name%29%2Cattendances%28count%29",
    });
  });

  test("a path into JSON is understood as it was typed", async () => {
    // `curl` sends it so; `fetch` and the client's builder do not.
    const got = await call("GET", "/clubs?select=id,level:details->>level&details->>level=eq.hard&order=id");
    expect(got).toMatchObject({ status: 200, body: '[{"id":1,"level":"hard"}, \n {"id":4,"level":"hard"}]' });
  });

  test("a counted page has the number of all rows", async () => {
    const got = await call("GET", "/clubs?select=id,name&order=id&limit=2&offset=1", { headers: { Prefer: "count=exact" } });
    expect(got).toMatchObject({ status: 206, body: '[{"id":2,"name":"Hiking"}, \n {"id":3,"name":"Film (old)"}]' });
    expect(got.headers).toMatchObject({ "content-range": "1-2/4", "preference-applied": "count=exact" });
  });

  test("an update of one row returns the row as an object", async () => {
    await call("POST", "/counters", { body: '{"slug":"wire","n":1}' });
    const headers = { Prefer: "return=representation", Accept: "application/vnd.pgrst.object+json" };
    const got = await call("PATCH", "/counters?slug=eq.wire&select=*", { headers, body: '{"n":2}' });
    expect(got).toMatchObject({ status: 200, body: '{"slug":"wire","n":2,"note":"new"}' });
    expect(got.headers).toMatchObject({ "content-type": "application/vnd.pgrst.object+json; charset=utf-8", "content-range": "0-0/*", "preference-applied": "return=representation" });
    const none = await call("PATCH", "/counters?slug=eq.none&select=*", { headers, body: '{"n":2}' });
    expect(none).toMatchObject({ status: 406, body: '{"code":"PGRST116","details":"The result contains 0 rows","hint":null,"message":"Cannot coerce the result to a single JSON object"}' });
    expect(none.headers["proxy-status"]).toBe("PostgREST; error=PGRST116");
  });

  test("an upsert of several rows creates or replaces them", async () => {
    const path = "/counters?on_conflict=slug&columns=%22slug%22%2C%22n%22";
    const got = await call("POST", path, { headers: { Prefer: "resolution=merge-duplicates" }, body: '[{"slug":"a","n":1},{"slug":"b"}]' });
    expect(got).toMatchObject({ status: 201, body: "" });
    expect(got.headers).toMatchObject({ "content-length": "0", "content-range": "*/*", "preference-applied": "resolution=merge-duplicates" });
    expect(got.headers["content-type"]).toBeUndefined();
    expect((await call("POST", path, { headers: { Prefer: "resolution=merge-duplicates" }, body: '[{"slug":"a","n":1},{"slug":"b"}]' })).status).toBe(200);
    expect((await call("GET", "/counters?slug=in.(a,b)&select=slug,n&order=slug")).body).toBe('[{"slug":"a","n":1}, \n {"slug":"b","n":null}]');
  });

  test("a function returns its value, and HEAD the count", async () => {
    expect(await call("POST", "/rpc/add_them", { body: '{"a":1,"b":2}' })).toMatchObject({ status: 200, body: "3" });
    const counted = await call("HEAD", "/clubs?select=*", { headers: { Prefer: "count=exact" } });
    expect(counted).toMatchObject({ status: 200, body: "" });
    expect(counted.headers).toMatchObject({ "content-range": "0-3/4", "content-type": "application/json; charset=utf-8" });
    const nothing = await call("POST", "/rpc/nothing", { body: "{}" });
    expect(nothing).toMatchObject({ status: 204, body: "" });
    expect(nothing.headers["content-range"]).toBe("0-0/*");
  });

  test("writes return no body on request", async () => {
    const created = await call("POST", "/members", { headers: { Prefer: "return=headers-only" }, body: '{"name":"Zoe"}' });
    expect(created).toMatchObject({ status: 201, body: "" });
    expect(created.headers["location"]).toMatch(/^\/members\?id=eq\.\d+$/);
    const deleted = await call("DELETE", String(created.headers["location"]), { headers: { Prefer: "count=exact", "Content-Type": "application/json" } });
    expect(deleted).toMatchObject({ status: 204, body: "" });
    expect(deleted.headers).toMatchObject({ "content-range": "*/1" });
    expect(deleted.headers["content-length"]).toBeUndefined();
  });

  test("PUT writes one row by its key", async () => {
    expect(await call("PUT", "/counters?slug=eq.put", { body: '{"slug":"put","n":1,"note":"x"}', headers: { Prefer: "return=representation" } })).toMatchObject({ status: 201, body: '[{"slug":"put","n":1,"note":"x"}]' });
    expect((await call("PUT", "/counters?slug=eq.put", { body: '{"slug":"put","n":2,"note":"x"}' })).status).toBe(204);
    expect((await call("PUT", "/counters?slug=eq.put", { body: '{"slug":"other","n":2}' })).status).toBe(400);
  });

  test("CSV and forms are rows, and malformed JSON is rejected", async () => {
    expect(await call("POST", "/counters?select=slug,n,note", { headers: { "Content-Type": "text/csv", Prefer: "return=representation" }, body: "slug,n,note\ncsv-1,1,NULL\ncsv-2,2,\n" })).toMatchObject({
      status: 201,
      body: '[{"slug":"csv-1","n":1,"note":null}, \n {"slug":"csv-2","n":2,"note":""}]',
    });
    expect(await call("POST", "/counters?select=slug,n", { headers: { "Content-Type": "application/x-www-form-urlencoded", Prefer: "return=representation" }, body: "slug=form+1&n=3" })).toMatchObject({
      status: 201,
      body: '[{"slug":"form 1","n":3}]',
    });
    expect(await call("POST", "/counters", { body: "{" })).toMatchObject({ status: 400, body: '{"code":"PGRST102","details":null,"hint":null,"message":"Empty or invalid json"}' });
    expect(await call("POST", "/counters", { body: '[{"slug":"x"},{"slug":"y","n":1}]' })).toMatchObject({ status: 400, body: '{"code":"PGRST102","details":null,"hint":null,"message":"All object keys must match"}' });
  });

  test("errors have the body of the protocol", async () => {
    expect(await call("POST", "/rpc/teapot", { body: "{}" })).toMatchObject({ status: 418, body: '{"code":"PT418","details":null,"hint":"Tip me over.","message":"short and stout"}' });
    expect(await call("GET", "/clubs/")).toMatchObject({ status: 404, body: '{"code":"PGRST125","details":null,"hint":null,"message":"Invalid path specified in request URL"}' });
    expect(await call("GET", "/clubs", { headers: { Prefer: "handling=strict, anything=goes" } })).toMatchObject({ status: 400, body: '{"code":"PGRST122","details":"Invalid preferences: anything=goes","hint":null,"message":"Invalid preferences given with handling=strict"}' });
    expect(await call("GET", "/clubs", { headers: { Accept: "application/pdf" } })).toMatchObject({ status: 406, body: '{"code":"PGRST107","details":null,"hint":null,"message":"None of these media types are available: application/pdf"}' });
  });
});

test("an error of the database has its message as the reason", async () => {
  const got = await call("POST", "/rpc/teapot", { body: "{}" });
  expect(got).toMatchObject({ status: 418, reason: "short and stout" });
  expect(JSON.parse(got.body)).toEqual({ code: "PT418", details: null, hint: "Tip me over.", message: "short and stout" });
});

test("a body beyond the limit is rejected, also without a Content-Length", async () => {
  const megabyte = Buffer.alloc(1024 * 1024, " ");
  const status = await new Promise<number>((done, fail) => {
    const headers = { apikey: portico.status.SECRET_KEY, "Content-Type": "application/json" };
    let answered = false;
    const sent = request(`${portico.url}/rest/v1/uploads`, { method: "POST", headers }, (response) => {
      answered = true;
      response.resume();
      done(response.statusCode!);
    });
    // The server may close the connection of a request that it no longer reads.
    sent.on("error", (error) => { if (!answered) fail(error); });
    let left = 65;
    const write = (): void => {
      while (left > 0 && !answered) {
        left -= 1;
        if (!sent.write(megabyte)) {
          sent.once("drain", write);
          return;
        }
      }
      sent.end();
    };
    write();
  });
  expect(status).toBe(413);
  // A client that sends the length first need not send the body.
  const head = ["POST /rest/v1/uploads HTTP/1.1", "Host: portico", `apikey: ${portico.status.SECRET_KEY}`, "Content-Type: application/json"];
  const length = `Content-Length: ${65 * megabyte.length}`;
  const said = await new Promise<string>((done, fail) => {
    const socket = connect(Number(new URL(portico.url).port), "127.0.0.1", () => socket.write([...head, length, "Expect: 100-continue", "", ""].join("\r\n")));
    socket.on("error", fail);
    socket.once("data", (data) => {
      done(data.toString().split("\r\n", 1)[0]!);
      socket.destroy();
    });
  });
  expect(said).toBe("HTTP/1.1 413 Payload Too Large");
  expect(await call("GET", "/uploads?select=id")).toMatchObject({ status: 200, body: "[]" });
});

test("a long response is compressed on request, and one with a session never", async () => {
  const encodings: (string | null)[] = [];
  const taking = (accepted: string): SupabaseClient => {
    const fetcher: typeof fetch = async (input, init) => {
      const headers = new Headers(init?.headers);
      headers.set("Accept-Encoding", accepted);
      const response = await fetch(input, { ...init, headers });
      encodings.push(response.headers.get("content-encoding"));
      return response;
    };
    return portico.client({ global: { fetch: fetcher } }, portico.status.SECRET_KEY);
  };
  const letters = Array.from({ length: 2000 }, (_, n) => ({ text: `letter ${n}` }));
  expect((await call("POST", "/letters", { body: JSON.stringify(letters) })).status).toBe(201);
  for (const accepted of ["br", "gzip", "identity"]) {
    const { data } = await taking(accepted).from("letters").select("text").order("id").limit(1000);
    expect(data).toEqual(letters.slice(0, 1000));
  }
  expect(encodings.splice(0)).toEqual(["br", "gzip", null]);
  // Without the header uncompressed; `Vary` tells caches that there are other encodings.
  const plain = await call("GET", "/letters?select=text&limit=1000");
  expect(plain.headers).toMatchObject({ "content-length": `${plain.body.length}`, vary: "Accept, Prefer, Range, Accept-Encoding" });
  const { data } = await taking("br, gzip").auth.signInAnonymously();
  expect(JSON.stringify(data.session).length).toBeGreaterThan(1024);
  expect(encodings).toEqual([null]);
});

describe("browsers", () => {
  const asked = ["authorization", "apikey", "x-client-info", "content-type", "accept-profile", "content-profile", "prefer", "x-retry-count", "accept", "traceparent", "tracestate", "baggage"];

  test("send a preflight request before a write, without a key", async () => {
    for (const method of ["GET", "POST", "PATCH", "PUT", "DELETE", "HEAD"]) {
      const response = await fetch(`${portico.url}/rest/v1/clubs`, {
        method: "OPTIONS",
        headers: { Origin: "https://app.example", "Access-Control-Request-Method": method, "Access-Control-Request-Headers": asked.join(",") },
      });
      expect([200, 204]).toContain(response.status);
      expect(["*", "https://app.example"]).toContain(response.headers.get("access-control-allow-origin"));
      expect(response.headers.get("access-control-allow-methods")).toContain(method);
      const allowed = response.headers.get("access-control-allow-headers")!.toLowerCase();
      for (const header of asked) expect(allowed === "*" ? asked : allowed.split(/, */)).toContain(header);
    }
  });

  test("may read the response, its count and its errors", async () => {
    for (const path of ["/clubs?select=id", "/nowhere"]) {
      const got = await call("GET", path, { headers: { Origin: "https://app.example", Prefer: "count=exact" }, key: portico.status.PUBLISHABLE_KEY });
      expect(["*", "https://app.example"]).toContain(got.headers["access-control-allow-origin"]);
      expect(String(got.headers["access-control-expose-headers"]).toLowerCase()).toContain("content-range");
    }
    const wrong = await call("GET", "/clubs", { headers: { Origin: "https://app.example" }, key: "sb_publishable_wrong" });
    expect(wrong.status).toBe(401);
    expect(wrong.headers["access-control-allow-origin"]).toBeDefined();
  });

  test("get the methods that a table allows", async () => {
    const got = await call("OPTIONS", "/clubs");
    expect(got.status).toBe(200);
    expect(got.headers["allow"]).toBe("OPTIONS,GET,HEAD,POST,PUT,PATCH,DELETE");
    expect((await call("OPTIONS", "/rpc/hello")).headers["allow"]).toBe("OPTIONS,GET,HEAD,POST");
    expect((await call("OPTIONS", "/rpc/nothing")).headers["allow"]).toBe("OPTIONS,POST");
  });
});
