// The part of a browser that redirects need: follows a link, and opens an app's page at an address.
import type { AuthError, SupabaseClient } from "@supabase/supabase-js";

/** The cookies of a browser, by name: all are for one server. */
export type Cookies = Map<string, string>;

/** Returns the redirect target of a link or a form, without requesting it. */
export async function redirectTarget(url: string | URL, init: RequestInit = {}, cookies: Cookies = new Map()): Promise<URL> {
  const headers = new Headers(init.headers);
  if (cookies.size > 0) headers.set("cookie", [...cookies].map(([name, value]) => `${name}=${value}`).join("; "));
  const response = await fetch(url, { ...init, headers, redirect: "manual" });
  for (const cookie of response.headers.getSetCookie()) {
    const [, name, value] = /^([^=]+)=([^;]*)/.exec(cookie) ?? [];
    if (name !== undefined && value !== undefined) cookies.set(name, value);
  }
  const location = response.headers.get("location");
  if (location === null) throw new Error(`${String(url)} does not redirect: ${response.status} ${(await response.text()).slice(0, 500)}`);
  return new URL(location, url);
}

/** Returns the parameters in the fragment of an address. */
export const fragment = (url: URL): Record<string, string> => Object.fromEntries(new URLSearchParams(url.hash.slice(1)));

/** Returns the query parameters of an address. */
export const query = (url: URL): Record<string, string> => Object.fromEntries(url.searchParams);

/** The options of a client that reads the address of its page, once {@link openPage} opens one. */
export const pageOptions = { detectSessionInUrl: true, skipAutoInitialize: true } as const;

/**
 * Opens the page of a client (made with {@link pageOptions}) at `address`. Returns the client's
 * error, and the address as the client left it. The client takes a global `window` for a browser,
 * so there is one while it starts.
 */
export async function openPage(client: SupabaseClient, address: URL): Promise<{ error: AuthError | null; left: URL }> {
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
