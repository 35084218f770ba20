// The accounts of tests.
import type { SupabaseClient } from "@supabase/supabase-js";
import { expect } from "vitest";

import type { Portico } from "./portico.ts";

export const PASSWORD = "correct horse battery";

let count = 0;
/** Returns an email address that is unique in the file. */
export const newEmail = (): string => `person-${++count}@portico.test`;

/** Signs up an account on a server that requires no confirmation. */
export async function signedUp(portico: Portico, options: Parameters<Portico["client"]>[0] = {}): Promise<{ client: SupabaseClient; email: string; id: string }> {
  const email = newEmail();
  const client = portico.client(options);
  const { data, error } = await client.auth.signUp({ email, password: PASSWORD });
  expect(error).toBeNull();
  expect(data.session).not.toBeNull();
  return { client, email, id: data.user!.id };
}

/** Returns the claims of the access token of a client's session. */
export async function claims(client: SupabaseClient): Promise<Record<string, unknown>> {
  const { data, error } = await client.auth.getClaims();
  expect(error).toBeNull();
  return data!.claims;
}
