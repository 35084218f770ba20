import type { z } from "./zod";
import { accessToken, type SessionSource } from "./backend";
import type { Config } from "./config";
import { observedFetch } from "./http";

/** A refusal of our own endpoints. Screens decide by `code`. */
export class ApiError extends Error {
  override name = "ApiError";
  constructor(
    readonly status: number,
    readonly code: string | null,
    message: string,
  ) {
    super(message);
  }
}

/** Calls to endpoints that the official client has no method for. */
export interface Api {
  get<Answer>(path: string, schema: z.ZodMiniType<Answer>, signal?: AbortSignal): Promise<Answer>;
  delete(path: string): Promise<void>;
}

export function openApi(config: Config, auth: SessionSource): Api {
  async function call(path: string, init: RequestInit): Promise<Response> {
    const token = (await accessToken(auth)) ?? config.anonKey;
    const response = await observedFetch(config.url + path, {
      ...init,
      headers: { apikey: config.anonKey, Authorization: `Bearer ${token}`, "X-Supabase-Api-Version": "2024-01-01" },
    });
    if (!response.ok) throw await refusal(response);
    return response;
  }

  return {
    async get(path, schema, signal) {
      const response = await call(path, signal ? { signal } : {});
      return schema.parse(await response.json());
    },
    async delete(path) {
      await call(path, { method: "DELETE" });
    },
  };
}

async function refusal(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  const field = (name: string) => {
    const value: unknown = typeof body === "object" && body !== null ? Reflect.get(body, name) : null;
    return typeof value === "string" ? value : null;
  };
  const message = field("message") ?? field("msg") ?? `The server answered ${response.status}.`;
  return new ApiError(response.status, field("error_code") ?? field("code"), message);
}
