import type { Factor, FactorType } from "@supabase/supabase-js";
import { queryOptions } from "@tanstack/react-query";
import type { AuthClient } from "../../lib/auth/deferred-client";

export const factorsKey = ["factors"];

/** The account's second factors, also those whose set-up was not finished. */
export const factorsQuery = (client: AuthClient) =>
  queryOptions({
    queryKey: factorsKey,
    queryFn: async (): Promise<Factor[]> => {
      const { data, error } = await client.mfa.listFactors();
      if (error) throw error;
      return data.all;
    },
  });

/** Removes what earlier attempts to add a factor of this type left behind. */
export async function removeUnfinished(client: AuthClient, type: FactorType): Promise<void> {
  const { data, error } = await client.mfa.listFactors();
  if (error) throw error;
  const unfinished = data.all.filter(({ factor_type, status }) => factor_type === type && status === "unverified");
  await Promise.all(unfinished.map(({ id }) => client.mfa.unenroll({ factorId: id })));
}

/** Returns a name that no other factor has: the server requires that of each. */
export function uniqueName(name: string, factors: Factor[]): string {
  const taken = new Set(factors.map(({ friendly_name }) => friendly_name));
  if (!taken.has(name)) return name;
  let number = 2;
  while (taken.has(`${name} ${number}`)) number += 1;
  return `${name} ${number}`;
}
