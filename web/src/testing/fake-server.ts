import type { Session, User } from "@supabase/supabase-js";
import { vi } from "vitest";
import { type Config, readConfig } from "../lib/config";

export const config: Config = readConfig({ url: "http://portico.test", anonKey: "anon-key", mailbox: null });

export interface ReceivedRequest {
  method: string;
  path: string;
  headers: Headers;
  body: Record<string, unknown>;
}
type FakeResponse = { status?: number; body?: unknown; headers?: Record<string, string> } | Error;
type FakeHandler = (request: ReceivedRequest) => FakeResponse | Promise<FakeResponse>;

/** Replaces `fetch` by handlers for methods and paths, and records the requests. */
export function fakeServer(handlers: Record<string, FakeHandler | FakeResponse> = {}) {
  const seen: ReceivedRequest[] = [];
  const all: Record<string, FakeHandler | FakeResponse> = {
    "GET /auth/v1/settings": { body: { external: { google: true, email: true } } },
    "POST /auth/v1/logout": { status: 204 },
    "GET /auth/v1/sessions": { body: [] },
    ...handlers,
  };
  const respond = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const url = new URL(input instanceof Request ? input.url : input.toString(), window.location.origin);
    const text = typeof init?.body === "string" ? init.body : "{}";
    const request: ReceivedRequest = {
      method: init?.method ?? "GET",
      path: url.pathname + url.search,
      headers: new Headers(init?.headers),
      // Only our own client and the official one write these bodies, always as objects.
      body: JSON.parse(text) as Record<string, unknown>,
    };
    seen.push(request);
    const handler = all[`${request.method} ${request.path}`] ?? all[`${request.method} ${url.pathname}`];
    const response = typeof handler === "function" ? await handler(request) : handler;
    if (response instanceof Error) throw response;
    if (!response) return json(404, { message: "404 page not found" });
    if (response.status === 204) return new Response(null, { status: 204 });
    return json(response.status ?? 200, response.body ?? {}, response.headers);
  };
  vi.stubGlobal("fetch", vi.fn(respond));
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

/** Returns a session as the server creates it. */
export function session(options: { id?: string; user?: User; expiresIn?: number; aal?: "aal1" | "aal2" } = {}): Session {
  const { id = "session-1", user = ada, expiresIn = 3600, aal = "aal1" } = options;
  const now = Math.floor(Date.now() / 1000);
  const claims = { sub: user.id, session_id: id, exp: now + expiresIn, aal, amr: [{ method: "password", timestamp: now - 60 }] };
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
