// The mailbox's HTTP API, as test suites written for Mailpit use it.
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import { codeIn, linkIn, emailTo } from "../harness/emails.ts";
import { PASSWORD, newEmail } from "../harness/accounts.ts";
import { Portico } from "../harness/portico.ts";

interface Summary {
  ID: string;
  MessageID: string;
  Read: boolean;
  From: { Name: string; Address: string };
  To: { Name: string; Address: string }[];
  Subject: string;
  Created: string;
  Size: number;
  Attachments: number;
  Snippet: string;
  Tags: string[];
}
interface List {
  total: number;
  unread: number;
  count: number;
  messages_count: number;
  start: number;
  messages: Summary[];
}

let portico: Portico;
beforeAll(async () => {
  portico = await Portico.start({ config: '[auth.email]\nenable_confirmations = true\nmax_frequency = "0s"\n' });
});
afterAll(() => portico.dispose());
beforeEach(async () => {
  // Suites do this between their tests.
  expect((await fetch(at("/messages"), { method: "DELETE" })).status).toBe(200);
  expect((await list("/messages")).total).toBe(0);
});

const at = (path: string): string => `${portico.status.MAILPIT_URL}/api/v1${path}`;
const list = async (path: string): Promise<List> => (await (await fetch(at(path))).json()) as List;
const search = (query: string): Promise<List> => list(`/search?query=${encodeURIComponent(query)}`);

/** Signs up, which sends an email. */
async function arrived(email = newEmail()): Promise<{ email: string; id: string }> {
  const { error } = await portico.client().auth.signUp({ email, password: PASSWORD });
  expect(error).toBeNull();
  return { email, id: (await emailTo(portico.status.MAILPIT_URL, email)).ID };
}

test("messages are listed, the newest first, in pages", async () => {
  const sent = [await arrived(), await arrived(), await arrived()].reverse();
  const all = await list("/messages");
  expect(all).toMatchObject({ total: 3, count: 3, messages_count: 3, start: 0 });
  expect(all.messages.map(({ ID }) => ID)).toEqual(sent.map(({ id }) => id));
  const [first] = all.messages;
  expect(first).toMatchObject({ To: [{ Address: sent[0]!.email }], Attachments: 0, Tags: [] });
  expect(first!.From.Address).toContain("@");
  expect(first!.Subject).not.toBe("");
  expect(first!.Size).toBeGreaterThan(0);
  expect(first!.Snippet).not.toBe("");
  expect(Date.parse(first!.Created)).not.toBeNaN();
  const page = await list("/messages?start=1&limit=1");
  expect(page).toMatchObject({ total: 3, count: 1, start: 1 });
  expect(page.messages.map(({ ID }) => ID)).toEqual([sent[1]!.id]);
});

test("messages are found by address, subject and words", async () => {
  const [wanted, other] = [await arrived(), await arrived()];
  for (const query of [`to:${wanted.email}`, `to:"${wanted.email}"`, `to:${wanted.email} subject:confirm`, `addressed:${wanted.email}`, wanted.email, `to:${wanted.email.toUpperCase()}`]) {
    const found = await search(query);
    expect(found.messages.map(({ ID }) => ID), query).toEqual([wanted.id]);
    expect(found.messages_count).toBe(1);
  }
  expect((await search(`subject:confirm -to:${wanted.email}`)).messages.map(({ ID }) => ID)).toEqual([other.id]);
  expect((await search("to:nobody@portico.test")).messages).toEqual([]);
  expect((await search("subject:invoice")).messages).toEqual([]);
  expect((await fetch(at("/search?query="))).status).toBe(400);
});

test("a message has its text, its HTML, its headers and its source; the newest is `latest`", async () => {
  await arrived();
  const { email, id } = await arrived();
  const message = (await (await fetch(at(`/message/${id}`))).json()) as Summary & { HTML: string; Text: string; Date: string };
  expect(message).toMatchObject({ ID: id, To: [{ Address: email }] });
  expect(message.Text).toContain(codeIn(message));
  expect(linkIn(message)).toContain(`${portico.url}/auth/v1/verify?`);
  const latest = (await (await fetch(at("/message/latest"))).json()) as Summary;
  expect(latest.ID).toBe(id);
  const headers = (await (await fetch(at(`/message/${id}/headers`))).json()) as Record<string, string[]>;
  expect(headers["To"]?.[0]).toContain(email);
  expect(headers["Subject"]?.[0]).toBe(message.Subject);
  const raw = await (await fetch(at(`/message/${id}/raw`))).text();
  expect(raw).toMatch(/^Subject: /im);
  for (const part of ["", "/headers", "/raw"]) expect((await fetch(at(`/message/nothing${part}`))).status).toBe(404);
});

test("a message that was opened is read, and can be unread again", async () => {
  const { id } = await arrived();
  const state = async (): Promise<[boolean, number]> => {
    const { messages, unread } = await list("/messages");
    return [messages[0]!.Read, unread];
  };
  await fetch(at(`/message/${id}`));
  expect(await state()).toEqual([true, 0]);
  const mark = (Read: boolean): Promise<Response> => fetch(at("/messages"), { method: "PUT", headers: { "content-type": "application/json" }, body: JSON.stringify({ IDs: [id], Read }) });
  expect((await mark(false)).status).toBe(200);
  expect(await state()).toEqual([false, 1]);
  expect((await search("is:unread")).messages_count).toBe(1);
  await mark(true);
  expect(await state()).toEqual([true, 0]);
});

test("messages are deleted by id, by search, and all at once", async () => {
  const sent = [await arrived(), await arrived(), await arrived(), await arrived()];
  const ids = async (): Promise<string[]> => (await list("/messages")).messages.map(({ ID }) => ID).reverse();
  const remove = (path: string, body?: unknown): Promise<Response> =>
    fetch(at(path), { method: "DELETE", ...(body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }) });
  expect((await remove("/messages", { IDs: [sent[0]!.id] })).status).toBe(200);
  expect(await ids()).toEqual(sent.slice(1).map(({ id }) => id));
  expect((await remove(`/search?query=${encodeURIComponent(`to:${sent[1]!.email}`)}`)).status).toBe(200);
  expect(await ids()).toEqual(sent.slice(2).map(({ id }) => id));
  expect((await remove("/messages", { IDs: ["nothing"] })).status).toBe(200);
  expect(await ids()).toHaveLength(2);
  expect((await remove("/messages")).status).toBe(200);
  expect(await ids()).toEqual([]);
  expect((await fetch(at(`/message/${sent[3]!.id}`))).status).toBe(404);
});

test("the server reports its version, and only pages of this machine and of the project's site may read", async () => {
  const info = (await (await fetch(at("/info"))).json()) as { Version: string; Messages: number; Unread: number };
  expect(info).toMatchObject({ Messages: 0, Unread: 0 });
  expect(info.Version).not.toBe("");
  for (const probe of ["/livez", "/readyz"]) expect((await fetch(`${portico.status.MAILPIT_URL}${probe}`)).status).toBe(200);
  const asPage = (origin: string): Promise<Response> => fetch(at("/messages"), { headers: { origin } });
  const own = await asPage("http://localhost:3000");
  expect([own.status, own.headers.get("access-control-allow-origin")]).toEqual([200, "http://localhost:3000"]);
  const other = await asPage("https://evil.example");
  expect([other.status, other.headers.get("access-control-allow-origin")]).toEqual([403, null]);
});
