import { queryOptions } from "@tanstack/react-query";
import type { AuthClient } from "../../lib/auth/deferred-client";

/** A passkey of the account. */
export interface Passkey {
  id: string;
  name: string;
  createdAt: Date;
  lastUsedAt: Date | null;
}

export const passkeysKey = ["passkeys"];

/** The account's passkeys, oldest first. */
export const passkeysQuery = (client: AuthClient) =>
  queryOptions({
    queryKey: passkeysKey,
    queryFn: async (): Promise<Passkey[]> => {
      const { data, error } = await client.passkey.list();
      if (error) throw error;
      return data.map(({ id, friendly_name = "", created_at, last_used_at }) => ({
        id,
        name: friendly_name,
        createdAt: new Date(created_at),
        lastUsedAt: last_used_at === undefined ? null : new Date(last_used_at),
      }));
    },
  });

/** Registers a passkey on this device, and returns its id. */
export async function addPasskey(client: AuthClient): Promise<string> {
  const { data, error } = await client.registerPasskey();
  if (error) throw error;
  return data.id;
}
