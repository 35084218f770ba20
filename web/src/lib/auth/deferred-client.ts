import type { GoTrueClient } from "@supabase/auth-js";

/** The names of the client's asynchronous methods. */
type AsynchronousMethod = {
  [Name in keyof GoTrueClient]: GoTrueClient[Name] extends (...args: never[]) => Promise<unknown> ? Name : never;
}[keyof GoTrueClient];

/** The groups of asynchronous methods: `mfa.enroll`, `passkey.list`. */
const groups = ["mfa", "mfa.webauthn", "passkey"];

/** The official client as pages use it: a call waits until the client's code is loaded. */
export type AuthClient = Pick<GoTrueClient, AsynchronousMethod | "mfa" | "passkey">;

/** The time until a client that could not be loaded is requested again. */
const retryMs = 3000;

/**
 * Defers the official client, whose code is loaded after the page's own: a form can be read and
 * filled in before. `start` loads it and retries until that succeeds. The first call of a page
 * loads it too.
 */
export function deferClient(open: () => Promise<GoTrueClient>) {
  let opening: Promise<GoTrueClient> | undefined;
  let resolveOpened: (client: GoTrueClient) => void = () => undefined;
  const opened = new Promise<GoTrueClient>((resolve) => (resolveOpened = resolve));

  function load(): Promise<GoTrueClient> {
    opening ??= open().then(
      (client) => {
        resolveOpened(client);
        return client;
      },
      (error: unknown) => {
        opening = undefined;
        throw error;
      },
    );
    return opening;
  }

  async function start(): Promise<void> {
    for (;;) {
      try {
        await load();
        return;
      } catch {
        await new Promise((resume) => window.setTimeout(resume, retryMs));
      }
    }
  }

  const deferredMethod =
    (path: string) =>
    async (...args: unknown[]): Promise<unknown> => {
      let client: GoTrueClient;
      try {
        client = await load();
      } catch (error) {
        // The client itself reports an unreachable server in this shape.
        const message = error instanceof Error ? error.message : String(error);
        return { data: {}, error: Object.assign(new Error(message), { name: "AuthRetryableFetchError", status: 0 }) };
      }
      const names = path.split(".");
      // The method's own group, which is the client itself for most of them.
      const owner = names.slice(0, -1).reduce<object>((group, name) => Reflect.get(group, name) as object, client);
      // The types name methods alone. Another name is an error of the call itself.
      const method = Reflect.get(owner, names.at(-1) ?? "") as (...args: unknown[]) => unknown;
      return Reflect.apply(method, owner, args);
    };

  const deferredGroup = (prefix: string): object =>
    new Proxy(
      {},
      {
        get: (target, name) => {
          // `await` looks up `then` on the client itself.
          if (typeof name !== "string" || name === "then" || name in target) return Reflect.get(target, name) as unknown;
          const path = prefix + name;
          return groups.includes(path) ? deferredGroup(`${path}.`) : deferredMethod(path);
        },
      },
    );

  // Each of these methods is looked up in the client when it is called, so the type is the client's
  // own.
  return { client: deferredGroup("") as AuthClient, opened, start };
}
