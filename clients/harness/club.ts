// The project of the data tests (club.sql), and how they look at answers.
import { readFile } from "node:fs/promises";
import { join } from "node:path";

import type { SupabaseClient } from "@supabase/supabase-js";
import { afterAll, expect } from "vitest";

import { Portico, type ProjectFiles } from "./portico.ts";

const CONFIG = '[api]\nschemas = ["public", "archive"]\n[auth]\nenable_anonymous_sign_ins = true\n[auth.rate_limit]\nsign_in_sign_ups = 10000\nanonymous_users = 10000\n';

/** Starts the club with its migration. */
async function startClub(project: ProjectFiles = {}): Promise<Portico> {
  const migration = await readFile(join(import.meta.dirname, "club.sql"), "utf8");
  return Portico.start({
    config: CONFIG,
    ...project,
    files: { "supabase/migrations/20260101120000_club.sql": migration, ...project.files },
  });
}

/** The club of one file's tests, until they are done. `db` reads and writes as nobody in particular, `service` with the secret key. */
export async function club(project: ProjectFiles = {}): Promise<{ portico: Portico; db: SupabaseClient; service: SupabaseClient }> {
  const portico = await startClub(project);
  afterAll(() => portico.dispose());
  return { portico, db: portico.client(), service: admin(portico) };
}

/** A client with the secret key, which row-level security does not hold. */
export const admin = (portico: Portico): SupabaseClient => portico.client({}, portico.status.SECRET_KEY);

/** What the client makes of an answer. */
export interface Answer {
  data: unknown;
  error: { code: string; details: unknown; hint: string | null; message: string } | null;
  count: number | null;
  status: number;
  statusText: string;
}

/** The whole answer, as one value to compare. */
export const answer = async (request: PromiseLike<unknown>): Promise<Answer> => (await request) as Answer;

/** The data of a request that must succeed. */
export async function given(request: PromiseLike<unknown>): Promise<unknown> {
  const { data, error } = await answer(request);
  expect(error).toBeNull();
  return data;
}

/** Status and error of a request that must fail. */
export async function refused(request: PromiseLike<unknown>): Promise<{ status: number } & NonNullable<Answer["error"]>> {
  const { data, error, status } = await answer(request);
  expect(data).toBeNull();
  expect(error).not.toBeNull();
  const { code, details, hint, message } = error!;
  return { status, code, details, hint, message };
}

/** `maxAffected` by its name: without generated types the client hides it. */
export const atMost = (request: unknown, rows: number): PromiseLike<unknown> & { select(): PromiseLike<unknown> } =>
  (request as { maxAffected(rows: number): PromiseLike<unknown> & { select(): PromiseLike<unknown> } }).maxAffected(rows);

/** Repeats `attempt` until it does not throw. */
export async function eventually<Value>(attempt: () => Promise<Value>): Promise<Value> {
  const end = Date.now() + 60_000;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((done) => setTimeout(done, 100));
    }
  }
}
