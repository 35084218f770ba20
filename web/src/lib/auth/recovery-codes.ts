import { queryOptions } from "@tanstack/react-query";
import { type Api, ApiError } from "../api";
import { z } from "../zod";
import type { AuthClient } from "./deferred-client";

const path = "/auth/v1/factors/recovery-codes";

const statusSchema = z.object({ remaining: z.number(), created_at: z.nullish(z.coerce.date()) });
const codesSchema = z.object({ codes: z.array(z.string()) });
const tokensSchema = z.object({ access_token: z.string(), refresh_token: z.string() });

export const recoveryCodesKey = ["recovery-codes"];

/** The number of recovery codes that can still be used. */
export const recoveryCodesQuery = (api: Api) =>
  queryOptions({ queryKey: recoveryCodesKey, queryFn: ({ signal }) => api.get(path, statusSchema, signal) });

/**
 * Makes new recovery codes, which replace the others, and returns them. The server shows them only
 * now.
 */
export async function createRecoveryCodes(api: Api): Promise<string[]> {
  const { codes } = await api.post(path, {}, codesSchema);
  return codes;
}

/** Confirms the session with a recovery code, in place of a second factor. */
export async function redeemRecoveryCode(api: Api, client: AuthClient, code: string): Promise<void> {
  const tokens = await api.post(`${path}/verify`, { code }, tokensSchema).catch((error: unknown) => {
    // The sentence for a wrong code of an app does not fit.
    const isWrong = error instanceof ApiError && error.code === "mfa_verification_failed";
    throw isWrong ? new ApiError(error.status, "recovery_code_wrong", error.message) : error;
  });
  const { error } = await client.setSession(tokens);
  if (error) throw error;
}
