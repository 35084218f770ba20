// The examples of docs/data.md, run as they are written: each returns what the text says.
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { runInThisContext } from "node:vm";

import { createClient, type SupabaseClient } from "@supabase/supabase-js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";

import { eventually } from "../harness/club.ts";
import { sql } from "../harness/database.ts";
import { PASSWORD, signedUp } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

/** The tables that the examples use. */
const FILMS = `
  create table directors (id bigint primary key, first_name text, last_name text);
  create table actors (id bigint primary key, first_name text);
  create table films (
    id bigint primary key, title text, year int, rating numeric, price numeric, heading text, data jsonb, tags text[],
    director_id bigint references directors, "weird,name" text
  );
  create table roles (film_id bigint references films, actor_id bigint references actors, character text, primary key (film_id, actor_id));
  create table technical_details (id bigint primary key, film_id bigint unique references films, runtime interval);
  create function films_since(since int) returns setof films stable language sql as 'select * from films where year >= since';
  insert into directors values (1, 'Ida', 'Lang');
  insert into actors values (1, 'Ana');
  insert into films values (1, 'A Night', 1999, 8.5, 4, 'H', '{"author": {"name": "Nell"}}', '{drama}', 1), (2, 'B Day', 2003, null, 5, null, '{}', '{}', null);
  insert into roles values (1, 1, 'Nora');
  insert into technical_details values (1, 1, '2 hours');
  create schema private;
  grant usage on schema private to anon, authenticated, service_role;
  create function private.check_request() returns void language sql as $$ select set_config('response.headers', '[{"X-Checked": "yes"}]', true) $$;
`;

const guide = await readFile(join(import.meta.dirname, "../../docs/data.md"), "utf8");
const blocks = [...guide.matchAll(/^```(\w+)\n(.*?)^```/gms)].map(([, language, text]) => ({ language, text: text! }));
const spans = [...guide.replaceAll(/^```.*?^```/gms, "").matchAll(/`([^`\n]+)`/g)].map(([, text]) => text!.replaceAll("\\|", "|"));

/** Returns the one example in a language that contains a text. */
function example(language: string, mentioned: string): string {
  const found = blocks.filter((block) => block.language === language && block.text.includes(mentioned));
  expect(found, mentioned).toHaveLength(1);
  return found[0]!.text;
}

let portico: Portico;
let service: SupabaseClient;
beforeAll(async () => {
  const notes = example("sql", "create table notes");
  const name = /supabase\/migrations\/\S+\.sql/.exec(notes)?.[0] ?? "";
  expect(name).not.toBe("");
  portico = await Portico.start({ files: { [name]: notes, "supabase/migrations/20260102000000_films.sql": FILMS } });
  service = portico.client({}, portico.status.SECRET_KEY);
});
afterAll(() => portico.dispose());

/** Runs an example of the client library with the variables that it uses. */
async function run(text: string, known: Record<string, unknown>): Promise<{ data: unknown; error: unknown }> {
  const body = text.replaceAll(/^import .*\n/gm, "").replaceAll("http://127.0.0.1:54321", portico.url);
  const whole = /\bconst \{ data\b/.test(body) ? body : body.replace(/^await (?=portico\.(?:from|rpc))/m, "const { data, error } = await ");
  const error = /\bconst \{ data, error \}/.test(whole) ? "error" : "null";
  const made = runInThisContext(`(async ({ ${Object.keys(known).join(", ")} }) => {\n${whole}\nreturn { data, error: ${error} };\n})`) as (
    known: Record<string, unknown>,
  ) => Promise<{ data: unknown; error: unknown }>;
  return made(known);
}

/** Returns the body at an address, with the secret key. */
async function read(path: string): Promise<{ status: number; body: unknown; headers: Headers }> {
  const response = await fetch(`${portico.url}/rest/v1/${path}`, { headers: { apikey: portico.status.SECRET_KEY } });
  return { status: response.status, body: await response.json(), headers: response.headers };
}

test("the first steps work as written", async () => {
  const { email, client } = await signedUp(portico);
  // Node.js 20 has no WebSocket.
  const withSocket = (url: string, key: string): unknown => createClient(url, key, { realtime: { transport: WebSocket as unknown as typeof globalThis.WebSocket } });
  const known = { createClient: withSocket, PUBLISHABLE_KEY: portico.status.PUBLISHABLE_KEY, email, password: PASSWORD };
  const { data, error } = await run(example("ts", "signInWithPassword"), known);
  expect(error).toBeNull();
  expect(data).toMatchObject([{ title: "Milk" }]);

  const { data: session } = await client.auth.getSession();
  const curl = example("sh", "curl").replaceAll("http://127.0.0.1:54321", portico.url);
  const env = { ...process.env, PUBLISHABLE_KEY: portico.status.PUBLISHABLE_KEY, ACCESS_TOKEN: session.session!.access_token };
  const { stdout } = await promisify(execFile)("bash", ["-c", curl.replace(/^curl/, "curl --silent --show-error")], { env });
  expect(JSON.parse(stdout)).toEqual(data);
});

test("embeds and functions work as written", async () => {
  const embedded = await run(example("ts", "director:directors"), { portico: service });
  expect(embedded.error).toBeNull();
  expect(embedded.data).toMatchObject([
    { title: "A Night", director: { last_name: "Lang" }, roles: [{ character: "Nora", actors: { first_name: "Ana" } }], runtime: "02:00:00" },
    { title: "B Day", director: null, roles: [], runtime: null },
  ]);
  const called = await run(example("ts", "films_since"), { portico: service });
  expect(called.data).toEqual([{ title: "B Day" }]);
});

test("every operator and filter of the text is accepted", async () => {
  const columns = /^(select|order|limit|or|id|title)=\S+$/;
  // The first examples have embeds, and columns that films lack.
  const others = /…|roles|directors|full_name|avg\(\)/;
  const requests = spans.filter((span) => columns.test(span) && !others.test(span)).map((span) => `films?${span}`);
  // The examples of the operators are in a column of their own.
  for (const word of ["select", "order"]) {
    const row = new RegExp(`^\\| \`${word}\` \\| \`([^\`]+)\``, "m").exec(guide);
    requests.push(`films?${word}=${row![1]!}`);
  }
  requests.push(...spans.filter((span) => span.startsWith("films?")));
  requests.push(`films?${spans.find((span) => span === "select=*,roles(count)")!}`);
  const relatedFilters = spans.find((span) => span.startsWith("roles.order="));
  requests.push(`films?select=title,roles(*),directors(*)&${relatedFilters!}`);
  requests.push(`films?select=title,${spans.find((span) => span.startsWith("directors!inner"))!}`);
  requests.push(`films?select=title,directors(*)&${spans.find((span) => span === "order=directors(last_name)")!}`);
  expect(requests.length).toBeGreaterThan(8);
  for (const path of requests) {
    const { status, body } = await read(path);
    expect([200, 206], `${path}: ${JSON.stringify(body)}`).toContain(status);
  }
});

test("settings in the database apply", async () => {
  await sql(portico.status.DB_URL, example("sql", "alter role authenticator"));
  const grouped = spans.find((span) => span.includes("rating.avg()"))!;
  await eventually(async () => {
    const { status, body, headers } = await read(`films?${grouped}&order=year`);
    expect(status).toBe(200);
    expect(body).toEqual([{ year: 1999, avg: 8.5 }, { year: 2003, avg: null }]);
    expect(headers.get("x-checked")).toBe("yes");
  });
});
