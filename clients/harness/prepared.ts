// The data that development servers of tests begin with. A cluster is initialised and set up once
// for a run and copied from then on, since that is two thirds of the work of a first start. Copies
// share the key of the vault and the cluster's identifier, which only tests may do.
import { join } from "node:path";

import type { TestProject } from "vitest/node";

import { sql } from "./database.ts";
import { Portico } from "./portico.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The data folder of a development server that has ended. */
    preparedData: string;
  }
}

/** Prepares the data before the first test file. Returns what removes it after the last. */
export default async function setup(run: TestProject): Promise<() => Promise<void>> {
  const server = await Portico.start({ initialises: true });
  // The state of a first start that was interrupted, which the next one continues: with the
  // secrets, roles, migrations and seeds of its own project
  await sql(server.status.DB_URL, "comment on table supabase_migrations.seed_files is 'portico: preparing'");
  await server.stop();
  run.provide("preparedData", join(server.folder, ".portico"));
  return () => server.dispose();
}
