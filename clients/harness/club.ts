// The project of the data tests (club.sql), and helpers that read its responses.
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

/**
 * Starts the club for the tests of one file. `db` is an anonymous client, `service` has the secret
 * key.
 */
export async function club(project: ProjectFiles = {}): Promise<{ portico: Portico; db: SupabaseClient; service: SupabaseClient }> {
  const portico = await startClub(project);
  afterAll(() => portico.dispose());
  return { portico, db: portico.client(), service: admin(portico) };
}

/** A client with the secret key, which bypasses row-level security. */
export const admin = (portico: Portico): SupabaseClient => portico.client({}, portico.status.SECRET_KEY);

/** A response as the client returns it. */
export interface ClientResponse {
  data: unknown;
  error: { code: string; details: unknown; hint: string | null; message: string } | null;
  count: number | null;
  status: number;
  statusText: string;
}

/** Returns the whole response, as one value to compare. */
export const responseOf = async (request: PromiseLike<unknown>): Promise<ClientResponse> => (await request) as ClientResponse;

/** Returns the data of a request that must succeed. */
export async function dataOf(request: PromiseLike<unknown>): Promise<unknown> {
  const { data, error } = await responseOf(request);
  expect(error).toBeNull();
  return data;
}

/** Returns the status and error of a request that must fail. */
export async function errorOf(request: PromiseLike<unknown>): Promise<{ status: number } & NonNullable<ClientResponse["error"]>> {
  const { data, error, status } = await responseOf(request);
  expect(data).toBeNull();
  expect(error).not.toBeNull();
  const { code, details, hint, message } = error!;
  return { status, code, details, hint, message };
}

/** Calls `maxAffected`, which the client's types hide without generated types. */
export const withMaxAffected = (request: unknown, rows: number): PromiseLike<unknown> & { select(): PromiseLike<unknown> } =>
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
