// Accounts that tests begin with.
import type { SupabaseClient } from "@supabase/supabase-js";
import { expect } from "vitest";

import type { Portico } from "./portico.ts";

export const PASSWORD = "correct horse battery";

let count = 0;
/** An address that nobody else in this file has. */
export const address = (): string => `person-${++count}@portico.test`;

/** Someone who is signed in, where sign-up needs no confirmation. */
export async function signedUp(portico: Portico, options: Parameters<Portico["client"]>[0] = {}): Promise<{ client: SupabaseClient; email: string; id: string }> {
  const email = address();
  const client = portico.client(options);
  const { data, error } = await client.auth.signUp({ email, password: PASSWORD });
  expect(error).toBeNull();
  expect(data.session).not.toBeNull();
  return { client, email, id: data.user!.id };
}

/** What the access token of a client's session says. */
export async function claims(client: SupabaseClient): Promise<Record<string, unknown>> {
  const { data, error } = await client.auth.getClaims();
  expect(error).toBeNull();
  return data!.claims;
}
