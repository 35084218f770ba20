// A server with the storage service: the buckets `files` (private) and `site` (public), the service
// itself, and a user with a folder of its own in every bucket.
import type { SupabaseClient } from "@supabase/supabase-js";
import { expect } from "vitest";

import { signedUp } from "./accounts.ts";
import { Portico } from "./portico.ts";

/** A migration that gives every user the folder of its own id in every bucket. */
export const OWN_FOLDERS = {
  "supabase/migrations/20260101000000_storage.sql": `
  create policy "own folder" on storage.objects to authenticated
    using ((storage.foldername(name))[1] = (select auth.uid())::text)
    with check ((storage.foldername(name))[1] = (select auth.uid())::text);
`,
};

/** The same migration, and one that adds the private bucket `files`. */
export const OWN_FOLDERS_OF_FILES = {
  ...OWN_FOLDERS,
  "supabase/migrations/20260101000001_files.sql": "insert into storage.buckets (id, name) values ('files', 'files');",
};

export interface StorageServer {
  portico: Portico;
  service: SupabaseClient;
  alice: SupabaseClient;
  aliceId: string;
}

/** Starts a server with this `config.toml`, and further files of the project. */
export async function startStorage(config = "", files: Record<string, string> = {}): Promise<StorageServer> {
  const portico = await Portico.start({ config, files: { ...OWN_FOLDERS, ...files } });
  const service = portico.client({}, portico.status.SECRET_KEY);
  const { client: alice, id: aliceId } = await signedUp(portico);
  await done(service.storage.createBucket("files", { public: false }));
  await done(service.storage.createBucket("site", { public: true }));
  return { portico, service, alice, aliceId };
}

/** Returns the data of a result that must not be an error. */
export async function done<T>(result: PromiseLike<{ data: T | null; error: unknown }>): Promise<T> {
  const { data, error } = await result;
  expect(error).toBeNull();
  return data as T;
}
