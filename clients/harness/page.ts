// What a browser does for an app that people come back to: follows a link, and hands the app the address it is opened at.
import type { AuthError, SupabaseClient } from "@supabase/supabase-js";

/** The cookies of a browser, by name: all are for one server. */
export type Cookies = Map<string, string>;

/** Where a link or a form leads, without going there. */
export async function follow(url: string | URL, init: RequestInit = {}, cookies: Cookies = new Map()): Promise<URL> {
  const headers = new Headers(init.headers);
  if (cookies.size > 0) headers.set("cookie", [...cookies].map(([name, value]) => `${name}=${value}`).join("; "));
  const answer = await fetch(url, { ...init, headers, redirect: "manual" });
  for (const cookie of answer.headers.getSetCookie()) {
    const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
    if (name !== undefined && value !== undefined) cookies.set(name, value);
  }
  const location = answer.headers.get("location");
  if (location === null) throw new Error(`${String(url)} leads nowhere: ${answer.status} ${(await answer.text()).slice(0, 500)}`);
  return new URL(location, url);
}

/** The fields that an address carries in its fragment. */
export const fragment = (url: URL): Record<string, string> => Object.fromEntries(new URLSearchParams(url.hash.slice(1)));

/** The fields that an address carries in its query. */
export const query = (url: URL): Record<string, string> => Object.fromEntries(url.searchParams);

/** Options of a client that reads the address of its page, once {@link open} opens one. */
export const onPage = { detectSessionInUrl: true, skipAutoInitialize: true } as const;

/**
 * Opens the page of a client (made with {@link onPage}) at `address`, and says what the client made of it and of the address.
 * The client takes a global `window` for a browser, so there is one while it starts.
 */
export async function open(client: SupabaseClient, address: URL): Promise<{ error: AuthError | null; left: URL }> {
  const location = new URL(address);
  const history = {
    state: null,
    replaceState: (_state: unknown, _title: string, url: string): void => {
      location.href = url;
    },
  };
  const listeners = { addEventListener: (): void => undefined, removeEventListener: (): void => undefined };
  Object.assign(globalThis, { window: { location, history, ...listeners }, document: { visibilityState: "visible" } });
  try {
    const { error } = await client.auth.initialize();
    return { error, left: location };
  } finally {
    Reflect.deleteProperty(globalThis, "window");
    Reflect.deleteProperty(globalThis, "document");
  }
}
