import * as m from "../paraglide/messages";
import { accessToken, type SessionSource } from "./backend";
import type { Config } from "./config";
import { observedFetch } from "./http";
import { z } from "./zod";

/** An error response of one of our own endpoints. Pages decide by `code`. */
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
  get<Body>(path: string, schema: z.ZodMiniType<Body>, signal?: AbortSignal): Promise<Body>;
  post<Body>(path: string, body: Record<string, unknown>, schema: z.ZodMiniType<Body>): Promise<Body>;
  delete(path: string): Promise<void>;
}

export function openApi(config: Config, auth: SessionSource): Api {
  async function call(path: string, init: RequestInit): Promise<Response> {
    const token = (await accessToken(auth)) ?? config.anonKey;
    const response = await observedFetch(config.url + path, {
      ...init,
      headers: {
        ...(init.body === undefined ? {} : { "Content-Type": "application/json" }),
        apikey: config.anonKey, Authorization: `Bearer ${token}`,
        "X-Supabase-Api-Version": "2024-01-01",
      },
    });
    if (!response.ok) throw await errorOf(response);
    return response;
  }

  return {
    async get(path, schema, signal) {
      const response = await call(path, signal ? { signal } : {});
      return schema.parse(await response.json());
    },
    async post(path, body, schema) {
      const response = await call(path, { method: "POST", body: JSON.stringify(body) });
      return schema.parse(await response.json());
    },
    async delete(path) {
      await call(path, { method: "DELETE" });
    },
  };
}

const text = z.catch(z.nullish(z.string()), null);
/** The fields that our services use in error bodies. */
const errorSchema = z.catch(z.nullable(z.object({ message: text, msg: text, error_code: text, code: text })), null);

async function errorOf(response: Response): Promise<ApiError> {
  const body = errorSchema.parse(await response.json().catch(() => null));
  const message = body?.message ?? body?.msg ?? m.error_status({ status: response.status });
  return new ApiError(response.status, body?.error_code ?? body?.code ?? null, message);
}
