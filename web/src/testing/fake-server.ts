import type { Session, User } from "@supabase/supabase-js";
import { vi } from "vitest";
import { type Config, readConfig } from "../lib/config";

export const config: Config = readConfig({ url: "http://portico.test", anonKey: "anon-key", mailbox: null });

export interface SeenRequest {
  method: string;
  path: string;
  headers: Headers;
  body: Record<string, unknown>;
}
type Answer = { status?: number; body?: unknown; headers?: Record<string, string> } | Error;
type Handler = (request: SeenRequest) => Answer | Promise<Answer>;

/** Answers `fetch` in the place of the server, by method and path, and keeps what was asked. */
export function fakeServer(handlers: Record<string, Handler | Answer> = {}) {
  const seen: SeenRequest[] = [];
  const all: Record<string, Handler | Answer> = {
    "GET /auth/v1/settings": { body: { external: { google: true, email: true } } },
    "POST /auth/v1/logout": { status: 204 },
    "GET /auth/v1/sessions": { body: [] },
    ...handlers,
  };
  const answer = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const url = new URL(input instanceof Request ? input.url : input.toString(), window.location.origin);
    const text = typeof init?.body === "string" ? init.body : "{}";
    const request: SeenRequest = {
      method: init?.method ?? "GET",
      path: url.pathname + url.search,
      headers: new Headers(init?.headers),
      // Only our own client and the official one write these bodies, always as objects.
      body: JSON.parse(text) as Record<string, unknown>,
    };
    seen.push(request);
    const handler = all[`${request.method} ${request.path}`] ?? all[`${request.method} ${url.pathname}`];
    const given = typeof handler === "function" ? await handler(request) : handler;
    if (given instanceof Error) throw given;
    if (!given) return json(404, { message: "404 page not found" });
    if (given.status === 204) return new Response(null, { status: 204 });
    return json(given.status ?? 200, given.body ?? {}, given.headers);
  };
  vi.stubGlobal("fetch", vi.fn(answer));
  return { seen, paths: () => seen.map(({ method, path }) => `${method} ${path}`) };
}

function json(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { "Content-Type": "application/json", "X-Supabase-Api-Version": "2024-01-01", ...headers },
  });
}

export const ada: User = {
  id: "6b8c1d1e-3f0a-4a2e-9a3b-1f6c5d7e8f90",
  aud: "authenticated",
  email: "ada@portico.test",
  email_confirmed_at: "2026-10-01T10:00:00Z",
  created_at: "2026-10-01T10:00:00Z",
  last_sign_in_at: "2026-11-01T10:00:00Z",
  app_metadata: { provider: "google" },
  user_metadata: { full_name: "Ada Byron" },
  identities: [],
};

/** A session that the server could have given out. */
export function session(options: { id?: string; user?: User; expiresIn?: number } = {}): Session {
  const { id = "session-1", user = ada, expiresIn = 3600 } = options;
  const now = Math.floor(Date.now() / 1000);
  const claims = { sub: user.id, session_id: id, exp: now + expiresIn, amr: [{ method: "password", timestamp: now - 60 }] };
  return {
    access_token: `${base64url({ alg: "HS256", typ: "JWT" })}.${base64url(claims)}.${id}`,
    refresh_token: `refresh-${id}`,
    expires_in: expiresIn,
    expires_at: now + expiresIn,
    token_type: "bearer",
    user,
  };
}

export function storeSession(stored: Session): void {
  window.localStorage.setItem("portico.session", JSON.stringify(stored));
}

function base64url(value: unknown): string {
  return btoa(JSON.stringify(value)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
